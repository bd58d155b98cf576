package sim_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// disguised is another strategy with the name of rendezvous, as in a faulty build.
type disguised struct{ placement.Strategy }

func (disguised) Name() string { return placement.Rendezvous().Name() }

func TestDivergenceIsCounted(t *testing.T) {
	c := started(t, 3, sim.Options{})
	c.Run(5 * time.Second)
	last := c.Node("n00").View().Stats
	within := func(what string, least, most uint64, shortest, longest time.Duration) {
		t.Helper()
		s := c.Node("n00").View().Stats
		times, by := s.Divergences-last.Divergences, s.DivergedTime-last.DivergedTime
		last = s
		if times < least || times > most || by < shortest || by > longest {
			t.Errorf("%s: diverged %d times, %v in all; want %d to %d, %v to %v", what, times, by, least, most, shortest, longest)
		}
	}
	skip := func() { last = c.Node("n00").View().Stats }

	c.Run(10 * time.Minute)
	within("ten minutes of rest", 0, 0, 0, 0)

	c.Start("n03")
	c.agree(time.Second)
	c.Run(5 * time.Second)
	within("a join", 1, 3, time.Millisecond, 2*time.Second)

	c.StartWith("odd", sim.Setup{Config: func(c *node.Config) { c.Strategy = disguised{placement.Modulo()} }})
	c.Run(10 * time.Second) // it is in
	skip()
	c.Run(10 * time.Minute)
	within("ten minutes with another table", 0, 0, 10*time.Minute-5*time.Second, 10*time.Minute+5*time.Second)
	if d := c.Node("n00").View().Diverged; d != 1 {
		t.Errorf("%d members diverge, want 1", d)
	}

	c.Pause("n00")
	c.Run(10 * time.Minute)
	c.Resume("n00")
	c.Run(10 * time.Second)
	within("ten minutes of pause", 1, 3, time.Second, 15*time.Second)

	c.Crash("odd")
	c.Run(2 * ttl)
	skip()
	c.Run(10 * time.Minute)
	within("ten minutes after it", 0, 0, 0, 0)
}

// A table is logged once when it becomes uneven, and once when it is even again. Here, two nodes divide eight
// partitions badly whenever the second node is not draining.
func TestBalanceIsLogged(t *testing.T) {
	var book logbook
	c := newFleet(t, sim.Options{Log: book.write, Config: func(c *node.Config) { c.Partitions = 8 }})
	c.Start("a")
	c.Run(5 * time.Minute)
	if lines := book.find("spread"); len(lines) > 0 {
		t.Errorf("a single node logs its balance: %s", lines)
	}
	c.StartWith("b", sim.Setup{Config: func(c *node.Config) { c.StartDraining = true }})
	c.Run(5 * time.Second)
	for range 3 {
		for _, tt := range []struct {
			turn func(id string)
			want []string
		}{
			{c.undrain, []string{"level=4", "raise Partitions from 8 to "}}, {c.drain, []string{"level=0", "evenly again"}},
		} {
			book = nil
			tt.turn("b")
			c.Run(10 * time.Minute)
			if lines := book.find("node=a ", "spread"); len(lines) != 1 || len(book.find(append(tt.want, "node=a ")...)) != 1 {
				t.Errorf("log %s, want one line with %q", lines, tt.want)
			}
		}
	}
}

// brittle is a strategy that fails for more than three nodes.
type brittle struct {
	placement.Strategy
	assign func(partitions int) ([]int, error)
}

func (brittle) Name() string { return "brittle" }

func (b brittle) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if len(nodes) > 3 {
		return b.assign(partitions)
	}
	return b.Strategy.Assign(nodes, partitions)
}

// A custom strategy has a bug that appears when a fourth node joins. All nodes keep the last good table, and log the
// reason once a minute. When the fourth node is gone, they compute tables again.
func TestStrategyFails(t *testing.T) {
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
			var book logbook
			c := started(t, 3, sim.Options{Log: book.write, Config: func(cfg *node.Config) {
				cfg.Strategy = brittle{placement.Rendezvous(), tt.assign}
			}})
			before, old := c.Owners(), c.IDs()
			c.Start("n03")
			c.Run(90 * time.Second)
			for _, id := range old {
				p := c.Node(id)
				if v := p.View(); len(v.Live.Members) != 4 || len(v.Table.Nodes()) != 3 || !p.Live() || len(p.Owned()) == 0 {
					t.Errorf("%s: %d members, a table of %d nodes, live %v, owns %d",
						id, len(v.Live.Members), len(v.Table.Nodes()), p.Live(), len(p.Owned()))
				}
				if lines := book.find("node="+id+" ", "strategy failed; keeping the last table", "brittle", tt.reason); len(lines) != 2 {
					t.Errorf("%s logged the problem %d times in 90 s", id, len(lines))
				}
			}
			c.onlyMoved(before, nothing)
			newcomer := c.Node("n03")
			if v := newcomer.View(); v.Table != nil || v.State != nil || len(newcomer.Owned()) > 0 {
				t.Errorf("the newcomer, which never had a table, has one, and owns %d", len(newcomer.Owned()))
			}

			c.Crash(old[1])
			c.agree(15 * time.Second)
			if len(newcomer.Owned()) == 0 {
				t.Error("the newcomer owns nothing of a fleet that the strategy can place")
			}
		})
	}
}

// A strategy fails once, on one node. The node computes the table again soon, without waiting until another node joins
// or leaves.
func TestStrategyFailsOnce(t *testing.T) {
	failed := false
	c := started(t, 3, sim.Options{Config: func(cfg *node.Config) {
		self := cfg.Self.ID
		cfg.Strategy = brittle{placement.Rendezvous(), func(n int) ([]int, error) {
			if self == "n01" && !failed {
				failed = true
				return nil, errors.New("for a moment")
			}
			return make([]int, n), nil // all partitions to the first node
		}}
	}})
	c.Start("n03")
	c.agree(5 * time.Second)
	if !failed {
		t.Error("the strategy did not fail")
	}
}
