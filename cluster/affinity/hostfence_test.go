package affinity

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fencedAgent is the agent of the node a, which has no peers.
type fencedAgent struct {
	shown atomic.Pointer[cluster.Snapshot]
}

func (a *fencedAgent) Snapshot() *cluster.Snapshot           { return a.shown.Load() }
func (a *fencedAgent) Place(string) (*cluster.Member, error) { return a.Snapshot().Self, nil }
func (a *fencedAgent) Live() bool                            { return true }
func (a *fencedAgent) Load() cluster.Load                    { return cluster.Load{} }

// fence sets the number of fences.
func (a *fencedAgent) fence(fences uint64) {
	self := &cluster.Member{Profile: lease.Profile{ID: "a", Incarnation: 1, Weight: 1}, State: lease.Active}
	table, _ := placement.Compute(placement.Input{Partitions: 1, Nodes: []placement.Node{{ID: "a", Weight: 1}}})
	a.shown.Store(&cluster.Snapshot{
		Self: self, Members: []*cluster.Member{self}, Table: table, Stats: cluster.Stats{CoreStats: cluster.CoreStats{Fences: fences}},
	})
}

// slowAnswer is a store that delays its first answer until goOn is closed.
type slowAnswer struct {
	*pinstore.Memory
	swaps atomic.Int64
	goOn  chan struct{}
}

func (s *slowAnswer) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	results := s.Memory.Swap(ctx, ops...)
	results[0].Fresh = time.Minute
	if s.swaps.Add(1) == 1 {
		<-s.goOn
	}
	return results
}

// While the store's answer is in transit, the node is fenced and its room moves. No later call of Host may start a
// hosting because of this answer, whether the call finds the answer in the cache or shares it with the first caller.
func TestHostByAnswerBeforeFence(t *testing.T) {
	for name, cached := range map[string]bool{"from the cache": true, "in the same flight": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agent, store := &fencedAgent{}, &slowAnswer{Memory: pinstore.NewMemory(), goOn: make(chan struct{})}
				agent.fence(0)
				r := newResolver(agent, 6*time.Second, store, Config{Log: slog.New(slog.DiscardHandler)}.WithDefaults())
				host := func() {
					if h, err := r.Host(t.Context(), "r", Demand{}); err == nil || !errors.Is(err, ErrFenced) && !errors.Is(err, ErrNotOwner) {
						t.Errorf("hosted: %+v, %v", h, err)
					}
				}
				go func() {
					if !cached {
						host()
					} else if a, err := r.Resolve(t.Context(), "r", Demand{}); err != nil || a.Node != "a" {
						t.Errorf("resolved to %+v, %v", a, err)
					}
				}()
				synctest.Wait()
				agent.fence(1)
				r.checkFence()
				pin := store.Memory.Swap(t.Context(), pinstore.Op{Room: "r"})[0].Pin
				to := pinstore.Pin{Incarnation: lease.Incarnation{Node: "b", Number: 1}, Size: 1}
				moved := store.Memory.Swap(t.Context(), pinstore.Op{Room: "r", If: pin, Set: to, TTL: r.cfg.PinTTL})
				if !moved[0].Done {
					t.Fatalf("the room does not move: %+v", moved)
				}
				if !cached {
					go host()
					synctest.Wait()
				}
				close(store.goOn)
				synctest.Wait()
				if cached {
					_, _ = store.Heartbeat(t.Context(), to.Incarnation, 6*time.Second, nil)
					host()
				}
			})
		})
	}
}

// byPartition is a store that finds a pin only in its own partition, as Redis does.
type byPartition struct {
	*pinstore.Memory
	partitions int
}

func (s byPartition) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	results := make([]pinstore.Result, len(ops))
	for i, op := range ops {
		if op.Partition == placement.Of(op.Room, s.partitions) {
			results[i] = s.Memory.Swap(ctx, op)[0]
		}
	}
	return results
}

// A fenced node has no table until it has joined again. Then it publishes the rooms that moved meanwhile.
func TestMovesWhileFenced(t *testing.T) {
	self := &cluster.Member{Profile: lease.Profile{ID: "a", Incarnation: 1, Weight: 1}, State: lease.Active}
	other := &cluster.Member{Profile: lease.Profile{ID: "b", Incarnation: 1, Weight: 1}, State: lease.Active}
	table, err := placement.Compute(placement.Input{Partitions: 64, Nodes: []placement.Node{{ID: "a", Weight: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	agent, store := &fencedAgent{}, byPartition{pinstore.NewMemory(), 64}
	joined := &cluster.Snapshot{Self: self, Members: []*cluster.Member{self, other}, Table: table}
	agent.shown.Store(joined)
	r := newResolver(agent, 6*time.Second, store, Config{Log: slog.New(slog.DiscardHandler)}.WithDefaults())
	k := &keeper{Resolver: r}
	a, err := r.Resolve(t.Context(), "r", Demand{})
	if err != nil || a.Node != "a" {
		t.Fatalf("%+v, %v", a, err)
	}
	op := pinstore.Op{Partition: a.Partition, Room: "r"}
	op.If = store.Swap(t.Context(), op)[0].Pin
	op.Set, op.TTL = pinstore.Pin{Incarnation: lease.Incarnation{Node: "b", Number: 1}, Size: 1}, time.Hour
	if moved := store.Swap(t.Context(), op)[0]; !moved.Done {
		t.Fatalf("the room does not move: %+v", moved)
	}

	next, stop := iter.Pull(r.Moves(t.Context()))
	defer stop()
	joining := *joined
	joining.Table = nil
	agent.shown.Store(&joining)
	r.changed("r")
	k.takeUp(t.Context())
	agent.shown.Store(joined)
	k.takeUp(t.Context())
	r.feeds.moves.close()
	if batch, ok := next(); !ok || len(batch.Moved) != 1 || batch.Moved[0].Room != "r" {
		t.Errorf("%+v is published, want the move", batch)
	}
}

// noHeartbeat is a store that does not answer heartbeats.
type noHeartbeat struct{ *pinstore.Memory }

func (noHeartbeat) Heartbeat(context.Context, lease.Incarnation, time.Duration, []lease.Incarnation) ([]bool, error) {
	return nil, pinstore.ErrStore
}

// While the store is away, the list of rooms to check does not grow. When the store is back, the node checks
// all rooms.
func TestOutageIsBounded(t *testing.T) {
	agent := &fencedAgent{}
	agent.fence(0)
	r := newResolver(agent, 6*time.Second, noHeartbeat{pinstore.NewMemory()}, Config{Log: slog.New(slog.DiscardHandler)}.WithDefaults())
	k := &keeper{Resolver: r}
	for !r.store.Away() {
		_, _ = k.sendHeartbeat(t.Context(), nil)
	}
	for i := range 1000 {
		r.work.rooms.add(fmt.Sprint("room-", i))
		k.takeUp(t.Context())
	}
	if n := len(r.work.rooms.items); n > 1 {
		t.Errorf("%d rooms wait", n)
	}
}
