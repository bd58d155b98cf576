package affinity

import (
	"hash/maphash"
	"time"
)

// maxGone bounds the departures that are kept to be told to a store that does not
// answer. Beyond it the store finds out as it does after a crash.
const maxGone = 1 << 16

// attendance is who is in which room through this node, and what of that the
// store may not know yet. It knows no lock, clock or store.
//
// A heartbeat interval has as many parts as there are slots, and each room is
// beaten in one of them, so that a node of many rooms does not send all at once.
type attendance struct {
	seed  maphash.Seed
	slots []map[RoomRef]map[string]*attendee
	owed  map[*attendee]struct{} // where the store may hold something else
	here  int
	gone  int
}

type attendee struct {
	Seat
	gone  bool      // has left, which the store does not know yet
	since time.Time // of gone

	// Writes to the store that are under way. Should two have overlapped, nobody
	// knows which one the store carried out last.
	writes  int
	overlap bool
}

// write is a write to the store of where an attendee stood when it began.
type write struct {
	*attendee
	gone bool
}

func newAttendance(slots int) *attendance {
	return &attendance{seed: maphash.MakeSeed(), slots: make([]map[RoomRef]map[string]*attendee, slots)}
}

// join makes seat one of those here, and begins to write it.
func (t *attendance) join(seat Seat) write {
	a, ok := t.attendee(seat)
	if a.gone || !ok {
		t.here++
	}
	if a.gone {
		t.gone--
	}
	a.gone = false
	return t.begin(a)
}

// leave makes seat one that is gone, whether or not it was here, and begins to
// write that.
func (t *attendance) leave(seat Seat, now time.Time) write {
	a, ok := t.attendee(seat)
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

// end takes note of how a write ended, and forgets those who are gone once the
// store knows.
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

// due begins the writes for everybody here in the slots from first to before
// last. Those who are being written now, or are owed, have their own turn.
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

// debts begins the writes that are owed. Who has been gone since before stale is
// forgotten: nobody has beaten for them, so the store knows by itself.
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

// all returns the seats of everybody who is here or gone without the store
// knowing.
func (t *attendance) all() []Seat {
	seats := make([]Seat, 0, t.here+t.gone)
	for _, rooms := range t.slots {
		for _, room := range rooms {
			for _, a := range room {
				seats = append(seats, a.Seat)
			}
		}
	}
	return seats
}

func (t *attendance) attendee(seat Seat) (a *attendee, known bool) {
	slot := t.slot(seat)
	if t.slots[slot] == nil {
		t.slots[slot] = make(map[RoomRef]map[string]*attendee)
	}
	room := t.slots[slot][seat.Ref()]
	if room == nil {
		room = make(map[string]*attendee)
		t.slots[slot][seat.Ref()] = room
	}
	if a = room[seat.Participant]; a != nil {
		return a, true
	}
	a = &attendee{Seat: seat}
	room[seat.Participant] = a
	return a, false
}

func (t *attendance) settle(a *attendee) {
	if delete(t.owed, a); len(t.owed) == 0 {
		t.owed = nil
	}
}

// forget frees all that is kept for somebody who is gone. A map keeps the memory
// that it once needed, so those that are empty are given up.
func (t *attendance) forget(a *attendee) {
	t.gone--
	t.settle(a)
	slot, ref := t.slot(a.Seat), a.Ref()
	if delete(t.slots[slot][ref], a.Participant); len(t.slots[slot][ref]) > 0 {
		return
	}
	if delete(t.slots[slot], ref); len(t.slots[slot]) == 0 {
		t.slots[slot] = nil
	}
}

func (t *attendance) slot(seat Seat) int {
	return int(maphash.String(t.seed, seat.Room) % uint64(len(t.slots)))
}
