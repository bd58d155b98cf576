package cluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// difference describes what changed between two snapshots. record converts it to events.
type difference struct {
	at     time.Time
	self   lease.NodeID
	old, s *Snapshot
	gone   []Lost
	fenced string // why this node was last fenced
	ended  bool   // this agent has stopped
	events []Event
}

func (d *difference) add(e Event) {
	e.At = d.at
	d.events = append(d.events, e)
}

// record adds the events of a new snapshot.
func (h *history) record(d difference) {
	var b events.Batch
	if d.old.State != nil && d.s.State != d.old.State {
		b = events.Diff(d.old.State, d.s.State)
	}
	d.membership(&b)
	for i := range d.gone {
		delete(h.fenced, d.gone[i].ID)
	}
	h.states(&d)
	d.cordons()
	h.life(&d)
	if moved := d.moves(b.Moved); moved.Moved > 0 {
		h.moved += moved.Moved
		d.add(moved)
	}
	if len(d.events) > 0 {
		h.add(d.events)
	}
}

// membership adds an event for each other member that was lost, joined or returned.
func (d *difference) membership(b *events.Batch) {
	for i := range d.gone {
		if l := &d.gone[i]; l.ID != d.self {
			d.add(Event{Kind: EventLost, Member: l.ID, Incarnation: l.Incarnation, Reason: string(l.Reason), Partitions: l.Partitions})
		}
	}
	if len(b.Joined) == 0 {
		return
	}
	lost := make(map[lease.NodeID]bool)
	for _, l := range d.old.lost {
		lost[l.ID] = true
	}
	for _, id := range b.Joined {
		e := Event{Kind: EventJoined, Member: id}
		if m, ok := d.s.Member(id); ok {
			e.Incarnation, e.Addr = m.Incarnation, m.Addr
		}
		if _, replaced := slices.BinarySearch(b.Left, id); replaced {
			e.Kind, e.Reason = EventReturned, string(b.Reasons[id])
			e.OldAddr = d.old.addrBefore(&e)
		} else if lost[id] {
			e.Kind = EventReturned
		}
		if id != d.self {
			d.add(e)
		}
	}
}

// addrBefore returns the address of the incarnation that the member of e replaced, or "" if the address is the same or
// unknown. If the members changed before the state did, the incarnation is in s.parting.
func (s *Snapshot) addrBefore(e *Event) string {
	for _, members := range [][]*Member{s.parting, s.Members} {
		m := next(&members, e.Member)
		if m != nil && m.Incarnation != e.Incarnation && m.Addr != e.Addr && e.Reason == string(lease.Replaced) {
			return m.Addr
		}
	}
	return ""
}

// states adds events for what members announce about themselves: that they are fenced, that they drain, or that they
// have a new weight.
func (h *history) states(d *difference) {
	was := d.old.Members
	for _, m := range d.s.Members {
		before := next(&was, m.ID)
		if before != nil && before.Incarnation != m.Incarnation {
			delete(h.fenced, m.ID)
			before = nil
		}
		if m.ID != d.self {
			h.followFence(d, before, m)
		}
		if before == nil {
			continue
		}
		drained, drains := before.drains(), m.drains()
		switch {
		case drains && !drained:
			d.add(d.draining(m))
		case drained && (m.State == lease.Active || m.cordoned):
			d.add(Event{Kind: EventUndrained, Member: m.ID})
		}
		if m.Weight != before.Weight {
			d.add(Event{Kind: EventWeight, Member: m.ID, Weight: m.Weight, OldWeight: before.Weight})
		}
	}
}

// followFence adds an event when another member is fenced, and another event when it takes part again.
func (h *history) followFence(d *difference, before, m *Member) {
	_, fenced := h.fenced[m.ID]
	switch settles := m.State == lease.Settling; {
	case fenced && !settles:
		delete(h.fenced, m.ID)
		if m.State == lease.Active { // a draining member does not take part yet
			d.add(Event{Kind: EventReady, Member: m.ID})
		}
	case settles && !fenced && before != nil && before.State != lease.Settling:
		h.fenced[m.ID] = struct{}{}
		d.add(Event{Kind: EventFenced, Member: m.ID})
	}
}

// drains reports whether a member drains for any reason other than a cordon.
func (m *Member) drains() bool { return m.State == lease.Draining && !m.cordoned }

func (d *difference) draining(m *Member) Event {
	e := Event{Kind: EventDraining, Member: m.ID}
	switch {
	case m.ID == d.self:
		e.becauseOf(d.s, CauseUnhealthy, CauseFlapping, CauseDraining)
	case m.Unhealthy:
		e.Reason = string(CauseUnhealthy)
	case !m.FlappingUntil.IsZero():
		e.Reason = string(CauseFlapping)
	}
	return e
}

// becauseOf sets the reason of an event to the first hold of s with one of the causes.
func (e *Event) becauseOf(s *Snapshot, causes ...Cause) {
	h, _ := s.Held(causes...)
	e.Reason, e.Why = string(h.Cause), fmt.Sprintf("%.200s", h.Reason) // limit the length, because the reason can be very long
}

// cordons adds an event for each cordon that began or ended.
func (d *difference) cordons() {
	for _, c := range d.s.Cordons {
		if _, was := d.old.CordonOf(c.ID); !was {
			d.add(Event{Kind: EventCordoned, Member: c.ID, Why: c.Reason})
		}
	}
	for _, c := range d.old.Cordons {
		if _, is := d.s.CordonOf(c.ID); !is {
			d.add(Event{Kind: EventUncordoned, Member: c.ID})
		}
	}
}

// life adds the events of this node itself.
func (h *history) life(d *difference) {
	old, s := d.old, d.s
	add := func(e Event) {
		e.Member = d.self
		d.add(e)
	}
	if len(h.all.Events) == 0 {
		add(Event{Kind: EventStarted, Incarnation: s.Self.Incarnation})
	}
	if s.Stats.Fences > old.Stats.Fences {
		h.ready = false
		add(Event{Kind: EventFenced, Why: d.fenced, Partitions: old.owned()})
	}
	switch {
	case s.Phase == PhaseIsolated && old.Phase != PhaseIsolated:
		h.ready = false
		e := Event{Kind: EventIsolated, Partitions: old.owned()}
		e.becauseOf(s, CauseDuplicate, CauseIsolated)
		add(e)
	case s.Phase == PhaseActive && !h.ready && s.State != old.State:
		h.ready = true
		add(Event{Kind: EventReady, Members: len(s.Members), Partitions: len(s.State.Table.Owned(d.self))})
	case s.Phase == PhaseOver && old.Phase != PhaseOver:
		add(Event{Kind: EventStopped, Reason: d.end()})
	}
}

// end returns how this agent stopped. An agent that leaves sends a leave message first.
func (d *difference) end() string {
	if d.ended {
		return "closed"
	}
	return "left"
}

// owned returns how many partitions this node owns.
func (s *Snapshot) owned() (n int) {
	for p := range placement.Partition(s.Table.Partitions()) {
		if s.owns(p) {
			n++
		}
	}
	return n
}

// moves returns the event for a change of the table.
func (d *difference) moves(moved []events.Move) Event {
	e := Event{Kind: EventMoved, Moved: len(moved)}
	for _, m := range moved {
		switch d.self {
		case m.From:
			e.Lost++
		case m.To:
			e.Gained++
		}
	}
	return e
}
