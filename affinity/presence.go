package affinity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/placement"
)

// Presence tells who is in which room, for the participants of all nodes that
// share its store. Any instance can ask, without asking the others.
//
// A participant is a connection, not a person: a user with two of them is in the
// room twice, and leaves with the last one. By convention its name is
// "user/connection", such as "alice/7f3a", and [Occupant.User] takes it apart. The
// connection part must not be used again by another node while the old one may
// still be there.
//
// One goroutine renews all participants of this node, spread over the interval. A
// node that dies just stops: its participants are out of their rooms after
// Interval + Grace, and come back at once, without a double, if they join again
// elsewhere. A store that loses its data has everybody back after an Interval.
//
// All methods may be called from any goroutine.
type Presence struct {
	store      PresenceStore
	partitions int
	cfg        PresenceConfig

	mu     sync.Mutex
	here   *attendance
	closed bool
	calls  sync.WaitGroup // of Join and Leave
	beats  uint64
	failed uint64

	stop context.CancelFunc
	done chan struct{} // the heartbeats have ended
	once sync.Once
	err  error // of Close
}

// PresenceStats says how the heartbeats of a node are doing.
type PresenceStats struct {
	Here   int    // participants who are in a room through this node
	Owed   int    // joins and departures that the store may not know yet
	Beats  uint64 // heartbeats of a participant that the store took
	Failed uint64 // and that it did not
}

// StartPresence starts to keep presence in store, of rooms in that many
// partitions, which must be the same for all users of the store: the cluster's.
func StartPresence(store PresenceStore, partitions int, cfg PresenceConfig) (*Presence, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if partitions < 1 || partitions > placement.MaxPartitions {
		return nil, fmt.Errorf("affinity: presence in %d partitions; it must be 1 to %d", partitions, placement.MaxPartitions)
	}
	cfg = cfg.WithDefaults()
	running, stop := context.WithCancel(context.Background())
	p := &Presence{
		store: store, partitions: partitions, cfg: cfg,
		here: newAttendance(cfg.slots()), stop: stop, done: make(chan struct{}),
	}
	go p.run(running)
	return p, nil
}

// Join puts a participant into a room, and keeps it there until Leave or Close. It
// may be repeated. It takes one round trip, and no longer than half of the grace.
//
// Names are as CheckName wants them; otherwise the error is an ErrName, and
// nothing happened. After an ErrStore the participant counts as joined all the
// same, and is written as soon as the store answers again. After Close the error
// is ErrClosed.
func (p *Presence) Join(ctx context.Context, room, participant string) error {
	err := p.change(ctx, room, participant, func(seat Seat) write { return p.here.join(seat) })
	if err != nil {
		return fmt.Errorf("affinity: join %.80q as %.80q: %w", room, participant, err)
	}
	return nil
}

// Leave takes a participant out of a room, through whichever node it joined, but
// for one that still is there through another node: that one renews it. It costs
// what Join costs, and fails like it. After an ErrStore the store is told when it
// answers again.
func (p *Presence) Leave(ctx context.Context, room, participant string) error {
	err := p.change(ctx, room, participant, func(seat Seat) write { return p.here.leave(seat, time.Now()) })
	if err != nil {
		return fmt.Errorf("affinity: leave %.80q as %.80q: %w", room, participant, err)
	}
	return nil
}

func (p *Presence) change(ctx context.Context, room, participant string, begin func(Seat) write) error {
	ref, err := p.ref(room)
	if err != nil {
		return err
	}
	if err := CheckName(participant); err != nil {
		return err
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.calls.Add(1)
	defer p.calls.Done()
	w := begin(Seat{ref.Partition, ref.Room, participant})
	p.mu.Unlock()
	return p.write(ctx, []write{w})
}

// Members returns who is in a room, sorted by participant. It takes one round
// trip. It also works after Close.
func (p *Presence) Members(ctx context.Context, room string) ([]Occupant, error) {
	ref, err := p.ref(room)
	if err != nil {
		return nil, fmt.Errorf("affinity: members of %.80q: %w", room, err)
	}
	members, err := p.store.Members(ctx, p.cfg.stale(), ref)
	if err != nil {
		return nil, fmt.Errorf("affinity: members of %.80q: %w", room, err)
	}
	slices.SortFunc(members, func(a, b Occupant) int { return strings.Compare(a.Participant, b.Participant) })
	return members, nil
}

// Count returns how many participants a room has. It takes one round trip.
func (p *Presence) Count(ctx context.Context, room string) (int, error) {
	counts, err := p.Counts(ctx, []string{room})
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// Counts returns how many participants each room has, in the order of rooms. It
// takes one round trip, and works after Close.
func (p *Presence) Counts(ctx context.Context, rooms []string) ([]int, error) {
	refs := make([]RoomRef, len(rooms))
	for i, room := range rooms {
		var err error
		if refs[i], err = p.ref(room); err != nil {
			return nil, fmt.Errorf("affinity: count %.80q: %w", room, err)
		}
	}
	if len(refs) == 0 {
		return nil, nil
	}
	counts, err := p.store.Count(ctx, p.cfg.stale(), refs...)
	if err != nil {
		return nil, fmt.Errorf("affinity: count %d rooms: %w", len(rooms), err)
	}
	return counts, nil
}

// Stats returns how the heartbeats are doing.
func (p *Presence) Stats() PresenceStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PresenceStats{Here: p.here.here, Owed: len(p.here.owed), Beats: p.beats, Failed: p.failed}
}

// Close ends the heartbeats and takes this node's participants out of their
// rooms, within the grace. The error is an ErrStore if the store did not answer:
// they are out after Interval + Grace then. Close may be called again.
func (p *Presence) Close() error {
	p.once.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.stop()
		<-p.done
		p.calls.Wait() // what still joins would stay behind
		p.err = p.leaveAll()
	})
	return p.err
}

func (p *Presence) leaveAll() error {
	p.mu.Lock()
	seats := p.here.all()
	p.here = newAttendance(p.cfg.slots())
	p.mu.Unlock()
	if len(seats) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.patience())
	defer cancel()
	if err := p.store.Leave(ctx, seats...); err != nil {
		return fmt.Errorf("affinity: %d participants may seem present for another %v: %w", len(seats), p.cfg.stale(), err)
	}
	return nil
}

func (p *Presence) ref(room string) (RoomRef, error) {
	if err := CheckName(room); err != nil {
		return RoomRef{}, err
	}
	return RoomRef{placement.Of(room, p.partitions), room}, nil
}
