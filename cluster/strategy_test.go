package cluster_test

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/placement"
)

// brittle is a strategy that fails beyond three nodes, in Assign or in Rank.
type brittle struct {
	placement.Strategy
	assign func(partitions int) ([]int, error)
	rank   func() []int
}

func (brittle) Name() string { return "brittle" }

func (b brittle) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if b.assign != nil && len(nodes) > 3 {
		return b.assign(partitions)
	}
	return b.Strategy.Assign(nodes, partitions)
}

func (b brittle) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	if b.rank != nil && len(nodes) > 3 {
		return b.rank()
	}
	return b.Strategy.Rank(nodes, p, n)
}

// line returns the first line of the log with all parts, "" for none.
func (l *logbook) line(parts ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.out.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue next
			}
		}
		return line
	}
	return ""
}

// A user's strategy has a slip that a join brings out. All keep the last good table
// and say why; when the fleet is as before, they go on.
func TestStrategyFails(t *testing.T) { // S2.1, S4.6
	for what, tt := range map[string]struct {
		assign func(partitions int) ([]int, error)
		reason string
	}{
		"panic":     {func(int) ([]int, error) { panic("no such zone") }, "panic: no such zone"},
		"error":     {func(int) ([]int, error) { return nil, errors.New("no such zone") }, "no such zone"},
		"too short": {func(n int) ([]int, error) { return make([]int, n-1), nil }, "assigned 1023 partitions of 1024"},
		"nonsense":  {func(n int) ([]int, error) { all := make([]int, n); all[7] = 99; return all, nil }, "partition 7 to node index 99 of 4"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var book logbook
				c := started(t, 3, clustertest.Options{Log: book.handler(), Config: func(cfg *cluster.Config) {
					cfg.Strategy = brittle{Strategy: placement.Rendezvous(), assign: tt.assign}
				}})
				before, old := owners(c), c.IDs()
				c.StartWith("n03")
				time.Sleep(time.Minute)
				keepLastTable(t, c, &book, tt.reason)
				if !maps.Equal(before, owners(c)) {
					t.Error("partitions moved though the strategy failed")
				}
				newcomer := c.Agent("n03")
				if _, err := newcomer.Place("room"); !errors.Is(err, cluster.ErrNotReady) || len(newcomer.Owned()) > 0 {
					t.Errorf("the newcomer, which never had a table, places: %v; owns %d", err, len(newcomer.Owned()))
				}

				c.Crash(old[1])
				c.WaitAgreed(15 * time.Second)
				if len(newcomer.Owned()) == 0 {
					t.Error("the newcomer owns nothing of a fleet that the strategy can place")
				}
			})
		})
	}
}

// keepLastTable checks the first three nodes after a fourth has joined.
func keepLastTable(t *testing.T, c *clustertest.Cluster, book *logbook, reason string) {
	t.Helper()
	for _, id := range c.IDs()[:3] {
		a := c.Agent(id)
		s := a.Snapshot()
		if len(s.Members) != 4 || len(s.Table.Nodes()) != 3 || !a.Live() || a.Err() != nil {
			t.Errorf("%s: %d members, a table of %d nodes, live %v, %v", id, len(s.Members), len(s.Table.Nodes()), a.Live(), a.Err())
		}
		if m, err := a.Place("room"); err != nil || !sees(c, id, string(m.ID)) {
			t.Errorf("%s places a room on %v: %v", id, m, err)
		}
		if len(a.Owned()) == 0 {
			t.Errorf("%s owns nothing any more", id)
		}
		if book.line("level=ERROR", "node="+id+" ", "keeping the last table", "brittle", reason) == "" {
			t.Errorf("%s does not say in its log that %q", id, reason)
		}
	}
}

// Who comes after the owner is not known then; the owner is.
// A strategy fails once, on one node, while all others go on. That node follows
// soon, and not only when the next node comes or goes.
func TestStrategyFailsForAMoment(t *testing.T) { // S3.7
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Bool
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) {
			assign := func(n int) ([]int, error) {
				all := make([]int, n) // all to the first
				if cfg.ID == "n01" && !failed.Swap(true) {
					return nil, errors.New("for a moment")
				}
				return all, nil
			}
			cfg.Strategy = brittle{Strategy: placement.Rendezvous(), assign: assign}
		}})
		c.Start("n03")
		c.WaitAgreed(5 * time.Second)
		if !failed.Load() {
			t.Error("the strategy did not fail")
		}
	})
}

func TestStrategyFailsToRank(t *testing.T) { // S2.1, S3.11
	synctest.Test(t, func(t *testing.T) {
		c := started(t, 3, clustertest.Options{Config: func(cfg *cluster.Config) {
			cfg.Strategy = brittle{Strategy: placement.Rendezvous(), rank: func() []int { panic("no such zone") }}
		}})
		if n := len(c.Agent("n00").Owners("room", 3)); n != 3 {
			t.Errorf("%d owners of three nodes", n)
		}
		c.Start("n03")
		c.WaitAgreed(5 * time.Second)
		for _, id := range c.IDs() {
			a := c.Agent(id)
			owner, err := a.Place("room")
			ranked := a.Owners("room", 3)
			if err != nil || len(ranked) != 1 || ranked[0].ID != owner.ID {
				t.Errorf("%s ranks %v; the owner is %v (%v)", id, ranked, owner, err)
			}
		}
	})
}
