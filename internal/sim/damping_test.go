package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/placement"
)

// Nodes that crash together make one new table, though their leases run out one by one, over
// a heartbeat interval. A single crash waits for nothing.
func TestCrashesMakeOneTable(t *testing.T) { // S5.5
	t.Parallel()
	for _, tt := range []struct {
		nodes, crash int
		loss         float64
	}{{100, 1, 0.2}, {100, 30, 0.2}, {300, 10, 0}} {
		t.Run(fmt.Sprintf("%d of %d", tt.crash, tt.nodes), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && tt.nodes > 100 {
				t.Skip("takes seconds")
			}
			c := started(t, tt.nodes, sim.Options{Seed: 1, Jitter: 2 * time.Millisecond, Loss: tt.loss, Unwatched: true})
			c.Run(10 * time.Second)
			r := c.record()
			c.Crash(c.IDs()[:tt.crash]...)
			if tt.crash > 1 {
				c.Run(ttl + time.Second)
			} else if waited := c.longestWait(ttl + time.Second); waited > 0 {
				t.Errorf("a single expiry waits for %v", waited)
			}
			tables := make(map[placement.Digest]bool)
			for _, id := range c.IDs() {
				for _, b := range c.Node(id).Batches()[r.seen[id]:] {
					tables[b.Digest] = true
				}
			}
			if len(tables) != 1 {
				t.Errorf("%d tables on the way", len(tables))
			}
			c.check()
		})
	}
}

// longestWait lets time pass, and returns the longest time between the first new loss that
// a node saw and the table without it.
func (c fleet) longestWait(limit time.Duration) (longest time.Duration) {
	type look struct {
		expired, tables uint64
		since           time.Duration
	}
	looks := make(map[string]look)
	stats := func(id string) node.Stats { return c.Node(id).View().Stats }
	for _, id := range c.IDs() {
		s := stats(id)
		looks[id] = look{expired: s.Expired, tables: s.TableChanges}
	}
	for end := c.Elapsed() + limit; c.Elapsed() < end; c.Run(20 * time.Millisecond) {
		for id, l := range looks {
			s := stats(id)
			switch {
			case s.TableChanges > l.tables && l.since > 0:
				longest = max(longest, c.Elapsed()-l.since)
				l = look{s.Expired, s.TableChanges, 0}
			case s.TableChanges > l.tables:
				l = look{s.Expired, s.TableChanges, 0}
			case s.Expired > l.expired && l.since == 0:
				l.since = c.Elapsed()
			}
			looks[id] = l
		}
	}
	return longest
}
