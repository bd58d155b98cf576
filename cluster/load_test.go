package cluster_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// withResources starts nodes with a capacity of 1,000 units and these resources.
func withResources(t *testing.T, resources map[string]int64, ids ...string) *clustertest.Cluster {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) { c.Capacity, c.Resources = 1000, resources }})
	c.Start(ids...)
	c.WaitAgreed(10 * time.Second)
	return c
}

// The tightest resource decides the load that other nodes see, unless the load in units is greater.
func TestTightestResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withResources(t, map[string]int64{"cpu": 800, "egress_mbit": 10_000}, "a", "b")
		a := c.Agent("a")
		want := func(what string, err error, load int64, tightest string) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			time.Sleep(5 * time.Second)
			if m, _ := c.Agent("b").Member("a"); m.Load != load {
				t.Errorf("%s: b sees a load of %d, want %d", what, m.Load, load)
			}
			own, got := a.Load(), ""
			for _, r := range own.Resources {
				if r.Tightest {
					got += r.Name
				}
			}
			if own.Total() != load || got != tightest {
				t.Errorf("%s: the load is %d, and the tightest resource is %q; want %d and %q", what, own.Total(), got, load, tightest)
			}
		}
		want("nothing is reported", nil, lease.NoLoad, "")
		want("cpu", a.SetUse(map[string]int64{"cpu": 640}), 800, "cpu")
		want("more egress", a.SetUse(map[string]int64{"egress_mbit": 9301}), 931, "egress_mbit") // rounded up
		want("cpu keeps its value", a.SetUse(map[string]int64{"egress_mbit": 100}), 800, "cpu")
		want("fewer units", a.SetLoad(799), 800, "cpu")
		want("more units", a.SetLoad(801), 801, "cpu")
		want("nothing is used", a.SetUse(map[string]int64{"egress_mbit": 0, "cpu": 0}), 801, "cpu")
		want("idle", a.SetLoad(0), 0, "cpu")
		want("twice the capacity", a.SetUse(map[string]int64{"cpu": 1600}), 2000, "cpu")

		set, release, err := a.ComputeLoad()
		want("computed", err, 2000, "cpu")
		set(2001)
		want("more computed units", nil, 2001, "cpu")
		want("use with a computed load", a.SetUse(map[string]int64{"cpu": 1700}), 2125, "cpu")
		release()
		want("released", a.SetLoad(5), 2125, "cpu")
	})
}

// A use that cannot be right changes nothing, and the error names the resources of the node.
func TestSetUseProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withResources(t, map[string]int64{"cpu": 800, "egress_mbit": 10_000}, "a")
		a := c.Agent("a")
		for _, bad := range []struct {
			use  map[string]int64
			want []string
		}{
			{map[string]int64{"cpu": 1, "disk": 2}, []string{`"disk" is not`, "cpu, egress_mbit"}},
			{map[string]int64{"cpu": 1, "egress_mbit": -2}, []string{"egress_mbit is -2"}},
			{nil, []string{"no resource is given", "cpu, egress_mbit"}},
		} {
			err := a.SetUse(bad.use)
			if !errors.Is(err, cluster.ErrUse) {
				t.Errorf("%v: %v", bad.use, err)
				continue
			}
			for _, part := range bad.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: %q does not contain %q", bad.use, err, part)
				}
			}
		}
		if own := a.Load(); own.Total() != lease.NoLoad || own.Resources[0].Use != 0 {
			t.Errorf("the load is %+v", own)
		}
		plain := c.StartWith("plain", clustertest.WithConfig(func(c *cluster.Config) { c.Resources = nil }))
		if err := plain.SetUse(map[string]int64{"cpu": 1}); !errors.Is(err, cluster.ErrUse) || !strings.Contains(err.Error(), "--resources") {
			t.Errorf("without resources: %v", err)
		}
	})
}

// Numbers that are too large for a product saturate.
func TestHugeUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withResources(t, map[string]int64{"a": 1, "b": math.MaxInt64}, "a")
		a := c.Agent("a")
		for _, step := range []struct {
			resource  string
			use, want int64
		}{{"b", math.MaxInt64, 1000}, {"b", 1, 1}, {"a", math.MaxInt64, math.MaxInt64}} {
			if err := a.SetUse(map[string]int64{step.resource: step.use}); err != nil || a.Load().Total() != step.want {
				t.Errorf("%s %d: the load is %d, want %d; %v", step.resource, step.use, a.Load().Total(), step.want, err)
			}
		}
	})
}

func TestResourceProblems(t *testing.T) {
	for want, resources := range map[string]map[string]int64{
		"5 Resources, at most 4":            {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1},
		`Resources has the name "a b"`:      {"a b": 1},
		`Resources has the name ""`:         {"": 1},
		"Resources has 0 for cpu":           {"cpu": 0},
		"Resources need a Capacity":         {"cpu": 1},
		"a name has 1 to 64 bytes":          {strings.Repeat("x", 65): 1},
		"Resources has -1 for egress_mbit;": {"egress_mbit": -1},
	} {
		cfg := cluster.Config{ID: "a", Capacity: 7, Resources: resources}
		if strings.HasPrefix(want, "Resources need") {
			cfg.Capacity = 0
		}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", resources, err, want)
		}
	}
	good := cluster.Config{ID: "a", Capacity: 7, Resources: map[string]int64{"a": 1, "B_2": math.MaxInt64, "c": 1, "d": 1}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// SetLoad, SetUse and Load may be called by any goroutine. The last values count together.
func TestConcurrentReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := withResources(t, map[string]int64{"r0": 10_000, "r1": 10_000, "r2": 10_000}, "a")
		a := c.Agent("a")
		var wait sync.WaitGroup
		for i := range 3 {
			wait.Go(func() {
				for n := range int64(500) {
					if err := errors.Join(a.SetUse(map[string]int64{fmt.Sprint("r", i): n}), a.SetLoad(n/10)); err != nil {
						t.Error(err)
					}
					own := a.Load()
					tightest := 0
					for _, r := range own.Resources {
						if r.Tightest {
							tightest++
						}
					}
					if tightest != 1 || len(own.Resources) != 3 {
						t.Errorf("%+v", own)
					}
				}
			})
		}
		wait.Wait()
		if own := a.Load(); own.Units != 49 || own.Used != 50 {
			t.Errorf("the load is %+v", own)
		}
	})
}

// Reading the load and setting its units allocate nothing, because a Resolver does both with each heartbeat.
func TestLoadAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := withResources(t, map[string]int64{"cpu": 800}, "a").Agent("a")
		if err := a.SetUse(map[string]int64{"cpu": 1}); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { _ = a.SetLoad(a.Load().Total()) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
