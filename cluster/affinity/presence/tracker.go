package presence

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/internal/logqueue"
	"github.com/roost-cluster/roost/placement"
)

// Tracker keeps the participants of this node present and answers queries about all rooms in its store. All
// methods are safe for concurrent use.
type Tracker struct {
	store      Store
	partitions int
	cfg        Config

	mu         sync.Mutex
	here       *attendance
	closed     bool
	calls      sync.WaitGroup // of Join and Leave
	heartbeats uint64
	failed     uint64

	stop   context.CancelFunc
	done   chan struct{} // closed when the heartbeats have ended
	endLog func()        // writes the last lines and waits for them
	once   sync.Once
	err    error // of Close
}

// Stats describes the heartbeats of a node.
type Stats struct {
	Here       int    // participants present via this node
	Owed       int    // joins and departures that the store may not have
	Heartbeats uint64 // heartbeats of a participant that the store accepted
	Failed     uint64 // heartbeats of a participant that failed
}

// Start returns a running Tracker that uses store. partitions is the number of partitions of the cluster and
// must be the same for all users of the store.
func Start(store Store, partitions int, cfg Config) (*Tracker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if partitions < 1 || partitions > placement.MaxPartitions {
		return nil, fmt.Errorf("presence: in %d partitions; it must be 1 to %d", partitions, placement.MaxPartitions)
	}
	cfg = cfg.WithDefaults()
	var endLog func()
	cfg.Log, _, endLog = logqueue.Through(cfg.Log)
	running, stop := context.WithCancel(context.Background())
	t := &Tracker{
		store: store, partitions: partitions, cfg: cfg,
		here: newAttendance(cfg.slots()), stop: stop, done: make(chan struct{}), endLog: endLog,
	}
	go t.run(running)
	return t, nil
}

// Join adds a participant to a room and keeps it there until Leave or Close. You can repeat Join. Join takes
// one round trip and at most half of Config.Grace.
//
// Join returns ErrName for an invalid name, ErrClosed after Close, or ErrStore. After ErrStore, the
// participant is considered joined, and the tracker writes it when the store answers again.
func (t *Tracker) Join(ctx context.Context, room, participant string) error {
	err := t.change(ctx, room, participant, func(p Participant) write { return t.here.join(p) })
	if err != nil {
		return fmt.Errorf("presence: join %.80q as %.80q: %w", room, participant, err)
	}
	return nil
}

// Leave removes a participant from a room, regardless of the node via which it joined. If the participant is
// also present via another node, the next heartbeat of that node restores it. Leave has the same cost and
// returns the same errors as Join.
func (t *Tracker) Leave(ctx context.Context, room, participant string) error {
	err := t.change(ctx, room, participant, func(p Participant) write { return t.here.leave(p, time.Now()) })
	if err != nil {
		return fmt.Errorf("presence: leave %.80q as %.80q: %w", room, participant, err)
	}
	return nil
}

func (t *Tracker) change(ctx context.Context, room, participant string, begin func(Participant) write) error {
	at, err := t.room(room)
	if err != nil {
		return err
	}
	if err := CheckName(participant); err != nil {
		return err
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	t.calls.Add(1)
	defer t.calls.Done()
	w := begin(Participant{at, participant})
	t.mu.Unlock()
	return t.write(ctx, []write{w})
}

// Members returns the participants of a room, sorted by name. Members takes one round trip per 1,000
// participants. You can also call Members after Close.
func (t *Tracker) Members(ctx context.Context, room string) ([]Member, error) {
	at, err := t.room(room)
	if err != nil {
		return nil, fmt.Errorf("presence: members of %.80q: %w", room, err)
	}
	members, err := t.store.Members(ctx, t.cfg.stale(), at)
	if err != nil {
		return nil, fmt.Errorf("presence: members of %.80q: %w", room, err)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return members, nil
}

// Count returns the number of participants of a room. Count takes one round trip.
func (t *Tracker) Count(ctx context.Context, room string) (int, error) {
	counts, err := t.Counts(ctx, []string{room})
	if err != nil {
		return 0, err
	}
	return counts[0], nil
}

// Counts returns the number of participants of each room, in the order of rooms. Counts takes one round trip.
// You can also call Counts after Close.
func (t *Tracker) Counts(ctx context.Context, rooms []string) ([]int, error) {
	at := make([]Room, len(rooms))
	for i, room := range rooms {
		var err error
		if at[i], err = t.room(room); err != nil {
			return nil, fmt.Errorf("presence: count %.80q: %w", room, err)
		}
	}
	if len(at) == 0 {
		return nil, nil
	}
	counts, err := t.store.Count(ctx, t.cfg.stale(), at...)
	if err != nil {
		return nil, fmt.Errorf("presence: count %d rooms: %w", len(rooms), err)
	}
	return counts, nil
}

// Stats returns statistics about the heartbeats of this node.
func (t *Tracker) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Here: t.here.here, Owed: len(t.here.owed), Heartbeats: t.heartbeats, Failed: t.failed}
}

// Close stops the heartbeats and removes this node's participants from their rooms. It returns within
// Config.Grace. If the store did not answer, Close returns ErrStore, and the participants become stale after
// Interval + Grace. You can call Close more than once.
func (t *Tracker) Close() error {
	t.once.Do(func() {
		t.mu.Lock()
		t.closed = true
		t.mu.Unlock()
		t.stop()
		<-t.done
		t.calls.Wait() // otherwise a Join in progress would leave its participant behind
		t.err = t.leaveAll()
		t.endLog()
	})
	return t.err
}

func (t *Tracker) leaveAll() error {
	t.mu.Lock()
	participants := t.here.all()
	t.here = newAttendance(t.cfg.slots())
	t.mu.Unlock()
	if len(participants) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.cfg.timeout())
	defer cancel()
	if err := t.store.Leave(ctx, participants...); err != nil {
		return fmt.Errorf("presence: %d participants stay visible for up to %v: %w", len(participants), t.cfg.stale(), err)
	}
	return nil
}

func (t *Tracker) room(name string) (Room, error) {
	if err := CheckName(name); err != nil {
		return Room{}, err
	}
	return Room{placement.Of(name, t.partitions), name}, nil
}
