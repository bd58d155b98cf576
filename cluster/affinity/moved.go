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

// Moves returns the rooms that get another node, until ctx is done: rooms that this instance moves, and known
// rooms that other instances move, as far as the store notifies. A slow reader does not delay others, and the
// moves that it misses are merged.
func (r *Resolver) Moves(ctx context.Context) iter.Seq[MovedBatch] { return r.feeds.moves.watch(ctx) }

// Moved is a move of a room. From and To may name the same node, or even the same incarnation, if the room
// has been elsewhere in between.
type Moved struct {
	Room      string
	Partition placement.Partition // partition of the room
	From, To  lease.Incarnation   // From is zero if it is not known
	Reason    string              // for people
	Epoch     uint64              // of the pin that names To
	Addr      string              // the APIAddr of To's node; empty if this node has never met it
}

// movedJSON is the JSON of Moved. Incarnations are strings, as in the whole API, because not every language
// has integers above 2^53.
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

// MarshalJSON writes m flat: room, partition, from, from_incarnation, to,
// to_incarnation, reason, epoch, addr. Incarnations are strings of digits.
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

// Directive returns what to send to the clients of the room. If its Addr is empty, the client has to ask
// where the room lives.
func (m Moved) Directive() reconnect.Directive {
	return reconnect.Directive{Room: m.Room, To: m.To.Node, Addr: m.Addr, Reason: m.Reason, Epoch: m.Epoch}
}

// announce publishes moves with the last known addresses of the rooms' new nodes.
func (r *Resolver) announce(moved []Moved) {
	s := r.agent.Snapshot()
	for i := range moved {
		moved[i].Addr = r.met.member(s, moved[i].To).APIAddr
	}
	r.feeds.moves.publish(moved)
}

// MovedBatch holds the moves since a subscriber's previous batch. It is never empty.
// The subscriber may keep and change it.
type MovedBatch struct {
	// Moved has each room once, sorted by name. Several moves of a room are merged: From is from the first
	// move, and everything else from the latest.
	Moved []Moved `json:"moved"`

	// Resync is set if moves were dropped. Resolve all rooms again then. Moved is empty.
	Resync bool `json:"resync"`
}

// maxPending is how many moves are kept for a slow subscriber. They take about 4 MB without the names. Three
// dead nodes with 5,000 rooms each still fit.
const maxPending = 16_384

// moves is a feed of moved rooms for any number of subscribers. The zero value is ready to use, and safe for
// concurrent use. Publishing never waits for a subscriber, and no subscriber waits for another.
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
	wake    chan struct{} // holds one token while there may be something to take
	ranged  atomic.Bool
}

// publish adds moves for every subscriber. It does not keep list, and costs less than 0.5 µs for each room
// and subscriber. After close it does nothing.
//
// A move with a smaller epoch than the room's pending move is dropped. Moves that a subscriber has taken are
// not remembered, so publishers must publish a room's moves in the order of their epochs, or readers must
// compare epochs.
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

// watch subscribes and returns the batches from now on as a sequence. Moves between the call and the loop are
// included. While the loop body runs, moves merge into the next batch. Only one loop can range over the
// sequence, and a second range yields nothing.
//
// The subscription ends when the loop is left, when ctx is done (which drops pending moves), or when the feed
// is closed (after the pending moves). There is no goroutine, but a sequence that is never ranged over keeps
// its pending moves in memory until ctx is done or the feed closes.
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
				continue // take moves that came before the end of the feed
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

// close ends the feed. Subscribers get their pending moves and then the end. It may be called again.
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

// take returns the pending moves, and whether more may come.
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
