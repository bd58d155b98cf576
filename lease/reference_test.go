package lease

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reference is a simple model of a Set: it stores all that it hears, and computes the live
// nodes from it on every call. Cluster time is that of its set; the world compares it
// with the truth.
type reference struct {
	set     *Set
	records map[Handle][]*Record
	facts   map[Handle][]fact
	ended   map[Handle]Stamp // the latest heartbeat of a lease when it expired
}

// fact is a heartbeat, or only the age of one.
type fact struct {
	at      Stamp // of the whole heartbeat; not positive if only its age was received
	renewed Stamp
	state   State
	grace   Stamp // how far cluster time has stepped ahead since
}

func newReference(s *Set) *reference {
	return &reference{
		set: s, records: make(map[Handle][]*Record), facts: make(map[Handle][]fact), ended: make(map[Handle]Stamp),
	}
}

// hear stores what m says; with the records and heartbeats stored, it compares the ages.
func (w *reference) hear(now time.Time, m *Message) {
	for _, r := range m.Records {
		if r.ID != w.set.self.rec.ID {
			w.records[r.Handle()] = append(w.records[r.Handle()], r)
		}
	}
	for _, b := range m.Heartbeats {
		worth := simParams.TTL
		if b.State == Left {
			worth = simParams.forgetAfter()
		}
		if w.records[b.Handle] != nil && w.set.time.at(now)-b.Renewed <= stamps(worth) {
			w.facts[b.Handle] = append(w.facts[b.Handle], fact{at: b.At, renewed: b.Renewed, state: b.State})
		}
	}
	tick := stamps(simParams.TTL) / 16
	for _, b := range m.Ages {
		nodes := w.bucket(b.BucketID)
		if len(nodes) != b.Nodes || digestOf(nodes) != b.Digest {
			continue
		}
		for i, e := range nodes {
			if level := b.ages[i/2] >> (i % 2 * 4) & 15; level < 15 && e.handle != w.set.self.handle {
				w.facts[e.handle] = append(w.facts[e.handle], fact{renewed: (m.Stamp/tick - Stamp(level)) * tick})
			}
		}
	}
}

// bucket returns the live nodes with handles in one part, by handle.
func (w *reference) bucket(id BucketID) (nodes []*entry) {
	for _, r := range append(w.live(), w.set.self.rec) {
		e := &entry{handle: r.Handle(), rec: r, vitals: &vitals{state: w.state(r.Handle())}}
		if e.handle == w.set.self.handle {
			e.state = w.set.self.state
		}
		if id.has(e.handle) {
			nodes = append(nodes, e)
		}
	}
	slices.SortFunc(nodes, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	return nodes
}

// expire ends the leases that are older than the TTL.
func (w *reference) expire(now time.Time) {
	for _, r := range w.live() {
		h := r.Handle()
		held := w.held(h)
		if w.set.time.at(now)-held.renewed-held.grace > stamps(simParams.TTL) {
			w.end(h)
		}
	}
}

// end ends the lease of h.
func (w *reference) end(h Handle) {
	w.ended[h] = w.latest(h)
	for i := range w.facts[h] {
		w.facts[h][i].grace = 0
	}
}

// forget ends all leases. The latest heartbeat of each counts again if another node relays it.
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

// step follows a large step of cluster time: leases end when they would have ended
// without it. Of the time before a step back, no stamp is known.
func (w *reference) step(by Stamp) {
	lives := make(map[Handle]bool)
	for _, r := range w.live() {
		lives[r.Handle()] = true
	}
	tooOld := w.set.self.at - stamps(simParams.TTL) - 1
	for h, facts := range w.facts {
		if by < 0 { // all become equally old: the latest state is to stay
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
		case lives[h]: // revived since: all its heartbeats become as old as that end
			delete(w.ended, h)
		case ok && by < 0:
			w.ended[h] = min(ended+by, tooOld)
		}
	}
}

// rowAt returns when h sent the latest heartbeat that arrived whole.
func (w *reference) rowAt(h Handle) Stamp {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.at, b.at) }).at
}

// held returns the fact by which the lease of h ends last.
func (w *reference) held(h Handle) fact {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.renewed+a.grace, b.renewed+b.grace) })
}

// latest returns when h sent its latest known heartbeat.
func (w *reference) latest(h Handle) Stamp {
	return slices.MaxFunc(w.facts[h], func(a, b fact) int { return cmp.Compare(a.renewed, b.renewed) }).renewed
}

// state returns the state in the latest heartbeat of h that arrived whole.
func (w *reference) state(h Handle) State {
	if len(w.facts[h]) == 0 {
		return 0
	}
	return slices.MaxFunc(w.facts[h], func(a, b fact) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.state, b.state))
	}).state
}

// live returns the records of the live nodes: of each id, the last incarnation that sent
// a heartbeat, unless that heartbeat is a leave message or the lease has ended; a heartbeat later than the
// last one by more than the rounding of two ages revives it.
func (w *reference) live() (live []*Record) {
	last := make(map[NodeID]*Record)
	for h, records := range w.records {
		r := slices.MaxFunc(records, func(a, b *Record) int { return cmp.Compare(a.Version, b.Version) })
		if cur := last[r.ID]; w.facts[h] != nil && (cur == nil || r.Incarnation > cur.Incarnation) {
			last[r.ID] = r
		}
	}
	for _, r := range last {
		ended, ok := w.ended[r.Handle()]
		if w.state(r.Handle()) != Left && (!ok || w.latest(r.Handle())-ended > 2*stamps(simParams.TTL)/16) {
			live = append(live, r)
		}
	}
	return live
}

func (w *reference) lines() (lines []string) {
	for _, r := range w.live() {
		lines = append(lines, line(r, w.state(r.Handle()), w.latest(r.Handle())))
	}
	slices.Sort(lines)
	return lines
}

func line(r *Record, state State, at Stamp) string {
	return fmt.Sprintf("%s/%d v%d %v at %d", r.ID, r.Incarnation, r.Version, state, at)
}

// Real Sets on a faulty network: at every tick each view equals that of its reference model, and no
// lease is younger than its node's latest heartbeat. The network loses, doubles, delays,
// reorders and replays messages. Once the network is healthy, all views are
// equal and correct.
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

// All traffic of a cluster, sent again minutes after half of its nodes left and the others
// forgot them, changes nothing, and a newcomer joins while it arrives.
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
