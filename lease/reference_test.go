package lease_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// reference is a simple model of a Set. It stores everything that it receives, and computes the live nodes from that in
// every call. It uses the cluster time of the set that it models, and the world compares that time with the truth.
type reference struct {
	set     *lease.Set
	records map[lease.Handle][]*lease.Record
	facts   map[lease.Handle][]fact
	ended   map[lease.Handle]lease.Stamp // stamp of the latest heartbeat when the lease expired

	window time.Time   // when the current window of small steps of cluster time began
	small  lease.Stamp // these steps, together
}

// fact is a heartbeat, or only the age of a heartbeat.
type fact struct {
	at      lease.Stamp // of the whole heartbeat; not positive if only its age was received
	renewed lease.Stamp
	state   lease.State
	grace   lease.Stamp // how far cluster time has stepped ahead since the heartbeat
}

func newReference(s *lease.Set) *reference {
	return &reference{
		set: s, records: make(map[lease.Handle][]*lease.Record), facts: make(map[lease.Handle][]fact), ended: make(map[lease.Handle]lease.Stamp),
	}
}

// isLarge reports whether a step of cluster time is large, so that it does not change the age of leases. In a window of
// a TTL, small steps add up to at most a thirty-second of the TTL.
func (w *reference) isLarge(now time.Time, by lease.Stamp) bool {
	if now.Sub(w.window) >= simParams.TTL {
		w.window, w.small = now, 0
	}
	small := w.small + max(by, -by)
	if millis(small) > simParams.TTL/32 {
		return true
	}
	w.small = small
	return false
}

// hear stores the content of m, whose encoded form is wire. It stores records and heartbeats first, because the meaning
// of the ages depends on them.
func (w *reference) hear(now time.Time, m *lease.Message, wire []byte) {
	for _, r := range m.Records {
		if r.ID != w.set.Self().ID {
			w.records[r.Handle()] = append(w.records[r.Handle()], r)
		}
	}
	for _, b := range m.Heartbeats {
		worth := simParams.TTL
		if b.State == lease.Left {
			worth = forgetAfter(simParams)
		}
		if w.records[b.Handle] != nil && w.set.Stamp(now)-b.Renewed <= stamps(worth) {
			w.facts[b.Handle] = append(w.facts[b.Handle], fact{at: b.At, renewed: b.Renewed, state: b.State})
		}
	}
	tick := stamps(simParams.TTL) / 16
	if len(m.Ages) == 0 {
		return
	}
	levels := agesIn(wire)
	for i, b := range m.Ages {
		nodes, digest := w.bucket(b.BucketID)
		if len(nodes) != b.Nodes || digest != b.Digest {
			continue
		}
		for at, h := range nodes {
			if level := levels[i][at/2] >> (at % 2 * 4) & 15; level < 15 && h != w.set.Handle() {
				w.facts[h] = append(w.facts[h], fact{renewed: (m.Stamp/tick - lease.Stamp(level)) * tick})
			}
		}
	}
}

// bucket returns the live nodes in a bucket and their digest, computed as in docs/dev/design/wire.md.
func (w *reference) bucket(id lease.BucketID) (nodes []lease.Handle, digest uint64) {
	for _, r := range append(w.live(), w.set.Self()) {
		h, state := r.Handle(), w.state(r.Handle())
		if h == w.set.Handle() {
			state = w.set.State()
		}
		if uint32(h>>(48-id.Bits)) == id.Index {
			nodes = append(nodes, h)
			digest ^= splitMix64(uint64(h) + uint64(r.Version)*0x9e3779b97f4a7c15 + uint64(state)<<60)
		}
	}
	slices.Sort(nodes)
	return nodes, digest >> 16
}

func splitMix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// agesIn returns the ages of each bucket in an encoded message.
func agesIn(b []byte) (ages [][]byte) {
	const field, digest = 9, 6
	err := wire.Read(b, func(r *wire.Reader) {
		r.Fields(field+1, func() {
			for range field {
				r.Skip()
			}
			r.List(len(b), func() {
				r.Fields(3, func() {
					r.Skip()
					r.Skip()
					ages = append(ages, r.Bytes(len(b))[digest:])
				})
			})
			for r.Left() > 0 {
				r.Skip()
			}
		})
	})
	if err != nil {
		panic(err)
	}
	return ages
}

// expire ends the leases that are older than the TTL.
func (w *reference) expire(now time.Time) {
	for _, r := range w.live() {
		h := r.Handle()
		held := w.held(h)
		if w.set.Stamp(now)-held.renewed-held.grace > stamps(simParams.TTL) {
			w.end(h)
		}
	}
}

// end ends the lease of h.
func (w *reference) end(h lease.Handle) {
	w.ended[h] = w.latest(h)
	for i := range w.facts[h] {
		w.facts[h][i].grace = 0
	}
}

// forget ends all leases. The latest heartbeat of each node counts again if another node relays it.
func (w *reference) forget() {
	by := 2*stamps(simParams.TTL)/16 + 1
	for _, r := range w.live() {
		h := r.Handle()
		grace := w.held(h)
		latest := w.latest(h) - by
		w.facts[h] = []fact{{at: w.rowAt(h), renewed: latest, state: w.state(h), grace: grace.renewed + grace.grace - latest}}
		w.ended[h] = latest
	}
}

