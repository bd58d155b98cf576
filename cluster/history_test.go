package cluster_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// lineOf formats an event as text. It shows only whether numbers of partitions are 0.
func lineOf(e cluster.Event) string {
	line := strings.Join(slices.DeleteFunc([]string{string(e.Kind), string(e.Member), e.Reason, e.Why},
		func(s string) bool { return s == "" }), " ")
	if e.Members > 0 {
		line += " members"
	}
	if e.Partitions > 0 {
		line += " partitions"
	}
	if e.Kind == cluster.EventMoved {
		line += fmt.Sprintf(" %t %t %t", e.Moved > 0, e.Gained > 0, e.Lost > 0)
	}
	if e.Kind == cluster.EventWeight {
		line += fmt.Sprintf(" %d to %d", e.OldWeight, e.Weight)
	}
	return line
}

// chronicle reads each event of one node once.
type chronicle struct {
	t    *testing.T
	of   *cluster.Agent
	read int
	last time.Time
}

// next fails the test unless exactly these events, in this order, occurred since the previous call.
func (c *chronicle) next(what string, want ...string) {
	c.t.Helper()
	var got []string
	for _, e := range c.of.History().Events[c.read:] {
		if e.At.Before(c.last) {
			c.t.Errorf("%s: %v is before its predecessor", what, e)
		}
		c.last = e.At
		got = append(got, lineOf(e))
	}
	if c.read += len(got); !slices.Equal(got, want) {
		c.t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The history of a node lists what happens to the members and to the node itself, in order, and nothing else.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a", "b", "c", "d", "e")
		settle := func() {
			t.Helper()
			c.WaitAgreed(20 * time.Second)
			time.Sleep(time.Second)
		}
		settle()
		a, b := &chronicle{t: t, of: c.Agent("a")}, &chronicle{t: t, of: c.Agent("b")}
		a.next("start", "started a", "ready a members partitions")
		b.next("start", "started b", "ready b members partitions")

		c.Crash("c")
		settle()
		a.next("crash", "lost c crashed partitions", "moved true true false")
		c.Leave("d")
		settle()
		a.next("leave", "draining d", "moved true true false", "lost d left")
		c.Restart("e")
		settle()
		a.next("restart", "returned e replaced")
		c.Start("c", "f")
		settle()
		a.next("starts", "returned c", "joined f", "moved true false true")
		b.next("all of these", "lost c crashed partitions", "moved true true false", "draining d", "moved true true false", "lost d left",
			"returned e replaced", "returned c", "joined f", "moved true false true")

		if err := c.Agent("b").Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle()
		b.next("own drain", "draining b draining by command", "moved true false true")
		if err := c.Agent("b").Undrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		settle()
		b.next("end of it", "undrained b", "moved true true false")
		a.next("drain", "draining b", "moved true true false", "undrained b", "moved true false true")
		if err := c.Agent("b").SetWeight(50); err != nil {
			t.Fatal(err)
		}
		settle()
		a.next("weight", "weight b 100 to 50", "moved true true false")
		b.next("own weight", "weight b 100 to 50", "moved true false true")

		c.Pause("b")
		time.Sleep(20 * time.Second)
		c.Resume("b")
		settle()
		a.next("pause", "lost b expired partitions", "moved true true false", "returned b", "moved true false true")
		b.next("own pause", "fenced b own lease expired: the process was paused, or could not send partitions", "ready b members partitions")

		if err := c.Agent("a").Cordon(t.Context(), "c", time.Minute, "slow disk"); err != nil {
			t.Fatal(err)
		}
		settle()
		time.Sleep(time.Minute)
		settle()
		a.next("cordon", "cordoned c slow disk", "moved true true false", "uncordoned c", "moved true false true")

		left := c.Agent("b")
		c.Leave("b")
		settle()
		a.next("leave", "draining b", "moved true true false", "lost b left")
		b.of = left
		b.next("own leave", "cordoned c slow disk", "moved true true false", "uncordoned c", "moved true false true",
			"draining b draining by command", "moved true false true", "stopped b left")
	})
}

