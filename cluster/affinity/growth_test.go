package affinity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// burst lets 92 participants join one room within 31 s, and returns how many were let in, and the nodes that were
// named for the others. Nodes carry 1,000 units, and the room costs n·(n-1).
func burst(t *testing.T, f *fleet, join func(id string) error) (in int, relays map[lease.NodeID]int) {
	t.Helper()
	at := string(f.resolve("a", "r", 1).Node)
	relays = make(map[lease.NodeID]int)
	for range 92 {
		err := join(at)
		var outgrown *affinity.OutgrownError
		switch {
		case err == nil:
			in++
		case !errors.As(err, &outgrown) || !errors.Is(err, affinity.ErrNoCapacity) || string(outgrown.Node) != at || outgrown.Room != "r":
			t.Fatalf("refused with %v", err)
		case outgrown.Relay == nil || string(outgrown.Relay.ID) == at:
			t.Fatalf("relay %v", outgrown.Relay)
		default:
			relays[outgrown.Relay.ID]++
		}
		time.Sleep(31 * time.Second / 92)
		if load := f.Agent(at).Snapshot().Self.Load; load > capacity {
			t.Fatalf("the node carries %d units", load)
		}
	}
	return in, relays
}

// A room that outgrows its node accepts no more participants, and names the same node as relay each time.
func TestLimitGrowth(t *testing.T) {
	for what, start := range map[string]func(t *testing.T, f *fleet) func(id string) error{
		"Serve": func(t *testing.T, f *fleet) func(id string) error {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			return func(id string) error {
				result := make(chan error, 1)
				go func() {
					result <- f.rooms[id].Serve(ctx, "r", affinity.Demand{}, func(ctx context.Context, _ *affinity.Hosting) error {
						result <- nil
						<-ctx.Done()
						return nil
					})
				}()
				return <-result
			}
		},
		"Host": func(_ *testing.T, f *fleet) func(id string) error {
			present := 0
			return func(id string) error {
				_, err := f.rooms[id].Host(context.Background(), "r", affinity.Demand{Size: present + 1})
				if err == nil {
					present++
				}
				return err
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, pinstore.NewMemory(), affinity.Config{HardCeiling: 100, LimitGrowth: true, ReportLoad: true}, "a", "b", "c")
				in, relays := burst(t, f, start(t, f))
				if in != 32 { // 32·31 = 992 units
					t.Errorf("%d participants were let in, want 32", in)
				}
				if len(relays) != 1 {
					t.Errorf("relays %v, want one node", relays)
				}
			})
		})
	}
}

// By default, a room grows without a limit.
func TestGrowth(t *testing.T) {
	inFleet(t, "a b c", func(t *testing.T, f *fleet) {
		h := f.host("a", "r", 1)
		at := string(f.resolve("a", "r", 1).Node)
		f.hostAt(at, "r", 100)
		if lost(h) || f.rooms[at].Stats().Outgrown != 0 {
			t.Errorf("lost %v, %+v", lost(h), f.rooms[at].Stats())
		}
	})
}

// A join that costs nothing more succeeds on a full node. With a measured load, what was let in counts until the load
// can show it.
func TestLimitGrowthOfMeasuredLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{HardCeiling: 100, LimitGrowth: true}, "a", "b", "c")
		h := f.host("a", "r", 10)
		at := string(f.resolve("a", "r", 1).Node)
		f.Agent(at).SetLoad(500)
		time.Sleep(20 * time.Second)
		f.hostAt(at, "r", 20) // 290 units more
		for range 4 {
			if _, err := f.rooms[at].Host(t.Context(), "r", affinity.Demand{Size: 27}); !errors.Is(err, affinity.ErrNoCapacity) { // 322 more
				t.Fatalf("beyond the ceiling: %v", err)
			}
			f.hostAt(at, "r", 20)
			f.hostAt(at, "r", 1)
			time.Sleep(time.Second)
		}
		f.Agent(at).SetLoad(600) // it has measured less than was thought
		time.Sleep(20 * time.Second)
		f.hostAt(at, "r", 27)
		if s := f.rooms[at].Stats(); s.Outgrown != 4 || lost(h) {
			t.Errorf("refused %d, lost %v", s.Outgrown, lost(h))
		}
	})
}

// A node whose egress is almost used up refuses participants, although its rooms cost little. What was let in counts
// until the measured egress can show it.
func TestLimitGrowthByResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{HardCeiling: 100, LimitGrowth: true, ReportLoad: true}, "a", "b", "c")
		h := f.host("a", "r", 2)
		at := string(f.resolve("a", "r", 1).Node)
		use := func(percent int64) {
			t.Helper()
			if err := f.Agent(at).SetUse(map[string]int64{"egress": egress * percent / 100}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Second)
		}
		refused := func() {
			t.Helper()
			var outgrown *affinity.OutgrownError
			if _, err := f.rooms[at].Host(t.Context(), "r", affinity.Demand{Size: 9}); !errors.As(err, &outgrown) || outgrown.Relay == nil { // 52 units more than 5
				t.Fatalf("beyond the ceiling: %v", err)
			}
		}
		use(95)
		f.hostAt(at, "r", 5) // 18 units more
		for range 4 {
			refused()
			time.Sleep(time.Second)
		}
		use(96)
		refused()
		use(90)
		f.hostAt(at, "r", 9)
		use(1)
		f.hostAt(at, "r", 27)       // 702 units
		time.Sleep(3 * time.Second) // the cost of the room is known
		f.hostAt(at, "r", 31)       // 930 units
		if s := f.rooms[at].Stats(); s.Outgrown != 5 || lost(h) {
			t.Errorf("refused %d, lost %v", s.Outgrown, lost(h))
		}
	})
}
