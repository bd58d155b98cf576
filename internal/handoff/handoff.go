package handoff

import (
	"maps"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Handoff is the state of the handoff protocol on one node. It is not safe for concurrent use.
type Handoff struct {
	self   lease.Handle
	others []lease.Handle // the other live members
	view   uint64         // identifies this node and the others
	number uint64         // number of the latest acquisition
	owners []lease.Handle // by partition, in the table of this node
	parts  map[placement.Partition]*hosting
	asks   map[lease.Handle]*Ask // asks to be sent
	out    Ready
}

// Ready is the work that the caller must carry out, in the order of the fields.
type Ready struct {
	Stop    []placement.Partition // cancel the runs, and report Returned
	Start   []placement.Partition
	Asks    []Ask
	Answers []Answer
}

// hosting is the state of a partition on this node. A hosting exists from the time when the table assigns the
// partition to this node until this node has given it up.
type hosting struct {
	wanted  bool   // the table names this node
	granted bool   // all other members have answered, and this node has not given the partition up since then
	since   uint64 // answers to earlier asks are ignored
	answers map[lease.Handle]bool
	run     run
	heir    heir
}

// heir is the member that demanded the end of a run.
type heir struct {
	to     lease.Handle
	number uint64
}

type run uint8

const (
	idle     run = iota
	running      // even if the table names another node
	stopping     // cancelled but not returned
	finished     // returned by itself; not restarted in this hosting
)

// New returns the state of a node that has no partitions and knows no other members.
func New() *Handoff {
	return &Handoff{parts: make(map[placement.Partition]*hosting), asks: make(map[lease.Handle]*Ask)}
}

// SetMembers sets this node's incarnation and the other live members. Members that have lost their lease must
// not be included.
func (h *Handoff) SetMembers(self lease.Handle, others []lease.Handle) {
	h.self, h.others = self, slices.Sorted(slices.Values(others))
	h.view = viewOf(append([]lease.Handle{self}, others...))
	for _, p := range h.partitions() {
		h.decide(p, h.parts[p])
	}
}

// SetTable sets the owners of all partitions according to this node's table. Each owner is an incarnation, or
// 0 if the partition has no owner. The caller must also call SetTable after SetMembers if an owner has
// restarted.
func (h *Handoff) SetTable(owners []lease.Handle) {
	h.owners = owners
	for _, p := range h.partitions() {
		t := h.parts[p]
		if h.owner(p) == 0 {
			h.stop(p, t) // no node will demand the partition
		}
		if t.wanted && h.owner(p) != h.self {
			t.wanted = false
			h.giveUp(p, t)
		}
	}
	number := h.number + 1
	for i, owner := range owners {
		p := placement.Partition(i)
		if t := h.parts[p]; owner == h.self && (t == nil || !t.wanted) {
			h.acquire(p, number)
		}
	}
}

// acquire starts to wait for p. If this node has not given p up yet, it keeps its right to run p.
func (h *Handoff) acquire(p placement.Partition, number uint64) {
	t := h.parts[p]
	if t == nil {
		t = new(hosting)
		h.parts[p] = t
	}
	t.wanted = true
	if !t.granted {
		h.number = number
		t.since, t.answers = number, make(map[lease.Handle]bool)
	}
	h.askAll(p, t)
	h.decide(p, t)
}

// owner returns the owner of p in the table of this node, or 0 if there is none.
func (h *Handoff) owner(p placement.Partition) lease.Handle {
	if uint64(p) >= uint64(len(h.owners)) {
		return 0
	}
	return h.owners[p]
}

// Fence immediately ends all runs, and revokes this node's rights to run partitions. Call Fence when the node
// leaves, or when its lease has ended and other nodes no longer wait for it. SetTable acquires the partitions
// again.
func (h *Handoff) Fence() {
	for _, p := range h.partitions() {
		t := h.parts[p]
		t.wanted, t.granted = false, false
		h.stop(p, t)
		h.giveUp(p, t)
	}
}

// Returned reports that the run of p has returned, whether or not it was cancelled.
func (h *Handoff) Returned(p placement.Partition) {
	t := h.parts[p]
	if t == nil {
		return
	}
	switch t.run {
	case running:
		t.run = finished
	case stopping:
		t.run = idle
		h.decide(p, t)
	case idle, finished:
	}
	h.giveUp(p, t)
}

// Overdue reports that p has waited for the maximum time. This node then starts to run p without the missing
// answers, or ends a run that no other node has demanded.
func (h *Handoff) Overdue(p placement.Partition) {
	switch t := h.parts[p]; {
	case t == nil:
	case !t.wanted:
		h.stop(p, t)
	case !t.granted:
		t.granted = true
		h.decide(p, t)
	}
}

// Waiting returns the partitions that wait for other members, in order. These are partitions that this node
// owns but does not run yet, and partitions that it runs until another node demands them. The caller must
// limit how long they wait.
func (h *Handoff) Waiting() (waiting []placement.Partition) {
	for _, p := range h.partitions() {
		if t := h.parts[p]; t.wanted != t.granted {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

// Waits reports whether this node should run p but is still waiting for other members.
func (h *Handoff) Waits(p placement.Partition) bool {
	t := h.parts[p]
	return t != nil && t.waits()
}

// Missing returns the members whose answers this node still needs before it can run p, in order. The result
// includes members that are running p.
func (h *Handoff) Missing(p placement.Partition) (missing []lease.Handle) {
	if t := h.parts[p]; t != nil && t.waits() {
		for _, m := range h.others {
			if !t.answers[m] {
				missing = append(missing, m)
			}
		}
	}
	return missing
}

// Running returns the partitions whose runs have started and have not been stopped, in order.
func (h *Handoff) Running() []placement.Partition { return h.in(running, finished) }

// Holds returns the number of partitions that the table assigns to other nodes, but whose runs on this node
// have not returned.
func (h *Handoff) Holds() (holds int) {
	for _, t := range h.parts {
		if !t.wanted {
			holds++
		}
	}
	return holds
}

// Keeps reports whether the table assigns p to another node, but the run of p on this node has not returned.
func (h *Handoff) Keeps(p placement.Partition) bool {
	t := h.parts[p]
	return t != nil && !t.wanted
}

// Stopping returns the partitions whose runs have been stopped but have not returned.
func (h *Handoff) Stopping() []placement.Partition { return h.in(stopping) }

func (h *Handoff) in(states ...run) (list []placement.Partition) {
	for _, p := range h.partitions() {
		if slices.Contains(states, h.parts[p].run) {
			list = append(list, p)
		}
	}
	return list
}

// Tick repeats the asks that have not been answered. It also offers each kept partition to its owner, because
// the owner may already be running it without knowing about the run here. The owner then demands the
// partition. The caller must call Tick in each round of gossip.
func (h *Handoff) Tick() {
	for _, p := range h.partitions() {
		t := h.parts[p]
		h.askAll(p, t)
		h.decide(p, t)
		if owner := h.owner(p); !t.wanted && t.run == running && owner != 0 {
			h.answer(Answer{To: owner, Runs: []placement.Partition{p}})
		}
	}
}

// Ready returns the work that has accumulated since the last call.
func (h *Handoff) Ready() Ready {
	r := h.out
	for _, to := range slices.Sorted(maps.Keys(h.asks)) {
		r.Asks = append(r.Asks, *h.asks[to])
	}
	clear(h.asks)
	h.out = Ready{}
	return r
}

func (t *hosting) waits() bool { return t.wanted && !t.granted }

// decide starts the run of p if no answer is missing, or demands p if only runs on other members prevent the
// start. While an earlier run of p on this node has not returned, decide waits, because more members that
// must be asked may appear in the meantime.
func (h *Handoff) decide(p placement.Partition, t *hosting) {
	if t.waits() {
		if len(t.answers) < len(h.others) {
			return
		}
		var runners []lease.Handle
		for _, m := range h.others {
			free, known := t.answers[m]
			if !known {
				return
			}
			if !free {
				runners = append(runners, m)
			}
		}
		for _, m := range runners {
			h.demand(p, m)
		}
		t.granted = len(runners) == 0 && t.run != stopping
	}
	if t.wanted && t.granted && t.run == idle {
		t.run, t.heir, t.answers = running, heir{}, nil
		h.out.Start = append(h.out.Start, p)
	}
}

// stop ends a run and this node's right to run the partition, because after a split the node that demands the
// partition may already be running it.
func (h *Handoff) stop(p placement.Partition, t *hosting) {
	if t.run == running {
		t.run, t.granted = stopping, false
		h.out.Stop = append(h.out.Stop, p)
	}
}

// giveUp ends the hosting of a partition that the table assigns to another node, after its run has returned.
func (h *Handoff) giveUp(p placement.Partition, t *hosting) {
	if t.wanted || t.run == running || t.run == stopping {
		return
	}
	delete(h.parts, p)
	if t.heir != (heir{}) {
		h.answer(Answer{To: t.heir.to, Number: t.heir.number, Free: []placement.Partition{p}})
	}
}

// partitions returns the keys of h.parts in ascending order.
func (h *Handoff) partitions() []placement.Partition {
	return slices.Sorted(maps.Keys(h.parts))
}