// The history of an isolated node says why it is isolated, and names other members that release their partitions, too.
func TestHistoryOfIsolation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		few := clustertest.WithConfig(func(cfg *cluster.Config) { cfg.MinMembers = 3 })
		for _, id := range []string{"a", "b", "c"} {
			c.StartWith(id, few)
		}
		c.WaitAgreed(20 * time.Second)
		time.Sleep(time.Second)
		a := &chronicle{t: t, of: c.Agent("a")}
		a.read = len(a.of.History().Events)
		c.Crash("c")
		time.Sleep(20 * time.Second)
		a.next("too few members", "lost c crashed partitions",
			"isolated a isolated too few members: it sees 2, itself included, and needs 3 partitions", "fenced b")
		c.StartWith("c", few)
		c.WaitAgreed(20 * time.Second)
		time.Sleep(time.Second)
		var got []string
		for _, e := range a.of.History().Events[a.read:] {
			got = append(got, lineOf(e))
		}
		slices.Sort(got) // b may be back a moment before or after c
		if want := []string{"ready a members partitions", "ready b", "returned c"}; !slices.Equal(got, want) {
			t.Errorf("enough again: %q, want %q", got, want)
		}
	})
}

// The history has a sample every 10 s, and keeps the samples of the last half hour.
func TestSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a", "b", "c")
		c.WaitAgreed(10 * time.Second)
		a := c.Agent("a")
		a.SetLoad(7)
		time.Sleep(time.Minute)
		samples := a.History().Samples
		last := samples[len(samples)-1]
		if len(samples) < 6 || last.Members != 3 || last.Owned != len(a.Owned()) || last.Moved != 0 || last.Load != 7 {
			t.Errorf("%d numbers, the last are %+v", len(samples), last)
		}
		c.Crash("b")
		time.Sleep(15 * time.Second)
		samples, events := a.History().Samples, a.History().Events
		moved := 0
		for _, f := range samples {
			moved += f.Moved
		}
		if got := events[len(events)-1]; got.Kind != cluster.EventMoved || moved != got.Moved || moved == 0 {
			t.Errorf("numbers say that %d partitions moved, the last event is %+v", moved, got)
		}
		c.Leave("c") // with a alone, the test takes less time
		a.SetLoad(-5)
		time.Sleep(30 * time.Minute)
		if samples = a.History().Samples; len(samples) != 180 {
			t.Errorf("%d numbers after more than half an hour, want 180", len(samples))
		}
		if load := a.Snapshot().Self.Load; load != 0 {
			t.Errorf("load %d after a negative one was reported", load)
		}
		for i := range samples[1:] {
			if took := samples[i+1].At.Sub(samples[i].At); took < 10*time.Second || took > 11*time.Second {
				t.Fatalf("numbers %d follow after %v", i+1, took)
			}
		}
	})
}

// A node adds the reserved units to its load, once it has a load.
func TestReserveLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a", "b")
		c.WaitAgreed(10 * time.Second)
		a := c.Agent("a")
		carries := func(want int64) {
			t.Helper()
			time.Sleep(5 * time.Second)
			if m, _ := c.Agent("b").Snapshot().Member("a"); m.Load != want {
				t.Errorf("the load is %d, want %d", m.Load, want)
			}
		}
		first, second := a.ReserveLoad(), a.ReserveLoad()
		first(5)
		carries(lease.NoLoad)
		a.SetLoad(100)
		carries(105)
		second(20)
		first(7)
		carries(127)
		a.SetLoad(math.MaxInt64 - 10)
		carries(math.MaxInt64 - 1) // the greatest load
		a.SetLoad(1)
		second(-3)
		carries(8)
		first(0)
		carries(1)
	})
}
