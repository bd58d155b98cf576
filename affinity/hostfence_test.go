package affinity

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster"
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

// fence sets the number of fences.
func (a *fencedAgent) fence(fences uint64) {
	self := &cluster.Member{ID: "a", Incarnation: 1, State: lease.Active, Weight: 1}
	table, _ := placement.Compute(placement.Input{Partitions: 1, Nodes: []placement.Node{{ID: "a", Weight: 1}}})
	a.shown.Store(&cluster.Snapshot{
		Self: self, Members: []*cluster.Member{self}, Table: table, Stats: cluster.Stats{Fences: fences},
	})
}

// slowAnswer is a store with a first answer that takes its time.
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

// An answer is under way when the node is fenced and its room moves. No later call of Host
// opens a hosting by it: neither from the cache, nor with the caller who asked.
func TestHostByAnswerBeforeFence(t *testing.T) { // S0.7
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
