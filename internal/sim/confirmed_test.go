package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// watched returns n nodes that watch each other.
func watched(t *testing.T, n int, opts sim.Options) fleet {
	t.Helper()
	c := started(t, n, opts)
	c.Run(3 * time.Second) // the streams are open
	return c
}

// When a process ends, all nodes agree on this within a second, long before its lease ends.
func TestKill(t *testing.T) {
	for _, n := range []int{2, 3, 10, 50} {
		c := watched(t, n, sim.Options{})
		before := c.Owners()
		c.Crash("n01")
		t.Logf("%d nodes: agreement %v after the kill", n, c.agree(time.Second))
		c.onlyMoved(before, from("n01"))
	}
}

// A tenth of the nodes is killed at the same moment. Nearly all of them have two watchers that survive, so their end is
// confirmed. The leases of the others expire. TestScale has 260 nodes with loss.
func TestKillsInALargeFleet(t *testing.T) {
	n := 100
	if *long {
		n = 300
	}
	c := watched(t, n, sim.Options{})
	r := c.record()
	c.Crash(ids(n)[20 : 20+n/10]...)
	c.Run(time.Second)
	tables, most := r.tables()
	for _, id := range c.IDs() {
		if ended := c.Node(id).View().Stats.Crashed; ended < uint64(n/10*9/10) {
			t.Errorf("%s counts %d confirmed failures, killed were %d", id, ended, n/10)
		}
	}
	t.Logf("%d tables after %d kills, at most %d at a node; agreement %v later", tables, n/10, most, c.agree(ttl))
	if most > 3 {
		t.Errorf("a node had %d tables in a second", most)
	}
}

// If a host vanishes together with its process, the keep-alives of the watch streams detect this.
func TestVanishedHost(t *testing.T) {
	for _, n := range []int{3, 10, 50} {
		c := watched(t, n, sim.Options{})
		c.Vanish("n01")
		t.Logf("%d nodes: agreement %v after the host vanished", n, c.agree(ttl/2+time.Second))
	}
}

// None of these faults moves a partition: a pause, with and without loss, the loss of 30 % of the packets of a host,
// and a reset of all streams of a node, even if the node accepts no streams afterwards.
func TestUnconfirmed(t *testing.T) {
	for _, c := range []struct {
		name    string
		loss    float64
		trouble func(c fleet)
	}{
		{"a pause", 0, func(c fleet) {
			c.Pause("n01")
			c.Run(4 * time.Second)
			c.Resume("n01")
		}},
		{"a pause at 20 % loss", 0.2, func(c fleet) {
			c.Pause("n01")
			c.Run(4 * time.Second)
			c.Resume("n01")
		}},
		{"30 % loss of one host", 0, func(c fleet) {
			c.SetLossOf("n01", 0.3, 0.3)
			c.Run(5 * time.Minute)
		}},
		{"a reset", 0, func(c fleet) { c.ResetStreams("n01") }},
		{"a reset of all", 0, func(c fleet) {
			for _, id := range c.IDs() {
				c.ResetStreams(id)
			}
		}},
		{"no streams", 0, func(c fleet) {
			c.RefuseStreams("n01", true)
			c.ResetStreams("n01")
		}},
		{"no streams at 20 % loss", 0.2, func(c fleet) {
			c.RefuseStreams("n01", true)
			c.ResetStreams("n01")
		}},
		{"a pause of the watchers", 0, func(c fleet) {
			for _, id := range c.IDs()[2:] {
				c.Pause(id)
			}
			c.RefuseStreams("n01", true)
			c.ResetStreams("n01")
			c.Run(4 * time.Second)
			for _, id := range c.IDs()[2:] {
				c.Resume(id)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := watched(t, 20, sim.Options{Loss: c.loss})
			r := f.record()
			c.trouble(f)
			f.Run(10 * time.Second)
			f.check()
			r.stop(nothing)
			for _, id := range f.IDs() {
				if left := r.left(id); len(left) > 0 {
					t.Errorf("%s published that %v left", id, left)
				}
			}
		})
	}
}

// A single member that keeps reporting all other members as ended has no effect.
func TestForgedFailureReports(t *testing.T) {
	c := started(t, 10, sim.Options{})
	r := c.record()
	for range 50 {
		for _, m := range c.Node("n00").View().Live.Members {
			if m.ID != "n00" {
				c.Node("n00").ReportFailure(m.Handle)
			}
		}
		c.Run(200 * time.Millisecond)
	}
	c.check()
	for _, id := range c.IDs()[1:] {
		if left := r.left(id); len(left) > 0 {
			t.Errorf("%s published that %v left", id, left)
		}
	}
}

// If a process is killed and started again, partitions move away from its node at most once, and all of them return.
func TestKillAndRestart(t *testing.T) {
	for _, pause := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprint(pause, same), func(t *testing.T) {
				c := watched(t, 20, sim.Options{})
				r, before := c.record(), c.Owners()
				setup := sim.Setup{}
				if same {
					setup.Addr = c.Node("n01").Addr
				}
				c.Crash("n01")
				c.Run(pause)
				c.StartWith("n01", setup)
				c.agree(3 * time.Second)
				c.Run(2 * ttl)
				c.check()
				c.onlyMoved(before, nothing)
				for _, id := range c.IDs() {
					if id == "n01" {
						continue
					}
					away := 0
					for _, b := range r.batches(id) {
						if slices.ContainsFunc(b.Moved, func(m placement.Move) bool { return m.From == "n01" }) {
							away++
						}
					}
					if away > 1 {
						t.Errorf("at %s, partitions moved away from n01 %d times", id, away)
					}
				}
			})
		}
	}
}

// Each node publishes why another node is gone.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		why       lease.Reason
		unwatched bool
		trouble   func(c fleet)
	}{
		{lease.Crashed, false, func(c fleet) { c.Crash("n01") }},
		{lease.Crashed, false, func(c fleet) { c.Vanish("n01") }},
		{lease.Expired, true, func(c fleet) { c.Crash("n01") }},
		{lease.Expired, false, func(c fleet) { c.Pause("n01") }},
		{lease.Departed, false, func(c fleet) { c.Leave("n01") }},
		{lease.Replaced, false, func(c fleet) { c.Restart("n01") }},
	} {
		t.Run(string(c.why), func(t *testing.T) {
			f := newFleet(t, sim.Options{Unwatched: c.unwatched})
			f.Start(ids(5)...)
			f.agree(3 * time.Second)
			f.Run(3 * time.Second)
			r := f.record()
			c.trouble(f)
			f.Run(ttl + 2*time.Second)
			for _, id := range []string{"n00", "n02", "n03", "n04"} {
				var why []lease.Reason
				for _, b := range r.batches(id) {
					for _, left := range b.Left {
						why = append(why, b.Reasons[left])
					}
				}
				if !slices.Equal(why, []lease.Reason{c.why}) {
					t.Errorf("%s published %q, want %s once", id, why, c.why)
				}
			}
		})
	}
}
