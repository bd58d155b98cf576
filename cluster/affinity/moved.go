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

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Moves returns the moves of rooms until ctx is done. Moves includes all moves by this instance. If the store
// sends notifications, it also includes the moves of cached rooms by other instances. A slow reader does not
// delay other readers, and gets the moves that it has missed as one merged batch.
func (r *Resolver) Moves(ctx context.Context) iter.Seq[MovedBatch] { return r.feeds.moves.watch(ctx) }

// Moved is a move of a room. From and To may name the same node, or even the same incarnation, if the room
// was on another node in between.
type Moved struct {
	Room      string
	Partition placement.Partition // partition of the room
	From, To  lease.Incarnation   // From is zero if unknown
	Reason    string              // for people
	Epoch     uint64              // of the pin that names To
	Addr      string              // the APIAddr of To's node; empty if this node has never met it
}

// movedJSON is the JSON form of Moved. Incarnations are strings, as in the whole API, because some languages
// cannot represent integers above 2^53.
type movedJSON struct {
	Room            string              `json:"room"`
	Partition       placement.Partition `json:"partition"`
	From            lease.NodeID        `json:"from"`
	FromIncarnation uint64              `json:"from_incarnation,string"`
	To              lease.NodeID        `json:"to"`
	ToIncarnation   uint64              `json:"to_incarnation,string"`
	Reason          string              `json:"reason"`
	Epoch           uint64              `json:"epoch"`
	Addr            string              `json:"addr"`
}

// MarshalJSON encodes m as a flat object with the fields room, partition, from, from_incarnation, to,
// to_incarnation, reason, epoch and addr. Incarnations are strings of digits.
func (m Moved) MarshalJSON() ([]byte, error) {
	return json.Marshal(movedJSON{
		m.Room, m.Partition, m.From.Node, m.From.Number, m.To.Node, m.To.Number, m.Reason, m.Epoch, m.Addr,
	})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Moved) UnmarshalJSON(b []byte) error {
	var j movedJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*m = Moved{
		Room:      j.Room,
		Partition: j.Partition,
		From:      lease.Incarnation{Node: j.From, Number: j.FromIncarnation},
		To:        lease.Incarnation{Node: j.To, Number: j.ToIncarnation},
		Reason:    j.Reason,
		Epoch:     j.Epoch,
		Addr:      j.Addr,
	}
	return nil
}

// Directive returns what to send to the clients of the room. If its Addr is empty, the client must ask where
// the room lives.
func (m Moved) Directive() reconnect.Directive {
	return reconnect.Directive{Room: m.Room, To: m.To.Node, Addr: m.Addr, Reason: m.Reason, Epoch: m.Epoch}
}

// announce publishes moves with the last known addresses of the rooms' new nodes.
func (r *Resolver) announce(moved []Moved) {
	s := r.agent.Snapshot()
	for i := range moved {
		moved[i].Addr = r.met.member(s, moved[i].To).APIAddr
	}
	r.history.moved(moved)
	r.feeds.moves.publish(moved)
}

// MovedBatch contains the moves since a subscriber's previous batch. MovedBatch has at least one move, unless
// Resync is set. The subscriber may keep and modify it.
type MovedBatch struct {
	// Moved contains each room once, sorted by name. If a room has moved several times, From comes from the
	// first move, and all other fields from the latest move.
	Moved []Moved `json:"moved"`

	// Resync is set if moves were dropped. In this case Moved is empty, and the subscriber must resolve all
	// its rooms again.
	Resync bool `json:"resync"`
}

// maxPending is the maximum number of pending moves per subscriber. Together they take about 4 MB, excluding
// the names. The limit is high enough for the rooms of three dead nodes with 5,000 rooms each.
const maxPending = 16_384

// moves is a feed of moved rooms for any number of subscribers. The zero value is ready to use. All methods
// are safe for concurrent use. Publishing never waits for a subscriber, and no subscriber waits for another
// subscriber.
type moves struct {
	mu     sync.Mutex // only held for work in memory, never while a loop body runs
	subs   map[*mover]struct{}
	closed bool
}

// mover is a subscription. The lock of the feed guards it.
type mover struct {
	room    string // the only room to deliver; empty: all rooms
	pending map[string]Moved
	resync  bool
	wake    chan struct{} // contains a token while there may be something to take
	ranged  atomic.Bool
}

// publish adds moves for every subscriber. publish does not retain list, and takes less than 0.5 µs per move
// and subscriber. After close it does nothing.
//
// publish drops a move with a smaller epoch than the room's pending move. The feed does not remember moves
// that a subscriber has already taken. So publishers must publish a room's moves in the order of their
// epochs, or readers must compare epochs.
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
		if len(s.pending) > 0 || s.resync {
			s.notify()
		}
	}
}

// resync makes every subscriber resolve all its rooms again.
func (f *moves) resync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.subs {
		s.pending, s.resync = nil, true
		s.notify()
	}
}

// watch subscribes and returns the batches from now on as a sequence. The sequence includes moves between the
// call of watch and the start of the loop. While the loop body runs, further moves are merged into the next
// batch. Only one loop can range over the sequence, and a second range yields nothing.
//
// The subscription ends when the loop ends, when ctx is done, or when the feed is closed. If ctx is done,
// pending moves are dropped. If the feed is closed, the loop still gets the pending moves. watch starts no
// goroutine. If no loop ever ranges over the sequence, the pending moves remain in memory until ctx is done
// or the feed is closed.
func (f *moves) watch(ctx context.Context) iter.Seq[MovedBatch] {
	s := f.subscribe("")
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
				continue // take moves that were published before the feed was closed
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

// close closes the feed. Subscribers still get their pending moves before their loops end. It is safe to call
// close more than once.
func (f *moves) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for s := range f.subs {
		s.notify()
	}
	f.subs = nil // pending moves stay with their sequences
}

func (f *moves) subscribe(room string) *mover {
	s := &mover{room: room, wake: make(chan struct{}, 1)}
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

// take removes and returns the pending moves. open reports whether the feed can still get more moves.
func (f *moves) take(s *mover) (b MovedBatch, open bool) {
	f.mu.Lock()
	pending, resync, open := s.pending, s.resync, !f.closed
	s.pending, s.resync = nil, false
	f.mu.Unlock()
	list := slices.AppendSeq(make([]Moved, 0, len(pending)), maps.Values(pending))
	slices.SortFunc(list, func(a, b Moved) int { return strings.Compare(a.Room, b.Room) })
	return MovedBatch{list, resync}, open
}

// add merges m into the pending moves.
func (s *mover) add(m Moved) {
	if s.resync || s.room != "" && s.room != m.Room {
		return // after a resync the reader resolves all rooms anyway
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
	default: // there is a token already
	}
}
