package handoff

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const nodes = 3

// limits specifies how often some events may happen. Without a limit, messages may be lost, duplicated and reordered,
// and runs may take any time.
type limits struct {
	tables  int // changes of one node's table, to any owner
	crashes int
	starts  int // starts of processes after the start of the world
	lapses  int // pauses that are longer than a lease
	overdue int // waits that exceed the bound
	returns int // runs that return by themselves
}

// setup contains what does not change in a world.
type setup struct {
	limits
	partitions int
	known      int  // nodes that run, and know each other, at the start
	all        bool // messages that the code ignores are kept
	fault      fault
	rested     map[string]bool // states of the nodes for which settles holds
}

// fault makes the world violate one assumption of the code, or one part of the rule.
type fault string

const (
	early       fault = "answers free before the run has returned"
	anyNumber   fault = "counts answers to any ask"
	yields      fault = "answers free while it waits itself"
	formerOwner fault = "waits for the former owner alone"
	anyView     fault = "answers members that know other members"
	anyLife     fault = "counts answers to the former incarnation"
	noLease     fault = "takes a member for gone before its lease has ended"
	lateNews    fault = "takes members for gone before it hears of others"
	keepRights  fault = "keeps its rights when its lease ends"
	askOnce     fault = "asks once"
)

// world is one state of the model. It contains three nodes and all messages that were ever sent. A message may be
// delivered at any later time, any number of times, or never. So the model needs no separate actions for loss,
// duplication and reordering.
type world struct {
	*setup
	nodes [nodes]*node // never changed once they are part of a world
	sent  []packet     // sorted
	used  limits
	lives [nodes]int // processes that have started

	cancelled bool // a node cancelled a run although its own table names it
}

// node is one process, or an empty place.
type node struct {
	*Handoff
	life   lease.Handle // 0 = no process
	lapsed bool         // paused for longer than its lease
	table  []int8       // by partition: the place of the owner; -1 = none
	runs   []handler
	// missing contains, for each partition, a bit for each node that had not answered when the bound passed.
	missing []uint8
	key     string
}

// handler is a run of a partition, as the world sees it.
type handler struct {
	state   run
	excused uint8 // a bit for each node that had not answered when the bound passed; all bits = the lease has ended
}

func lifeOf(place, n int) lease.Handle { return lease.Handle(8*(place+1) + n) }
func placeOf(life lease.Handle) int    { return int(life)/8 - 1 }

func newWorld(s *setup) *world {
	w := &world{setup: s}
	var lives []lease.Handle
	for i := range s.known {
		lives = append(lives, lifeOf(i, 0))
	}
	for i := range w.nodes {
		w.nodes[i] = &node{}
		if i < s.known {
			w.nodes[i] = s.process(lives[i], lives)
			w.lives[i] = 1
		}
	}
	return w
}

// process returns a process that knows some members and has no table yet.
func (s *setup) process(life lease.Handle, members []lease.Handle) *node {
	n := &node{
		Handoff: New(), life: life, table: make([]int8, s.partitions),
		runs: make([]handler, s.partitions), missing: make([]uint8, s.partitions),
	}
	for p := range n.table {
		n.table[p] = -1
	}
	n.setMembers(without(members, life))
	n.key = n.describe()
	return n
}

func without(lives []lease.Handle, life lease.Handle) []lease.Handle {
	return slices.DeleteFunc(slices.Clone(lives), func(l lease.Handle) bool { return l == life })
}

// step is one action.
type step struct {
	what  string
	place int
	other lease.Handle
	p     placement.Partition
	owner int8
	packet
}

func name(place int) string { return string(rune('a' + place)) }

func life(h lease.Handle) string { return fmt.Sprintf("%s#%d", name(placeOf(h)), h%8) }

func (s step) String() string {
	switch {
	case s.from != 0 && s.answer:
		return fmt.Sprintf("%s receives the answer of %s to ask %d: free %b, runs %b", life(s.to), life(s.from), s.number, s.first, s.last)
	case s.from != 0:
		return fmt.Sprintf("%s receives ask %d of %s: wants %b, demands %b", life(s.to), s.number, life(s.from), s.first, s.last)
	case s.what == "table":
		return fmt.Sprintf("the table of %s names %s for %d", name(s.place), name(int(s.owner)), s.p)
	case s.other != 0:
		return fmt.Sprintf("%s %s %s", name(s.place), s.what, life(s.other))
	}
	if strings.HasSuffix(s.what, " ") {
		return fmt.Sprintf("%s %s%d", name(s.place), s.what, s.p)
	}
	return name(s.place) + " " + s.what
}