// step follows a large step of cluster time. Leases end when they would have ended without the step. After a step back,
// the stamps of earlier heartbeats are no longer known.
func (w *reference) step(by lease.Stamp) {
	lives := make(map[lease.Handle]bool)
	for _, r := range w.live() {
		lives[r.Handle()] = true
	}
	tooOld := w.ownHeartbeat() - stamps(simParams.TTL) - 1
	for h, facts := range w.facts {
		if by < 0 { // all facts become equally old, so keep only the latest state
			facts = []fact{{at: w.rowAt(h), renewed: w.latest(h), state: w.state(h), grace: w.held(h).renewed + w.held(h).grace - w.latest(h)}}
			w.facts[h] = facts
		}
		for i := range facts {
			f := &facts[i]
			end := f.renewed + f.grace + by
			if by < 0 {
				f.renewed, f.at = min(f.renewed+by, tooOld), min(f.at+by, tooOld)
			}
			if lives[h] {
				f.grace = end - f.renewed
			}
		}
		switch ended, ok := w.ended[h]; {
		case lives[h]: // revived since then: all its heartbeats become as old as that end
			delete(w.ended, h)
		case ok && by < 0:
			w.ended[h] = min(ended+by, tooOld)
		}
	}
}

// ownHeartbeat returns when the set's node sent its latest heartbeat.
func (w *reference) ownHeartbeat() lease.Stamp {
	return w.set.Stamp(member(w.set, w.set.Self().ID).Renewed)
}

// rowAt returns the stamp of the latest heartbeat of h that arrived whole.
func (w *reference) rowAt(h lease.Handle) lease.Stamp {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.at, b.at) }).at
}

// held returns the fact with which the lease of h ends latest.
func (w *reference) held(h lease.Handle) fact {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.renewed+a.grace, b.renewed+b.grace) })
}

// latest returns when h sent its latest known heartbeat.
func (w *reference) latest(h lease.Handle) lease.Stamp {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.renewed, b.renewed) }).renewed
}

// state returns the state in the latest heartbeat of h that arrived whole.
func (w *reference) state(h lease.Handle) lease.State {
	if len(w.facts[h]) == 0 {
		return 0
	}
	return slices.MaxFunc(w.facts[h], func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.state, b.state))
	}).state
}

// live returns the records of the live nodes. For each id, it returns the last incarnation that sent a heartbeat,
// unless that heartbeat is a leave message or the lease has ended. A heartbeat revives an ended lease if it is later
// than the previous heartbeat by more than the rounding of two ages.
func (w *reference) live() (live []*lease.Record) {
	last := make(map[lease.NodeID]*lease.Record)
	for h, records := range w.records {
		r := slices.MaxFunc(records, func(a, b *lease.Record) int { return cmp.Compare(a.Version, b.Version) })
		if cur := last[r.ID]; w.facts[h] != nil && (cur == nil || r.Incarnation > cur.Incarnation) {
			last[r.ID] = r
		}
	}
	for _, r := range last {
		ended, ok := w.ended[r.Handle()]
		if w.state(r.Handle()) != lease.Left && (!ok || w.latest(r.Handle())-ended > 2*stamps(simParams.TTL)/16) {
			live = append(live, r)
		}
	}
	return live
}

func (w *reference) lines() (lines []string) {
	for _, r := range w.live() {
		held := w.held(r.Handle())
		lines = append(lines, line(r, w.state(r.Handle()), w.latest(r.Handle()), held.renewed+held.grace))
	}
	slices.Sort(lines)
	return lines
}

func line(r *lease.Record, state lease.State, at, held lease.Stamp) string {
	return fmt.Sprintf("%s/%d v%d %v at %d, held %d", r.ID, r.Incarnation, r.Version, state, at, held)
}

// Real Sets run on a faulty network, which loses, duplicates, delays, reorders and replays messages. At every tick,
// each view equals the view of its reference model, and no lease is younger than the latest heartbeat of its node. When
// the network is healthy again, all views become equal and correct.
func TestSetsAgreeWithTheirModelsAndTheTruth(t *testing.T) {
	trouble, quiet := 300, 260 // ticks; together less than forgetAfter
	if testing.Short() {
		trouble = 100
	}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		every := rapid.IntRange(5, 40).Draw(t, "ticks between troubles")
		for tick := range trouble {
			if tick%every == every-1 {
				w.trouble()
			}
			w.step(tick)
		}
		w.calm()
		for tick := range quiet {
			w.step(trouble + tick)
		}
		w.wantTruth()
	})
}

// Half of a cluster's nodes leave, and the remaining nodes forget them. Minutes later, all traffic is sent again while
// a newcomer joins. The old traffic changes nothing.
func TestReplayMinutesLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for tick := range 100 {
			if tick%10 == 9 {
				w.trouble()
			}
			w.step(tick)
		}
		w.calm()
		for _, n := range w.nodes[1:] {
			if w.isMember(n) && w.pick(func(p *simNode) bool { return w.isMember(p) && p != n }) != nil && w.rng.IntN(2) == 0 {
				w.leave(n)
			}
		}
		w.tick = time.Second
		for tick := range rapid.IntRange(5, 200).Draw(t, "seconds") {
			w.step(tick)
		}
		w.tick = simTick
		if n := w.pick(func(n *simNode) bool { return n.set == nil }); n != nil {
			w.start(n)
		}
		for _, wire := range w.recorded {
			w.fly(w.rng.IntN(len(w.nodes)), wire, 10*time.Second)
		}
		for tick := range 250 {
			w.step(tick)
		}
		w.wantTruth()
	})
}
