package fleettest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

// others returns settings that differ from the settings of a fleet. The keys are parts of the expected errors.
func others(s setup) map[string]setup {
	s.ID, s.Join = "x", nil
	partitions, prefix, cost, name := s, s, s, s
	partitions.Partitions, prefix.Prefix, cost.CostTimes, name.Cluster = 64, "other:", 2, "other"
	return map[string]setup{
		`partitions is 64 here and 1024 on `:                                     partitions,
		`prefix is other: here and roost: on `:                                   prefix,
		`cost of 2 participants is 4 here and 2 on `:                             cost,
		`cluster "` + s.Cluster + `" uses the keys of this store (according to `: name,
	}
}

// takesRooms fails the test unless all nodes place rooms and the hosted rooms still have their hosts.
func (f *fleet) takesRooms(hosted map[*affinity.Hosting]*node) {
	f.t.Helper()
	for _, n := range f.nodes {
		if why := n.rooms.Stats().Refused; why != "" {
			f.t.Errorf("%s is refused: %s", n.agent.Snapshot().Self.ID, why)
		}
	}
	for h := range hosted {
		if lost(h) {
			f.t.Errorf("%s is lost: %v", h.Room(), h.Err())
		}
	}
}

// isRefused waits until a node notices that it is refused.
func isRefused(t *testing.T, n *node, text string) {
	t.Helper()
	redistest.Eventually(t, "the other node to be refused", func() error {
		if why := n.rooms.Stats().Refused; !strings.Contains(why, text) {
			return fmt.Errorf("refused: %q; want %q", why, text)
		}
		return nil
	})
}

// A node with a different number of partitions, prefix or Cost, or from another cluster, is refused with an error that
// names the difference. The running nodes are not refused, and nodes with equal settings can start and stop. After all
// nodes have ended, other settings are accepted.
func TestSettings(t *testing.T) {
	t.Parallel() // it mostly waits
	f := newFleet(t, setup{URL: redistest.Start(t).URL()}, "a", "b")
	hosted := f.host(names(10), 2)
	for range 2 {
		for text, s := range others(f.setup) {
			n, err := startNode(t.Context(), s)
			if err == nil { // Redis took longer than the budget to answer Start
				isRefused(t, n, text)
				n.close()
			} else if !errors.Is(err, affinity.ErrSettings) || !strings.Contains(err.Error(), text) {
				t.Errorf("%+v: %v; want an ErrSettings with %q", s, err, text)
			}
		}
		f.takesRooms(hosted)
		f.nodes[1].close() // a rolling restart
		f.nodes = f.nodes[:1]
		for h, n := range hosted {
			if n != f.nodes[0] {
				delete(hosted, h)
			}
		}
		f.start("b")
		f.waitAgreed()
		f.takesRooms(hosted)
		f.host([]string{"one more"}, 2)
	}
	for _, n := range f.nodes {
		n.close()
	}
	f.nodes = nil
	f.setup.Partitions, f.setup.Prefix, f.setup.CostTimes = 64, "other:", 2
	f.start("a")
}

// Redis loses its data and returns. One node has rooms, and another node with other settings has started in the
// meantime. The first node continues, even if the other node reaches Redis first.
func TestSettingsAfterRestart(t *testing.T) {
	long(t)
	t.Parallel() // it mostly waits
	redis := redistest.Start(t)
	f := newFleet(t, setup{URL: redis.URL()}, "a")
	hosted := f.host(names(10), 2)
	redis.Kill()
	s := f.setup
	s.ID, s.Partitions = "x", 64
	x, err := startNode(t.Context(), s)
	if err != nil {
		t.Fatalf("Redis is down: %v", err)
	}
	t.Cleanup(x.close)
	redis.Restart()
	isRefused(t, x, "partitions is 64 here and 1024 on ")
	f.takesRooms(hosted)
	f.host([]string{"one more"}, 2)
	if _, err := x.rooms.Resolve(t.Context(), "new", affinity.Demand{}); !errors.Is(err, affinity.ErrSettings) {
		t.Errorf("%v; want an ErrSettings", err)
	}
	f.takesRooms(hosted)
}
