package pinstore

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Memory is a Store in the memory of this process. Use Memory for a single node, for tests, or for nodes that
// share a process. Nodes in separate processes need a shared store. With a separate Memory in each process,
// the nodes would disagree about where a room lives.
//
// A pin expires on time for all callers. Later calls free the memory of expired pins, a few at a time.
type Memory struct {
	mu         sync.Mutex
	pins       map[string]memoryPin
	index      map[placement.Partition]map[lease.Incarnation]map[string]struct{}
	due        dueHeap
	heartbeats map[lease.Incarnation]time.Time // until when each incarnation is alive
	epoch      uint64
	units      map[lease.Incarnation][]claimed // units of ops with a limit, by time
	users      []*user                         // the slice is replaced, never modified

	stated map[string]*statement // by cluster

	reservations map[string]Reservation // by room
}

type memoryPin struct {
	Pin
	partition placement.Partition
	until     time.Time
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		pins:       make(map[string]memoryPin),
		index:      make(map[placement.Partition]map[lease.Incarnation]map[string]struct{}),
		heartbeats: make(map[lease.Incarnation]time.Time),
		units:      make(map[lease.Incarnation][]claimed),

		stated: make(map[string]*statement),

		reservations: make(map[string]Reservation),
	}
}

// Swap implements Store.
func (m *Memory) Swap(ctx context.Context, ops ...Op) []Result {
	results := make([]Result, len(ops))
	if err := ctx.Err(); err != nil {
		for i := range results {
			results[i].Err = fail(err)
		}
		return results
	}
	m.mu.Lock()
	now := time.Now()
	m.sweep(now, 16+2*len(ops))
	for i, op := range ops {
		results[i] = m.swap(now, op)
	}
	users := m.users
	m.mu.Unlock()
	for i, op := range ops {
		if results[i].Done && !op.reads() && op.Set.Incarnation != op.If.Incarnation {
			for _, u := range users {
				u.changed(op.Room)
			}
		}
	}
	return results
}

func (m *Memory) swap(now time.Time, op Op) Result {
	if op.Set.Incarnation != (lease.Incarnation{}) && op.TTL < time.Millisecond {
		return Result{Err: fail(errTTL)}
	}
	stands, ok := m.pins[op.Room]
	if ok && !now.Before(stands.until) {
		m.drop(op.Room)
		stands = memoryPin{}
	}
	if stands.Incarnation != op.If.Incarnation || (op.If.Epoch != 0 && stands.Epoch != op.If.Epoch) {
		return Result{Pin: stands.Pin}
	}
	if counted, ok := m.count(now, op); !ok {
		return Result{Pin: stands.Pin, Full: true, Counted: counted}
	}
	m.drop(op.Room)
	if op.Set.Incarnation == (lease.Incarnation{}) {
		return Result{Done: true}
	}
	pin := op.Set
	if pin.Incarnation != stands.Incarnation || pin.Epoch > stands.Epoch {
		m.epoch = max(m.epoch, stands.Epoch, pin.Epoch, uint64(now.UnixMicro())-1) + 1
		stands.Epoch = m.epoch
	}
	pin.Epoch = stands.Epoch
	m.put(op.Room, memoryPin{pin, op.Partition, now.Add(op.TTL)})
	return Result{Pin: pin, Done: true}
}

// count adds the units of an op with a limit. If the sum would exceed the limit, count adds nothing.
func (m *Memory) count(now time.Time, op Op) (counted int64, ok bool) {
	if op.Limit <= 0 {
		return 0, true
	}
	maps.DeleteFunc(m.units, func(_ lease.Incarnation, claims []claimed) bool {
		return now.Sub(claims[len(claims)-1].at) > time.Minute
	})
	at := op.Set.Incarnation
	claims := m.units[at]
	for len(claims) > 0 && now.Sub(claims[0].at) > time.Minute {
		claims = claims[1:]
	}
	for _, c := range claims {
		if now.Sub(c.at) <= op.Window {
			counted = plus(counted, c.units)
		}
	}
	if plus(counted, op.Units) > op.Limit {
		return counted, false
	}
	m.units[at] = append(claims, claimed{op.Units, now})
	return counted, true
}

