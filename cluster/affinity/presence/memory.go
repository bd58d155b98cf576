package presence

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Memory is a Store in the memory of this process. Use Memory for a single node, for tests, or for nodes that
// share a process. Memory needs no goroutine, because each call frees a few more stale participants than it
// adds.
type Memory struct {
	mu    sync.Mutex
	rooms map[Room]*memoryRoom
	aging list.List // of *memoryEntry, oldest heartbeat first
}

type memoryRoom struct {
	entries map[string]*memoryEntry
	aging   list.List // of the room, in the same order
}

type memoryEntry struct {
	Participant
	at     time.Time     // of the last heartbeat
	stale  time.Duration // after which it may be freed
	inRoom *list.Element
	inAll  *list.Element
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{rooms: make(map[Room]*memoryRoom)}
}

// Heartbeat implements Store.
func (m *Memory) Heartbeat(ctx context.Context, stale time.Duration, participants ...Participant) error {
	if err := checkCall(ctx, stale); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.sweep(now, 16+2*len(participants))
	for _, p := range participants {
		m.expire(now, stale, p.Room)
		m.heartbeat(now, stale, p)
	}
	return nil
}

func (m *Memory) heartbeat(now time.Time, stale time.Duration, p Participant) {
	room := m.rooms[p.Room]
	if room == nil {
		room = &memoryRoom{entries: make(map[string]*memoryEntry)}
		m.rooms[p.Room] = room
	}
	s := room.entries[p.Name]
	if s == nil {
		s = &memoryEntry{Participant: p}
		s.inRoom, s.inAll = room.aging.PushBack(s), m.aging.PushBack(s)
		room.entries[p.Name] = s
	}
	room.aging.MoveToBack(s.inRoom)
	m.aging.MoveToBack(s.inAll)
	s.at, s.stale = now, stale
}

// Leave implements Store.
func (m *Memory) Leave(ctx context.Context, participants ...Participant) error {
	if err := ctx.Err(); err != nil {
		return storeError(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(time.Now(), 16)
	for _, p := range participants {
		if room := m.rooms[p.Room]; room != nil && room.entries[p.Name] != nil {
			m.drop(room.entries[p.Name])
		}
	}
	return nil
}

// Members implements Store.
func (m *Memory) Members(ctx context.Context, stale time.Duration, room Room) ([]Member, error) {
	if err := checkCall(ctx, stale); err != nil {
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
	members := make([]Member, 0, len(r.entries))
	for _, s := range r.entries {
		members = append(members, Member{s.Name, now.Sub(s.at)})
	}
	return members, nil
}

// Count implements Store.
func (m *Memory) Count(ctx context.Context, stale time.Duration, rooms ...Room) ([]int, error) {
	if err := checkCall(ctx, stale); err != nil {
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
			counts[i] = len(r.entries)
		}
	}
	return counts, nil
}

// expire removes the stale participants of a room.
func (m *Memory) expire(now time.Time, stale time.Duration, room Room) {
	r := m.rooms[room]
	if r == nil {
		return
	}
	for e := r.aging.Front(); e != nil; e = r.aging.Front() {
		s := e.Value.(*memoryEntry)
		if now.Sub(s.at) < stale {
			return
		}
		m.drop(s)
	}
}

// sweep frees up to limit stale participants in any room. sweep covers all rooms, because no call may ever
// name an abandoned room again.
func (m *Memory) sweep(now time.Time, limit int) {
	for range limit {
		e := m.aging.Front()
		if e == nil {
			return
		}
		s := e.Value.(*memoryEntry)
		if now.Sub(s.at) < s.stale {
			return
		}
		m.drop(s)
	}
}

func (m *Memory) drop(s *memoryEntry) {
	m.aging.Remove(s.inAll)
	room := m.rooms[s.Room]
	room.aging.Remove(s.inRoom)
	if delete(room.entries, s.Name); len(room.entries) > 0 {
		return
	}
	if delete(m.rooms, s.Room); len(m.rooms) == 0 {
		m.rooms = make(map[Room]*memoryRoom) // a map keeps the memory that it once needed
	}
}

var errStale = errors.New("stale must be a millisecond or more")

func checkCall(ctx context.Context, stale time.Duration) error {
	if stale < time.Millisecond {
		return storeError(errStale)
	}
	if err := ctx.Err(); err != nil {
		return storeError(err)
	}
	return nil
}
