package handoff

import (
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// move gives all partitions of w to another node, in all tables.
func (w *world) move(to int) {
	for i, n := range w.nodes {
		w.nodes[i] = n.clone()
		for p := range n.table {
			w.nodes[i].table[p] = int8(to)
		}
		w.nodes[i].setTable()
		w.carryOut(w.nodes[i])
	}
}

func (w *world) state(place int, p placement.Partition) run { return w.nodes[place].runs[p].state }

// TestSlowRun checks that a run that does not return only delays its own partition.
func TestSlowRun(t *testing.T) {
	w := atRest(&setup{partitions: 2, known: 3})
	w.move(1)
	for range 3 {
		w.turn(func(p placement.Partition) bool { return p == 1 }, noNode)
	}
	if w.state(0, 0) != stopping || w.state(1, 0) != idle || w.state(0, 1) != idle || w.state(1, 1) != running {
		t.Errorf("a runs %v, b runs %v", w.nodes[0].runs, w.nodes[1].runs)
	}
}

// TestSilentMember checks that the old owner's run continues while a third member is silent. The wait ends when the
// lease of the silent member ends, or when the bound has passed.
func TestSilentMember(t *testing.T) {
	ends := map[string]func(b *node){
		"lease": func(b *node) { b.setMembers(without(b.others, lifeOf(2, 0))) },
		"bound": func(b *node) { b.Overdue(0) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w := atRest(&setup{partitions: 1, known: 3})
			all := func(placement.Partition) bool { return true }
			w.move(1)
			for range 3 {
				w.turn(all, 2)
			}
			if w.state(0, 0) != running || w.state(1, 0) != idle {
				t.Fatalf("a runs %v, b runs %v", w.nodes[0].runs, w.nodes[1].runs)
			}
			end(w.nodes[1])
			w.carryOut(w.nodes[1])
			a := w.nodes[0]
			if name == "lease" {
				a.setMembers(without(a.others, lifeOf(2, 0)))
			}
			for range 3 {
				w.turn(all, 2)
			}
			if w.state(0, 0) != idle || w.state(1, 0) != running {
				t.Errorf("a runs %v, b runs %v", w.nodes[0].runs, w.nodes[1].runs)
			}
		})
	}
}

// TestEarlyReturn checks that a run that returns by itself is not restarted until the node has lost the partition and
// owns it again.
func TestEarlyReturn(t *testing.T) {
	h := New()
	h.SetMembers(1, nil)
	table := func(owner lease.Handle) int {
		h.SetTable([]lease.Handle{owner})
		h.Tick()
		return len(h.Ready().Start)
	}
	first := table(1)
	h.Returned(0)
	again, lost, regained := table(1), table(0), table(1)
	if first != 1 || again != 0 || lost != 0 || regained != 1 {
		t.Errorf("starts: %d, again %d, lost %d, regained %d", first, again, lost, regained)
	}
}

// TestAtOnce checks that a run starts immediately after the last answer, and does not wait for a round of gossip. After
// a run was stopped, the node must ask again, because after a split the other node may already be running the
// partition.
func TestAtOnce(t *testing.T) {
	h := New()
	h.SetMembers(1, []lease.Handle{2})
	h.SetTable([]lease.Handle{1})
	if r := h.Ready(); len(r.Start) != 0 || len(r.Asks) != 1 {
		t.Errorf("asked: %+v", r)
	}
	h.SetMembers(1, nil)
	if r := h.Ready(); len(r.Start) != 1 {
		t.Errorf("the other member is gone: %+v", r)
	}
	h.SetMembers(1, []lease.Handle{2})
	h.SetTable([]lease.Handle{2})
	h.ReceiveAsk(2, Ask{To: 1, Number: 1, View: h.view, Demands: []placement.Partition{0}})
	if r := h.Ready(); len(r.Stop) != 1 || len(r.Answers) != 0 {
		t.Errorf("demanded: %+v", r)
	}
	h.SetTable([]lease.Handle{1})
	h.Returned(0)
	if r := h.Ready(); len(r.Start) != 0 || len(r.Asks) != 1 || len(r.Answers) != 0 {
		t.Errorf("the run has returned, and the table names the node again: %+v", r)
	}
	h.ReceiveAnswer(2, Answer{To: 1, Number: h.number, Free: []placement.Partition{0}})
	if r := h.Ready(); len(r.Start) != 1 {
		t.Errorf("the other member has answered: %+v", r)
	}
}

// TestOutsiders checks that an answer only counts if a live member sent it to this incarnation.
func TestOutsiders(t *testing.T) {
	h := New()
	h.SetMembers(1, []lease.Handle{2, 3})
	h.SetTable([]lease.Handle{1})
	free := []placement.Partition{0}
	h.ReceiveAnswer(2, Answer{To: 9, Number: 1, Free: free})
	h.ReceiveAnswer(4, Answer{To: 1, Number: 1, Free: free})
	h.ReceiveAnswer(3, Answer{To: 1, Number: 1, Free: free})
	h.SetMembers(1, []lease.Handle{2, 3, 4})
	h.Ready()
	h.Tick()
	if r := h.Ready(); len(r.Asks) != 2 || r.Asks[0].To != 2 || r.Asks[1].To != 4 {
		t.Errorf("asks: %+v, want them to 2 and 4", r.Asks)
	}
}

// TestThousand counts the messages when a node joins 999 others. There are an ask and an answer for each member, and
// two more messages to end the old owner's run.
func TestThousand(t *testing.T) {
	const joiner, owner = lease.Handle(1000), lease.Handle(1)
	all := make([]lease.Handle, 1000)
	of := make(map[lease.Handle]*Handoff)
	for i := range all {
		all[i] = lease.Handle(i + 1)
		of[all[i]] = New()
	}
	runs := func(h *Handoff, to lease.Handle) {
		h.SetTable([]lease.Handle{to})
	}
	of[owner].SetMembers(owner, nil)
	runs(of[owner], owner)
	for id, h := range of {
		h.SetMembers(id, without(all, id))
		runs(h, joiner)
	}
	messages, stopped := 0, false
	for busy := true; busy; {
		busy = false
		for _, id := range all {
			r := of[id].Ready()
			for _, a := range r.Asks {
				of[a.To].ReceiveAsk(id, a)
			}
			for _, a := range r.Answers {
				of[a.To].ReceiveAnswer(id, a)
			}
			for _, p := range r.Stop {
				stopped = true
				of[id].Returned(p)
			}
			for range r.Start {
				if id == joiner && !stopped {
					t.Error("the run on the joiner began before the other one ended")
				}
			}
			messages += len(r.Asks) + len(r.Answers)
			busy = busy || len(r.Asks)+len(r.Answers)+len(r.Stop) > 0
		}
	}
	if got := of[joiner].parts[0]; messages != 2*999+2 || got.run != running {
		t.Errorf("%d messages, and the joiner has %+v", messages, got)
	}
}
