package presence

import (
	"hash/maphash"
	"time"
)

// maxGone is the maximum number of departures that are kept while the store does not answer. Participants of
// further departures become stale in the store, as after a crash.
const maxGone = 1 << 16

// attendance records the participants that joined via this node and the changes that the store may not have
// received. It has no lock, clock or store.
//
// A heartbeat interval is divided into slots. Each room is renewed in one slot, so that a node with many
// rooms spreads its heartbeats over the interval.
type attendance struct {
	seed  maphash.Seed
	slots []map[Room]map[string]*attendee
	owed  map[*attendee]struct{} // attendees of which the store may have another state
	here  int
	gone  int
}

type attendee struct {
	Participant
	gone  bool      // the participant has left, and the store may not know
	since time.Time // when it left

	// writes is the number of writes in progress. If two writes have overlapped, overlap is true, because the
	// node does not know which of them the store performed last.
	writes  int
	overlap bool
}

// write is a pending write of an attendee's state. gone is the state when the write began.
type write struct {
	*attendee
	gone bool
}

func newAttendance(slots int) *attendance {
	return &attendance{seed: maphash.MakeSeed(), slots: make([]map[Room]map[string]*attendee, slots)}
}

// join marks p as present and begins the write that adds p to the store.
func (t *attendance) join(p Participant) write {
	a, ok := t.attendee(p)
	if a.gone || !ok {
		t.here++
	}
	if a.gone {
		t.gone--
	}
	a.gone = false
	return t.begin(a)
}

// leave marks p as gone, even if p was not present, and begins the write that removes p from the store.
func (t *attendance) leave(p Participant, now time.Time) write {
	a, ok := t.attendee(p)
	if ok && !a.gone {
		t.here--
	}
	if !a.gone {
		t.gone++
	}
	a.gone, a.since = true, now
	return t.begin(a)
}

func (t *attendance) begin(a *attendee) write {
	a.writes++
	a.overlap = a.overlap || a.writes > 1
	return write{a, a.gone}
}

// end records the result of a write. end forgets a departure once the store has recorded the departure.
func (t *attendance) end(w write, err error) {
	a := w.attendee
	a.writes--
	settled := err == nil && a.writes == 0 && !a.overlap
	switch {
	case settled && a.gone:
		t.forget(a)
	case settled:
		t.settle(a)
	case a.gone && a.writes == 0 && t.gone > maxGone:
		t.forget(a)
	default:
		if t.owed == nil {
			t.owed = make(map[*attendee]struct{})
		}
		t.owed[a] = struct{}{}
	}
	if a.writes == 0 {
		a.overlap = false
	}
}

// due begins the writes that renew the participants in the slots first to last-1. due skips participants with
// a write in progress and participants with an owed write. debts returns the owed writes.
func (t *attendance) due(first, last int64) []write {
	var writes []write
	slots := int64(len(t.slots))
	for s := max(first, last-slots); s < last; s++ {
		for _, room := range t.slots[s%slots] {
			for _, a := range room {
				if _, owed := t.owed[a]; !owed && !a.gone && a.writes == 0 {
					writes = append(writes, t.begin(a))
				}
			}
		}
	}
	return writes
}

// debts begins the writes that are owed. debts forgets departures from before the time stale. Those
// participants have sent no heartbeats since, so they are stale in the store too.
func (t *attendance) debts(stale time.Time) []write {
	var writes []write
	for a := range t.owed {
		switch {
		case a.writes > 0:
		case a.gone && a.since.Before(stale):
			t.forget(a)
		default:
			writes = append(writes, t.begin(a))
		}
	}
	return writes
}

// all returns the present participants and the departed participants that the store may still have.
func (t *attendance) all() []Participant {
	all := make([]Participant, 0, t.here+t.gone)
	for _, rooms := range t.slots {
		for _, room := range rooms {
			for _, a := range room {
				all = append(all, a.Participant)
			}
		}
	}
	return all
}

func (t *attendance) attendee(p Participant) (a *attendee, known bool) {
	slot := t.slot(p)
	if t.slots[slot] == nil {
		t.slots[slot] = make(map[Room]map[string]*attendee)
	}
	room := t.slots[slot][p.Room]
	if room == nil {
		room = make(map[string]*attendee)
		t.slots[slot][p.Room] = room
	}
	if a = room[p.Name]; a != nil {
		return a, true
	}
	a = &attendee{Participant: p}
	room[p.Name] = a
	return a, false
}

func (t *attendance) settle(a *attendee) {
	if delete(t.owed, a); len(t.owed) == 0 {
		t.owed = nil
	}
}

// forget frees the memory of a departure. forget deletes empty maps, because a map never shrinks.
func (t *attendance) forget(a *attendee) {
	t.gone--
	t.settle(a)
	slot := t.slot(a.Participant)
	if delete(t.slots[slot][a.Room], a.Name); len(t.slots[slot][a.Room]) > 0 {
		return
	}
	if delete(t.slots[slot], a.Room); len(t.slots[slot]) == 0 {
		t.slots[slot] = nil
	}
}

func (t *attendance) slot(p Participant) int {
	return int(maphash.String(t.seed, p.Room.Name) % uint64(len(t.slots)))
}
