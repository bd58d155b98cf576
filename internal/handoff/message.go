package handoff

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Ask is a message from a node that waits for partitions. The node repeats it until To has answered "free"
// for all of them.
type Ask struct {
	To     lease.Handle
	Number uint64 // greater than in all asks from before the latest acquisition
	View   uint64 // identifies the live members that the sender knows, including itself

	Wants   []placement.Partition // partitions that To may be running
	Demands []placement.Partition // partitions that only To prevents from running; To must end its runs
}

// Answer is the answer to an [Ask], or an unsolicited offer.
type Answer struct {
	To     lease.Handle
	Number uint64 // number of the ask; 0 = an offer

	Free []placement.Partition // the sender neither runs nor owns them
	Runs []placement.Partition // the sender runs them until they are demanded
}

// viewOf returns a hash that identifies a set of live members.
func viewOf(members []lease.Handle) uint64 {
	members = slices.Sorted(slices.Values(members))
	b := make([]byte, 0, 8*len(members))
	for _, m := range members {
		b = binary.BigEndian.AppendUint64(b, uint64(m))
	}
	return xxhash.Sum64(b)
}

// ReceiveAsk answers an ask from another member.
func (h *Handoff) ReceiveAsk(from lease.Handle, a Ask) {
	if a.View != h.view {
		return
	}
	answer := Answer{To: from, Number: a.Number}
	for _, p := range a.Wants {
		switch t := h.parts[p]; {
		case t == nil:
			answer.Free = append(answer.Free, p)
		case !t.wanted:
			answer.Runs = append(answer.Runs, p)
		}
	}
	for _, p := range a.Demands {
		switch t := h.parts[p]; {
		case t == nil:
			answer.Free = append(answer.Free, p)
		case !t.wanted:
			t.heir = heir{from, a.Number}
			h.stop(p, t)
		}
	}
	h.answer(answer)
}

// ReceiveAnswer handles an answer from another member.
func (h *Handoff) ReceiveAnswer(from lease.Handle, a Answer) {
	if _, live := slices.BinarySearch(h.others, from); a.To != h.self || !live {
		return // meant for an earlier incarnation, or from an unknown process
	}
	count := func(p placement.Partition, free bool) {
		switch t := h.parts[p]; {
		case t == nil || !t.wanted:
		case !t.granted && a.Number >= t.since:
			t.answers[from] = free
			h.decide(p, t)
		case t.granted && !free:
			h.demand(p, from)
		}
	}
	for _, p := range a.Free {
		count(p, true)
	}
	for _, p := range a.Runs {
		count(p, false)
	}
}

// askAll asks the members that have not answered for p. The members that run p are asked by decide.
func (h *Handoff) askAll(p placement.Partition, t *hosting) {
	if !t.waits() {
		return
	}
	for _, m := range h.others {
		if _, known := t.answers[m]; !known {
			a := h.ask(m)
			a.Wants = append(a.Wants, p)
		}
	}
}

// AskRunner asks a member whether it runs partitions that the table assigns to another member. The member's
// answer is only used for lookups, and does not affect runs.
func (h *Handoff) AskRunner(m lease.Handle, partitions []placement.Partition) {
	a := h.ask(m)
	a.Wants = append(a.Wants, partitions...)
}

func (h *Handoff) demand(p placement.Partition, of lease.Handle) {
	a := h.ask(of)
	a.Demands = append(a.Demands, p)
}

// ask returns the ask that will be sent to a member, and creates it if necessary.
func (h *Handoff) ask(to lease.Handle) *Ask {
	a := h.asks[to]
	if a == nil {
		a = &Ask{To: to}
		h.asks[to] = a
	}
	a.Number, a.View = h.number, h.view
	return a
}

// answer sends an answer, and combines it with other answers to the same ask.
func (h *Handoff) answer(a Answer) {
	same := func(b Answer) bool { return b.To == a.To && b.Number == a.Number }
	if i := slices.IndexFunc(h.out.Answers, same); i >= 0 {
		b := &h.out.Answers[i]
		b.Free, b.Runs = append(b.Free, a.Free...), append(b.Runs, a.Runs...)
	} else if len(a.Free)+len(a.Runs) > 0 {
		h.out.Answers = append(h.out.Answers, a)
	}
}
