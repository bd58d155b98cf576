package affinity

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/reconnect"
)

// Moved tells that a room lives elsewhere now. From and To may name the same
// node, even the same life: the room has been away meanwhile.
type Moved struct {
	Room      string
	Partition placement.Partition // of the room
	From, To  lease.Incarnation   // From is the zero lease.Incarnation if nobody knows any more
	Reason    string              // for people
	Epoch     uint64              // of the pin that names To
}

// movedJSON is Moved as it travels. Incarnations are strings, as everywhere: not
// every language has integers above 2^53.
type movedJSON struct {
	Room            string              `json:"room"`
	Partition       placement.Partition `json:"partition"`
	From            lease.NodeID        `json:"from"`
	FromIncarnation uint64              `json:"from_incarnation,string"`
	To              lease.NodeID        `json:"to"`
	ToIncarnation   uint64              `json:"to_incarnation,string"`
	Reason          string              `json:"reason"`
	Epoch           uint64              `json:"epoch"`
}

// MarshalJSON writes m flat: room, partition, from, from_incarnation, to,
// to_incarnation, reason, epoch. Incarnations are strings of digits.
func (m Moved) MarshalJSON() ([]byte, error) {
	return json.Marshal(movedJSON{
		m.Room, m.Partition, m.From.Node, m.From.Number, m.To.Node, m.To.Number, m.Reason, m.Epoch,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Moved) UnmarshalJSON(b []byte) error {
	var j movedJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*m = Moved{
		j.Room, j.Partition, lease.Incarnation{Node: j.From, Number: j.FromIncarnation}, lease.Incarnation{Node: j.To, Number: j.ToIncarnation}, j.Reason, j.Epoch,
	}
	return nil
}

// Directive returns what to send to the clients of the room. addr is where they
// reach the program on the room's new node.
func (m Moved) Directive(addr string) reconnect.Directive {
	return reconnect.Directive{Room: m.Room, To: m.To.Node, Addr: addr, Reason: m.Reason, Epoch: m.Epoch}
}

// MovedBatch tells one subscriber what moved since its batch before. It is never
// empty, and the subscriber's own: it may keep and change it.
type MovedBatch struct {
	// Moved has each room once, sorted by name. Moves of one room since the last
	// batch are one: From is where the first of them took it away, all else is
	// the latest's.
	Moved []Moved `json:"moved"`

	// Resync is set if more happened than is listed: resolve all rooms again.
	// Moved is empty then. Later batches go on from there.
	Resync bool `json:"resync"`
}

// maxPending bounds what is kept for a subscriber that does not look: some 4 MB,
// beside the names. Three dead nodes of 5,000 rooms each still fit.
const maxPending = 16_384

// moves is a feed of moved rooms to any number of subscribers. The zero value is
// ready to use, from any goroutine. Publishing never waits for a subscriber, nor
// one of them for another.
type moves struct {
	mu     sync.Mutex // held for work in memory only, never while a loop body runs
	subs   map[*mover]struct{}
	closed bool
}

// mover is one subscription. The lock of its feed guards it.
type mover struct {
	pending map[string]Moved
	resync  bool
	wake    chan struct{} // holds one token: there may be something to take
	ranged  atomic.Bool
}

// publish tells every subscriber. It keeps nothing of list, and costs less than
// 0.5 µs for each room and subscriber. After close it does nothing.
//
// A move that is older by its epoch than one of the same room that is still
// pending changes nothing. What a subscriber has taken is not remembered:
// publishers tell of a room's moves in the order of their epochs, or readers
// compare.
func (f *moves) publish(list []Moved) {
	if len(list) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		for _, m := range list {
			s.add(m)
		}
		s.notify()
	}
}

// resync has every subscriber told to resolve all its rooms again.
func (f *moves) resync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.pending, s.resync = nil, true
		s.notify()
	}
}

// watch subscribes and returns the batches from now on, as a sequence for one
// loop: to range over it again yields nothing. What moved before the call is not
// told; what moves between the call and the loop is. While the loop body runs,
// moves merge into the next batch.
//
// The subscription ends when the loop is left, when ctx is done, which drops what
// is pending, or when the feed is closed, after the rest has been told. There is
// no goroutine: a sequence that is never ranged over costs its pending rooms
// until ctx is done or the feed closes.
func (f *moves) watch(ctx context.Context) iter.Seq[MovedBatch] {
	s := f.subscribe()
	stop := context.AfterFunc(ctx, func() { f.unsubscribe(s) })
	return func(yield func(MovedBatch) bool) {
		if !s.ranged.CompareAndSwap(false, true) {
			return
		}
		defer f.unsubscribe(s)
		defer stop()
		for ctx.Err() == nil {
			b, open := f.take(s)
			switch {
			case b.Resync || len(b.Moved) > 0:
				if !yield(b) {
					return
				}
				continue // whatever came meanwhile, before the feed's end is believed
			case !open:
				return
			}
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
		}
	}
}

// close ends the feed: subscribers get what is pending, then the end. It may be
// called again.
func (f *moves) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.notify()
	}
	f.subs = nil // what is pending goes with the sequence that would tell it
}

func (f *moves) subscribe() *mover {
	s := &mover{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return s
	}
	if f.subs == nil {
		f.subs = make(map[*mover]struct{})
	}
	f.subs[s] = struct{}{}
	return s
}

func (f *moves) unsubscribe(s *mover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subs, s)
	s.pending = nil
}

// take returns what is pending, and whether more may come.
func (f *moves) take(s *mover) (b MovedBatch, open bool) {
	f.mu.Lock()
	pending, resync, open := s.pending, s.resync, !f.closed
	s.pending, s.resync = nil, false
	f.mu.Unlock()
	list := slices.AppendSeq(make([]Moved, 0, len(pending)), maps.Values(pending))
	slices.SortFunc(list, func(a, b Moved) int { return strings.Compare(a.Room, b.Room) })
	return MovedBatch{list, resync}, open
}

// add merges m into what is pending.
func (s *mover) add(m Moved) {
	if s.resync {
		return // the reader will resolve everything, m's room too
	}
	old, ok := s.pending[m.Room]
	switch {
	case ok && m.Epoch < old.Epoch:
		return
	case ok:
		m.From = old.From
	case len(s.pending) == maxPending:
		s.pending, s.resync = nil, true
		return
	case s.pending == nil:
		s.pending = make(map[string]Moved)
	}
	s.pending[m.Room] = m
}

func (s *mover) notify() {
	select {
	case s.wake <- struct{}{}:
	default: // a token lies there already
	}
}