// change returns a copy of w in which the function do has changed the node at a place. The work that results from the
// change has been carried out.
func (w *world) change(place int, do func(*world, *node)) *world {
	next := *w
	n := w.nodes[place].clone()
	next.nodes[place] = n
	do(&next, n)
	next.carryOut(n)
	next.forget()
	return &next
}

func (n *node) clone() *node {
	c := *n
	h := *n.Handoff
	h.parts = make(map[placement.Partition]*hosting, len(n.parts))
	for p, t := range n.parts {
		t := *t
		t.answers = maps.Clone(t.answers)
		h.parts[p] = &t
	}
	h.asks = make(map[lease.Handle]*Ask)
	c.Handoff, c.table, c.runs, c.missing = &h, slices.Clone(n.table), slices.Clone(n.runs), slices.Clone(n.missing)
	return &c
}

// carryOut carries out the work that n returns from Ready.
func (w *world) carryOut(n *node) {
	for again := true; again; {
		r := n.Ready()
		for _, p := range r.Stop {
			w.cancelled = w.cancelled || int(n.table[p]) == placeOf(n.life)
			n.runs[p].state = stopping
			if w.fault == early {
				n.Returned(p)
			}
		}
		for _, p := range r.Start {
			n.runs[p] = handler{running, n.missing[p]}
		}
		for _, a := range r.Asks {
			w.send(packet{n.life, a.To, false, a.Number, a.View, bits(a.Wants), bits(a.Demands)})
		}
		for _, a := range r.Answers {
			w.send(packet{n.life, a.To, true, a.Number, 0, bits(a.Free), bits(a.Runs)})
		}
		again = len(r.Stop) > 0
	}
	for p := range n.missing {
		if t := n.parts[placement.Partition(p)]; t == nil || !t.granted {
			n.missing[p] = 0
		}
	}
	n.key = n.describe()
}

// setTable passes the table of n to its Handoff.
func (n *node) setTable() {
	owners := make([]lease.Handle, len(n.table))
	for p, place := range n.table {
		for _, life := range n.members() {
			if placeOf(life) == int(place) {
				owners[p] = life
			}
		}
	}
	n.SetTable(owners)
}

func (n *node) setMembers(others []lease.Handle) {
	n.SetMembers(n.life, others)
	n.setTable()
}

// members returns the members that n knows, including n itself.
func (n *node) members() []lease.Handle { return append(slices.Clone(n.others), n.life) }

func (n *node) knows(life lease.Handle) bool { return slices.Contains(n.others, life) }

// describe returns everything on which the future of n depends.
func (n *node) describe() string {
	b := []byte{byte(n.life), digit(n.lapsed)}
	if n.life == 0 {
		return string(b)
	}
	b = append(b, byte(n.number), byte(len(n.others)))
	for _, o := range n.others {
		b = append(b, byte(o))
	}
	for p := range n.table {
		r := n.runs[p]
		b = append(b, byte(n.table[p]), byte(r.state), r.excused, n.missing[p])
		t := n.parts[placement.Partition(p)]
		if t == nil {
			b = append(b, 0xff)
			continue
		}
		b = append(b, digit(t.wanted), digit(t.granted), byte(t.since), byte(t.run), byte(t.heir.to), byte(t.heir.number))
		for _, o := range n.others {
			free, known := t.answers[o]
			b = append(b, digit(known)+digit(free))
		}
	}
	return string(b)
}

func digit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func (w *world) key() string {
	b := make([]byte, 0, 128)
	for _, n := range w.nodes {
		b = append(append(b, n.key...), '|')
	}
	u := w.used
	for _, v := range []int{w.lives[0], w.lives[1], w.lives[2], u.tables, u.starts, u.lapses, u.crashes, u.overdue, u.returns} {
		b = append(b, byte(v))
	}
	for _, p := range w.sent {
		b = append(b, byte(p.from), byte(p.to), digit(p.answer), byte(p.number), p.first, p.last)
		b = binary.BigEndian.AppendUint32(b, uint32(p.view))
	}
	return string(b)
}

type packet struct {
	from, to     lease.Handle
	answer       bool
	number, view uint64
	first, last  uint8 // wants and demands, or free and runs; a bit for each partition
}

// send adds a packet, which may be delivered at any later time.
func (w *world) send(p packet) {
	if i, known := slices.BinarySearchFunc(w.sent, p, packet.compare); !known {
		w.sent = slices.Insert(slices.Clone(w.sent), i, p)
	}
}

// forget drops packets that the code ignores at any later time. These are the asks and the "free" answers of an
// acquisition that is over. Demands and "runs" answers may still have an effect. The worlds that keep all messages show
// that the code does ignore the dropped packets.
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

// counts reports whether an answer to an ask of n may still count. If it does not count now, it never will.
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
