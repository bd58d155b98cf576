package handoff

import (
	"cmp"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

type packet struct {
	from, to     lease.Handle
	answer       bool
	number, view uint64
	first, last  uint8 // wants and demands, or free and runs: a bit a partition
}

// send adds a packet to what may be delivered at any time.
func (w *world) send(p packet) {
	if i, known := slices.BinarySearchFunc(w.sent, p, packet.compare); !known {
		w.sent = slices.Insert(slices.Clone(w.sent), i, p)
	}
}

// forget drops packets that the code ignores whenever they are delivered: asks, and "free",
// of an acquisition that is over. Demands, and "runs", may still do something. Worlds with
// all messages show that the code does ignore them.
func (w *world) forget() {
	over := func(p packet) bool {
		asker := p.from
		if p.answer {
			asker = p.to
		}
		return p.last == 0 && !w.nodes[placeOf(asker)].counts(asker, p.number, p.first)
	}
	if !w.all && slices.ContainsFunc(w.sent, over) {
		w.sent = slices.DeleteFunc(slices.Clone(w.sent), over)
	}
}

// counts reports whether an answer to an ask of n may count now; if not, it never will.
func (n *node) counts(asker lease.Handle, number uint64, list uint8) bool {
	if n.life != asker {
		return false
	}
	for _, p := range partitions(list) {
		if t := n.parts[p]; t != nil && t.waits() && t.since <= number {
			return true
		}
	}
	return false
}

// receive lets n receive a packet.
func (w *world) receive(n *node, p packet) {
	if p.answer {
		a := Answer{p.to, p.number, partitions(p.first), partitions(p.last)}
		if w.fault == anyNumber {
			a.Number = n.number
		}
		if w.fault == anyLife {
			a.To = n.life
		}
		n.ReceiveAnswer(p.from, a)
		return
	}
	a := Ask{p.to, p.number, p.view, partitions(p.first), partitions(p.last)}
	if w.fault == anyView {
		a.View = n.view
	}
	n.ReceiveAsk(p.from, a)
	for _, wanted := range a.Wants {
		if t := n.parts[wanted]; w.fault == yields && t != nil && t.waits() {
			n.answer(Answer{To: p.from, Number: a.Number, Free: []placement.Partition{wanted}})
		}
	}
}

func bits(list []placement.Partition) (b uint8) {
	for _, p := range list {
		b |= 1 << p
	}
	return b
}

func partitions(b uint8) (list []placement.Partition) {
	for p := placement.Partition(0); b>>p != 0; p++ {
		if b>>p&1 != 0 {
			list = append(list, p)
		}
	}
	return list
}

func (p packet) compare(o packet) int {
	order := 0
	if p.answer != o.answer {
		order = 1
		if o.answer {
			order = -1
		}
	}
	return cmp.Or(cmp.Compare(p.from, o.from), cmp.Compare(p.to, o.to), order, cmp.Compare(p.number, o.number),
		cmp.Compare(p.view, o.view), cmp.Compare(p.first, o.first), cmp.Compare(p.last, o.last))
}
