package chaos

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A duplicate is a process that was paused when another process was started under its id, at another address. Once the
// duplicate continues, it has to notice this and exit. While it is paused, it counts as ended. If it runs while the
// later process is paused or cut off, the duplicate may stay. So while a duplicate runs, no lease with its id counts as
// calm, and no side is checked.

const (
	bothOwn       = time.Second // how long a duplicate may own something, in a calm network
	duplicateEnds = ttl         // how long both may run, in a calm network
)

// duplicate pauses a node, and starts another process under its id.
func (w *world) duplicate(id string) {
	if !w.runs(id) || w.duplicates[id] != nil || w.stepped || w.hosts[id].lossy || w.now[id].Suspended() {
		return
	}
	w.pause(id)
	p := w.now[id]
	w.ended(id, false)
	former := *w.hosts[id]
	p.former = &former
	w.hosts[id].addr = ""
	w.duplicates[id] = p
	w.start(id)
}

// resumeDuplicate continues a duplicate.
func (w *world) resumeDuplicate(id string) {
	if p := w.duplicates[id]; p != nil && p.end != 0 && w.runs(id) {
		p.end, p.active, p.both, w.calm.node[id] = 0, w.Elapsed(), w.Elapsed(), w.Elapsed()
		p.Resume()
	}
}

// duplicateRuns reports whether a process runs although a later process was started under its id.
func (w *world) duplicateRuns(id string) bool {
	return w.duplicates[id] != nil && w.duplicates[id].end == 0
}

// duplicatesMatter reports whether a duplicate runs, so that it still has to end, or is paused at the address of a
// seed, so that joining nodes wait for it.
func (w *world) duplicatesMatter() bool {
	for id, p := range w.duplicates {
		if w.duplicateRuns(id) || slices.Contains(w.seeds, p.Addr) {
			return true
		}
	}
	return false
}

// endDuplicate ends a running duplicate.
func (w *world) endDuplicate(id string) {
	if w.duplicateRuns(id) {
		w.duplicates[id].Crash()
		w.duplicates[id].end = w.Elapsed()
		delete(w.duplicates, id)
		w.disturbed = w.Elapsed()
		w.changed, w.checked, w.sides = w.Elapsed(), false, w.findSides()
	}
}

// checkDuplicates checks how long duplicates run, and how long they own what the later processes own.
func (w *world) checkDuplicates() {
	for i := range w.s.hosts {
		id := nameOf(i)
		if !w.duplicateRuns(id) {
			continue
		}
		w.calm.node[id] = w.Elapsed()
		w.identify(w.duplicates[id]) // it may have taken a later incarnation than the later process, if that process is paused
		if duplicate := w.duplicates[id]; duplicate.Duplicate() != nil || duplicate.View().Ended {
			w.endDuplicate(id)
		} else {
			w.checkDuplicate(duplicate, w.now[id])
		}
	}
}

func (w *world) checkDuplicate(duplicate, later *process) {
	calm := w.Elapsed()-max(w.calm.network, w.calm.cut) > calmAfter && !later.Stopped() && !w.hosts[later.ID].lossy &&
		w.Elapsed()-w.firstSeed(w.running) > settled // otherwise no node may know both
	if !calm || !common(duplicate, later) {
		duplicate.both, duplicate.apart = w.Elapsed(), w.Elapsed()
		return
	}
	if !duplicate.Live() || !later.Live() || !slices.ContainsFunc(duplicate.Owned(), func(p placement.Partition) bool {
		return slices.Contains(later.Owned(), p)
	}) {
		duplicate.both = w.Elapsed()
	}
	if both := w.Elapsed() - duplicate.both; both > bothOwn {
		w.fail("duplicate", "%s and its duplicate own the same for %v", later.ID, both)
	}
	if ran := w.Elapsed() - max(duplicate.apart, duplicate.active, later.active, later.began); ran > duplicateEnds {
		w.fail("duplicate", "the duplicate of %s still runs after %v", later.ID, ran)
	}
}

// common reports whether two processes with the same id have another member in common, which can tell the earlier
// process that the later process runs.
func common(duplicate, later *process) bool {
	return slices.ContainsFunc(duplicate.Members(), func(id lease.NodeID) bool {
		return string(id) != duplicate.ID && slices.Contains(later.Members(), id)
	})
}
