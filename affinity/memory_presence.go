package affinity

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// MemoryPresence is a PresenceStore in this process's memory, for a single node,
// for tests, and for nodes that share a process. It starts no goroutine: the
// memory of those who went stale is freed by later calls for any room, each of
// which frees a few more than it adds.
type MemoryPresence struct {
	mu    sync.Mutex
	rooms map[RoomRef]*memoryRoom
	aging list.List // of *memorySeat, the one that was beaten longest ago first
}

type memoryRoom struct {
	seats map[string]*memorySeat
	aging list.List // likewise
}

type memorySeat struct {
	Seat
	at     time.Time     // of the last beat
	stale  time.Duration // after which it may be freed
	inRoom *list.Element
	inAll  *list.Element
}

// NewMemoryPresence returns an empty store.
func NewMemoryPresence() *MemoryPresence {
	return &MemoryPresence{rooms: make(map[RoomRef]*memoryRoom)}
}

// Beat implements PresenceStore.
func (m *MemoryPresence) Beat(ctx context.Context, stale time.Duration, seats ...Seat) error {
	if err := checkPresence(ctx, stale); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sweep(now, 16+2*len(seats))
	for _, seat := range seats {
		m.expire(now, stale, seat.Ref())
		m.beat(now, stale, seat)
	}
	return nil
}

func (m *MemoryPresence) beat(now time.Time, stale time.Duration, seat Seat) {
	room := m.rooms[seat.Ref()]
	if room == nil {
		room = &memoryRoom{seats: make(map[string]*memorySeat)}
		m.rooms[seat.Ref()] = room
	}
	s := room.seats[seat.Participant]
	if s == nil {
		s = &memorySeat{Seat: seat}
		s.inRoom, s.inAll = room.aging.PushBack(s), m.aging.PushBack(s)
		room.seats[seat.Participant] = s
	}
	room.aging.MoveToBack(s.inRoom)
	m.aging.MoveToBack(s.inAll)
	s.at, s.stale = now, stale
}

// Leave implements PresenceStore.
func (m *MemoryPresence) Leave(ctx context.Context, seats ...Seat) error {
	if err := ctx.Err(); err != nil {
		return storeError(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(time.Now(), 16)
	for _, seat := range seats {
		if room := m.rooms[seat.Ref()]; room != nil && room.seats[seat.Participant] != nil {
			m.drop(room.seats[seat.Participant])
		}
	}
	return nil
}

// Members implements PresenceStore.
func (m *MemoryPresence) Members(ctx context.Context, stale time.Duration, room RoomRef) ([]Occupant, error) {
	if err := checkPresence(ctx, stale); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sweep(now, 16)
	m.expire(now, stale, room)
	r := m.rooms[room]
	if r == nil {
		return nil, nil
	}
	members := make([]Occupant, 0, len(r.seats))
	for _, s := range r.seats {
		members = append(members, Occupant{s.Participant, now.Sub(s.at)})
	}
	return members, nil
}

// Count implements PresenceStore.
func (m *MemoryPresence) Count(ctx context.Context, stale time.Duration, rooms ...RoomRef) ([]int, error) {
	if err := checkPresence(ctx, stale); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sweep(now, 16)
	counts := make([]int, len(rooms))
	for i, room := range rooms {
		m.expire(now, stale, room)
		if r := m.rooms[room]; r != nil {
			counts[i] = len(r.seats)
		}
	}
	return counts, nil
}

// expire removes the stale seats of a room.
func (m *MemoryPresence) expire(now time.Time, stale time.Duration, room RoomRef) {
	r := m.rooms[room]
	if r == nil {
		return
	}
	for e := r.aging.Front(); e != nil; e = r.aging.Front() {
		s := e.Value.(*memorySeat)
		if now.Sub(s.at) < stale {
			return
		}
		m.drop(s)
	}
}

// sweep frees up to limit seats that are stale, of any room: nobody may ever ask
// for an abandoned one again.
func (m *MemoryPresence) sweep(now time.Time, limit int) {
	for range limit {
		e := m.aging.Front()
		if e == nil {
			return
		}
		s := e.Value.(*memorySeat)
		if now.Sub(s.at) < s.stale {
			return
		}
		m.drop(s)
	}
}

func (m *MemoryPresence) drop(s *memorySeat) {
	m.aging.Remove(s.inAll)
	room := m.rooms[s.Ref()]
	room.aging.Remove(s.inRoom)
	if delete(room.seats, s.Participant); len(room.seats) > 0 {
		return
	}
	if delete(m.rooms, s.Ref()); len(m.rooms) == 0 {
		m.rooms = make(map[RoomRef]*memoryRoom) // a map keeps the memory that it once needed
	}
}

var errStale = errors.New("presence needs a stale time of a millisecond or more")

func checkPresence(ctx context.Context, stale time.Duration) error {
	if stale < time.Millisecond {
		return storeError(errStale)
	}
	if err := ctx.Err(); err != nil {
		return storeError(err)
	}
	return nil
}
