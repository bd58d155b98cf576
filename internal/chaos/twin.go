package main

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A twin is a process that stood still when another one was started under its id, on another
// address. Once it runs again, it has to notice and to end. A twin that stands still counts as
// ended. A twin that runs while the later process stands still, or is cut off, may well
// stay; so no lease of that id is calm, and no side is judged, while it runs.

const (
	bothOwn  = time.Second // for which a twin may own something, in a calm network
	twinEnds = ttl         // after both have begun to run, in a calm network
)

// twin has a node stand still, and starts another process under its id.
func (w *world) twin(id string) {
	if !w.runs(id) || w.twins[id] != nil || w.stepped || w.hosts[id].lossy || w.hosts[id].asleep {
		return
	}
	w.pause(id)
	p := w.now[id]
	w.ended(id, false)
	w.hosts[id].addr = ""
	w.twins[id] = p
	w.start(id)
}

// resumeTwin lets a twin run again.
func (w *world) resumeTwin(id string) {
	if p := w.twins[id]; p != nil && p.end != 0 && w.runs(id) {
		p.end, p.active, p.both, w.calm.node[id] = 0, w.Elapsed(), w.Elapsed(), w.Elapsed()
		p.Resume()
	}
}

// twinRuns reports whether a process runs that another one has followed under its id.
func (w *world) twinRuns(id string) bool { return w.twins[id] != nil && w.twins[id].end == 0 }

// twinsMatter reports whether a twin runs, which has to end, or stands still at the address of
// a seed: nodes that join wait for it.
func (w *world) twinsMatter() bool {
	for id, p := range w.twins {
		if w.twinRuns(id) || slices.Contains(w.seeds, p.Addr) {
			return true
		}
	}
	return false
}

// endTwin ends a twin that runs.
func (w *world) endTwin(id string) {
	if w.twinRuns(id) {
		w.twins[id].Crash()
		w.twins[id].end = w.Elapsed()
		delete(w.twins, id)
		w.changed, w.checked, w.sides = w.Elapsed(), false, w.findSides()
	}
}

// checkTwins checks for how long twins run, and own what the later processes own.
func (w *world) checkTwins() {
	for i := range w.s.hosts {
		id := nameOf(i)
		if !w.twinRuns(id) {
			continue
		}
		w.calm.node[id] = w.Elapsed()
		w.identify(w.twins[id]) // it may have outbid the later process, if that one stands still
		if twin := w.twins[id]; twin.Duplicate() != nil || twin.View().Ended {
			w.endTwin(id)
		} else {
			w.checkTwin(twin, w.now[id])
		}
	}
}

func (w *world) checkTwin(twin, later *process) {
	h := w.hosts[later.ID]
	calm := w.Elapsed()-max(w.calm.network, w.calm.cut) > calmAfter && !h.paused && !h.lossy &&
		w.Elapsed()-w.firstSeed(w.running) > settled // otherwise no node may know both
	if !calm || !common(twin, later) {
		twin.both, twin.apart = w.Elapsed(), w.Elapsed()
		return
	}
	if !twin.Live() || !later.Live() || !slices.ContainsFunc(twin.Owned(), func(p placement.Partition) bool {
		return slices.Contains(later.Owned(), p)
	}) {
		twin.both = w.Elapsed()
	}
	if both := w.Elapsed() - twin.both; both > bothOwn {
		w.fail("twin", "%s and its twin own the same for %v", later.ID, both)
	}
	if ran := w.Elapsed() - max(twin.apart, twin.active, later.active, later.began); ran > twinEnds {
		w.fail("twin", "the twin of %s still runs after %v", later.ID, ran)
	}
}

// common reports whether two processes of one id have another member in common, which can say to
// the earlier process that the later one runs.
func common(twin, later *process) bool {
	return slices.ContainsFunc(twin.Members(), func(id lease.NodeID) bool {
		return string(id) != twin.ID && slices.Contains(later.Members(), id)
	})
}