func (m *Memory) put(room string, pin memoryPin) {
	m.pins[room] = pin
	heap.Push(&m.due, due{room, pin.until})
	there := m.index[pin.partition]
	if there == nil {
		there = make(map[lease.Incarnation]map[string]struct{})
		m.index[pin.partition] = there
	}
	if there[pin.Incarnation] == nil {
		there[pin.Incarnation] = make(map[string]struct{})
	}
	there[pin.Incarnation][room] = struct{}{}
}

func (m *Memory) drop(room string) {
	pin, ok := m.pins[room]
	if !ok {
		return
	}
	delete(m.pins, room)
	there := m.index[pin.partition]
	if delete(there[pin.Incarnation], room); len(there[pin.Incarnation]) == 0 {
		delete(there, pin.Incarnation)
	}
	if len(there) == 0 {
		delete(m.index, pin.partition)
	}
}

// sweep frees at most the given number of expired pins. Each call frees only a few pins, so that calls remain
// fast. However, it frees more pins than a call adds, so that expired pins do not accumulate. When a pin has
// been refreshed, its earlier expiries have no effect.
func (m *Memory) sweep(now time.Time, most int) {
	for range most {
		if len(m.due) == 0 || now.Before(m.due[0].at) {
			return
		}
		d := heap.Pop(&m.due).(due)
		if pin, ok := m.pins[d.room]; ok && !now.Before(pin.until) {
			m.drop(d.room)
		}
	}
}

// Index implements Store.
func (m *Memory) Index(
	ctx context.Context,
	partitions []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	var found []Entry
	for _, p := range partitions {
		for at, rooms := range m.index[p] {
			if !want(at) {
				continue
			}
			for room := range rooms {
				if pin := m.pins[room]; now.Before(pin.until) {
					found = append(found, Entry{p, room, pin.Pin})
				}
				if len(found) >= limit {
					return found, nil
				}
			}
		}
	}
	return found, nil
}

// Heartbeat implements Store.
func (m *Memory) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.heartbeats, func(_ lease.Incarnation, until time.Time) bool { return !now.Before(until) })
	switch {
	case self == (lease.Incarnation{}):
	case ttl <= 0:
		delete(m.heartbeats, self)
	default:
		m.heartbeats[self] = now.Add(ttl)
	}
	alive := make([]bool, len(ask))
	for i, at := range ask {
		_, alive[i] = m.heartbeats[at]
	}
	return alive, nil
}

// Reserve implements Store.
func (m *Memory) Reserve(ctx context.Context, r Reservation) error {
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Until.IsZero() {
		delete(m.reservations, r.Room)
	} else {
		m.reservations[r.Room] = r
	}
	return nil
}

// Reservations implements Store.
func (m *Memory) Reservations(ctx context.Context) ([]Reservation, error) {
	if err := ctx.Err(); err != nil {
		return nil, fail(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.reservations, func(_ string, r Reservation) bool { return !now.Before(r.Until) })
	return slices.Collect(maps.Values(m.reservations)), nil
}

// Notify implements Store. All users are notified of all changes.
func (m *Memory) Notify(changed func(room string)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	this := &user{changed}
	m.users = append(slices.Clip(m.users), this)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.users = slices.DeleteFunc(slices.Clone(m.users), func(u *user) bool { return u == this })
	}
}

// user receives notifications of changes.
type user struct{ changed func(room string) }

// Copy returns a store that has the same data but no users, like a store that restarted from a backup.
func (m *Memory) Copy() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	c.heartbeats, c.epoch, c.reservations = maps.Clone(m.heartbeats), m.epoch, maps.Clone(m.reservations)
	for room, pin := range m.pins {
		c.put(room, pin)
	}
	for cluster, s := range m.stated {
		c.stated[cluster] = s.clone()
	}
	for at, claims := range m.units {
		c.units[at] = slices.Clone(claims)
	}
	return c
}

var errTTL = errors.New("a pin needs a TTL of a millisecond or more")

// fail wraps err in ErrStore.
func fail(err error) error { return fmt.Errorf("%w: %w", ErrStore, err) }

// claimed records the units of one op with a limit.
type claimed struct {
	units int64
	at    time.Time
}

// plus adds two numbers that are not negative. If the sum overflows, plus returns the largest int64, because
// a negative sum would look like headroom.
func plus(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

type due struct {
	room string
	at   time.Time
}

type dueHeap []due

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = due{}
	*h = slices.Delete(*h, last, last+1)
	return d
}
