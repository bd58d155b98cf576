package affinity

import (
	"sync"
	"time"
)

// hostTable holds the rooms that this node hosts. Its lock also guards the fields of
// the Hostings.
type hostTable struct {
	mu     sync.Mutex
	rooms  map[string]*Hosting
	fences uint64 // of the agent, as of the last fence
	closed error  // why no more hostings are let in; nil while they are
}

func (t *hostTable) get(room string) *Hosting {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rooms[room]
}

// open adds h and returns it, or returns the Hosting that is there already. fences is
// the agent's count: until the table knows of a fence, it lets no hostings in.
func (t *hostTable) open(h *Hosting, fences uint64) (*Hosting, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch there := t.rooms[h.room]; {
	case t.closed != nil:
		return nil, t.closed
	case fences != t.fences:
		return nil, ErrFenced
	case there != nil:
		return there, nil
	}
	if t.rooms == nil {
		t.rooms = make(map[string]*Hosting)
	}
	t.rooms[h.room] = h
	return h, nil
}

// end ends a hosting and reports whether it was still on.
func (t *hostTable) end(h *Hosting, why error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endLocked(h, why)
}

// release ends a hosting on request and returns the pin to delete, unless the hosting
// has ended already.
func (t *hostTable) release(h *Hosting) (pin Pin, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return h.pin, t.endLocked(h, ErrReleased)
}

func (t *hostTable) endLocked(h *Hosting, why error) bool {
	if h.err != nil {
		return false
	}
	h.err = why
	close(h.lost)
	if t.rooms[h.room] == h {
		delete(t.rooms, h.room)
	}
	return true
}

// endAll ends all hostings and returns their number.
func (t *hostTable) endAll(why error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.endAllLocked(why)
}

func (t *hostTable) endAllLocked(why error) int {
	n := len(t.rooms)
	for _, h := range t.rooms {
		t.endLocked(h, why)
	}
	return n
}

// fence ends all hostings if the agent has been fenced since the last call: others
// have taken this node for dead and moved its rooms.
func (t *hostTable) fence(fences uint64) (ended int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fences <= t.fences {
		return 0
	}
	t.fences = fences
	return t.endAllLocked(ErrFenced)
}

// close ends all hostings and returns their number. It lets no more in: a caller of
// open may have looked at the agent before the agent ended.
func (t *hostTable) close(why error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = why
	return t.endAllLocked(why)
}

// names returns the rooms that are hosted.
func (t *hostTable) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.rooms))
	for room := range t.rooms {
		names = append(names, room)
	}
	return names
}

// sizes returns the rooms with their sizes, and leaves Units to the caller.
func (t *hostTable) sizes() []RoomLoad {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rooms []RoomLoad
	for _, h := range t.rooms {
		rooms = append(rooms, RoomLoad{Room: h.room, Size: h.size})
	}
	return rooms
}

func (t *hostTable) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rooms)
}

// due returns the hostings with pins to write, and the hostings with pins to read,
// together at most limit. A pin is written once it is older than age. due
// ends the hostings that were idle for too long.
func (t *hostTable) due(now time.Time, age time.Duration, limit int) (write, read []*Hosting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.rooms {
		switch {
		case h.lapse > 0 && now.Sub(h.touched) > h.lapse:
			t.endLocked(h, ErrLapsed)
		case len(write)+len(read) == limit: // the others are due again the next time
		case h.pin.Epoch == 0 || now.Sub(h.written) > age || h.size > 2*h.pin.Size+1:
			write = append(write, h)
		case !h.verify.IsZero() && now.After(h.verify):
			read = append(read, h)
		}
	}
	return write, read
}

// ops returns an op for each hosting.
func (t *hostTable) ops(hosted []*Hosting, opOf func(*Hosting) Op) []Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	ops := make([]Op, len(hosted))
	for i, h := range hosted {
		ops[i] = opOf(h)
		ops[i].Partition, ops[i].Room = h.partition, h.room
	}
	return ops
}

// verifyAt makes the pin of h due to be read.
func (t *hostTable) verifyAt(h *Hosting, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.verify = at
}

// answer is what the store says of the pin of a hosted room.
type answer struct {
	op         Op
	res        Result
	asked      time.Time
	generation uint64 // of the pin cache, before the store was asked
}

// took reports whether the answer's op pinned the room to its host.
func (a *answer) took(h *Hosting) bool { return a.res.Done && a.op.Set.Incarnation == h.self }

// take records an answer. It reports whether the hosting has ended, and whether this
// node held the room by the store's word, as of the present generation.
func (t *hostTable) take(h *Hosting, a answer, generation uint64) (over, wasSure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over = h.err != nil
	wasSure = h.pin.Epoch != 0 && h.generation == generation
	if a.res.Pin.Incarnation != h.self {
		return over, wasSure
	}
	h.pin.Epoch, h.generation = a.res.Pin.Epoch, a.generation
	if a.took(h) {
		h.written, h.pin.Size = a.asked, a.op.Set.Size
	}
	if h.verify.After(a.asked) {
		return over, wasSure // a read that is still to come stays: see Resolver.recheck
	}
	// A store that notifies calls its results fresh for long, another one for a moment.
	h.verify = time.Time{}
	if a.res.Fresh > 0 {
		h.verify = a.asked.Add(5 * a.res.Fresh)
	}
	return over, wasSure
}
