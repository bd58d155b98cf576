package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// If a node can tell that its seeds lead only to itself, it starts immediately. If a seed is an alias that the node
// does not recognize, or if its directory does not list it yet, it waits for other nodes.
func TestFirstNodeAlone(t *testing.T) {
	const loopback, bridge = "127.0.0.1:7946", "172.17.0.1:7946"
	aliases := map[string]string{loopback: addr1, bridge: addr1}
	directory := func(addrs ...string) func(*cluster.Config) {
		return func(c *cluster.Config) {
			c.Discover = func(context.Context) ([]string, error) { return addrs, nil }
		}
	}
	for name, tt := range map[string]struct {
		change func(*cluster.Config)
		atOnce bool
	}{
		"its own address":            {seeds(addr1), true},
		"a loopback alias":           {seeds(loopback), true},
		"both":                       {seeds(addr1, loopback), true},
		"a directory":                {directory(addr1), true},
		"a directory and an alias":   {directory(addr1, loopback), true},
		"an empty directory":         {directory(), false},
		"an alias of the host":       {seeds(bridge), false},
		"an alias beside a loopback": {seeds(loopback, bridge), false},
		"a directory names an alias": {directory(addr1, bridge), false},
		"another node that is away":  {seeds(loopback, addr2), false},
		"a directory names one away": {directory(addr1, addr2), false},
		"a loopback of another port": {seeds("127.0.0.1:7000"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inAddresses(t, func(t *testing.T, w *addresses) {
				began := time.Now()
				a := w.startBehind("a", addr1, aliases, tt.change)
				took := time.Since(began)
				if tt.atOnce != (took < time.Second) {
					t.Errorf("started after %v:\n%s", took, a.log)
				}
				<-a.Ready()
				if took := time.Since(began); tt.atOnce && took > 2*time.Second {
					t.Errorf("ready after %v", took)
				}
				if log := a.log.String(); strings.Contains(log, "seed_answered=true") {
					t.Errorf("it took its own answer for another node's:\n%s", log)
				}
			})
		})
	}
}

// Two nodes register in a directory and start, one after the other. The first node may start alone, and the second node
// finds it.
func TestFirstNodesOfADirectory(t *testing.T) {
	inAddresses(t, func(t *testing.T, w *addresses) {
		var entered []string
		with := func(addr string) func(*cluster.Config) {
			entered = append(entered, addr)
			return func(c *cluster.Config) {
				c.Discover = func(context.Context) ([]string, error) { return slices.Clone(entered), nil }
			}
		}
		a := w.start("a", addr1, with(addr1))
		b := w.start("b", addr2, with(addr2))
		time.Sleep(2 * time.Second)
		for _, p := range []*process{a, b} {
			if len(p.ids()) != 2 || !p.Converged() {
				t.Errorf("a node sees %v", p.ids())
			}
		}
	})
}

// If a node's only seed is its own address, given as a host name, the node is ready without waiting. This test uses
// real sockets and a StartupGrace that is longer than the test.
func TestFirstNodeAtLocalhost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	for name, bind := range map[string]string{"loopback": "127.0.0.1:" + port, "any": "0.0.0.0:" + port} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			agent, err := cluster.Start(ctx, cluster.Config{
				ID:           "a",
				Cluster:      "alone",
				Bind:         bind,
				Join:         []string{"localhost:" + port},
				StartupGrace: 30 * time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = agent.Close() }()
			select {
			case <-agent.Ready():
			case <-ctx.Done():
				t.Errorf("%v: not ready", ctx.Err())
			}
		})
	}
}

// No seed answers, neither at the start nor after a fence. The node logs that, and continues alone. The test runs many
// times because its result once depended on the order of two events.
func TestNoSeedAnswers(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var out logbook
			c := clustertest.New(t, clustertest.Options{
				Log:    out.handler(),
				Config: func(cfg *cluster.Config) { cfg.Join = []string{"10.9.9.9:7946"} },
			})
			c.Start("n00")
			c.WaitAgreed(20 * time.Second)
			c.Pause("n00")
			time.Sleep(2 * ttl)
			c.Resume("n00")
			time.Sleep(20 * time.Second)
			if !c.Agent("n00").IsOwner("x") {
				t.Error("it owns nothing after a fence")
			}
			if n := strings.Count(out.String(), "no seed answered; continuing alone"); n != 2 {
				t.Errorf("said %d times that no seed answered, want 2", n)
			}
		})
	}
}

// If no seed answers, the node logs whether it owns everything, which depends on MinMembers.
func TestNoSeedAnswersSaysWhatItOwns(t *testing.T) {
	for least, owns := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			var out logbook
			c := clustertest.New(t, clustertest.Options{
				Log:    out.handler(),
				Config: func(cfg *cluster.Config) { cfg.Join, cfg.MinMembers = []string{"10.9.9.9:7946"}, least },
			})
			c.Start("n00")
			time.Sleep(time.Minute)
			if c.Agent("n00").IsOwner("x") != owns {
				t.Errorf("MinMembers %d: it owns everything: %t", least, !owns)
			}
			if !strings.Contains(out.String(), fmt.Sprintf("owns_everything=%t ", owns)) {
				t.Errorf("MinMembers %d: %s", least, &out)
			}
		})
	}
}

// directory is the list of addresses that Config.Discover returns.
type directory struct {
	addrs atomic.Pointer[[]string] // nil: the directory does not answer
	asked atomic.Int64
}

func (d *directory) set(addrs ...string) { d.addrs.Store(&addrs) }

func (d *directory) discover(ctx context.Context) ([]string, error) {
	d.asked.Add(1)
	if addrs := d.addrs.Load(); addrs != nil {
		return *addrs, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (d *directory) only(cfg *cluster.Config) { cfg.Join, cfg.Discover = nil, d.discover }

// Nodes find each other only via Discover, even if it hangs at first, or returns the node itself or an address without
// a node. If Discover returned nothing at first, the node joins later.
func TestDiscover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		var d directory
		a := c.StartWith("a", clustertest.WithConfig(func(cfg *cluster.Config) { d.only(cfg); cfg.Bootstrap = true }))
		d.set("10.0.200.1:7946", a.Addr())
		b := c.StartWith("b", clustertest.WithConfig(d.only))
		c.WaitAgreed(5 * time.Second)

		d.addrs.Store(nil)
		time.AfterFunc(3*time.Second, func() { d.set(a.Addr(), b.Addr()) })
		began := time.Now()
		c.StartWith("c", clustertest.WithConfig(func(cfg *cluster.Config) { d.only(cfg); cfg.StartupGrace = time.Minute }))
		c.WaitAgreed(15 * time.Second)
		t.Logf("joined after %v", time.Since(began))

		d.set()
		e := c.StartWith("e", clustertest.WithConfig(d.only))
		time.Sleep(time.Minute)
		if n := len(e.Members()); n != 1 {
			t.Fatalf("e found %d members by itself", n)
		}
		d.set(a.Addr())
		c.WaitAgreed(time.Minute)
	})
}

// If Discover fails, the node continues alone, as if its seeds did not answer. It calls Discover again, but not too
// often.
func TestDiscoverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		var asked atomic.Int64
		a := c.StartWith("a", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Join, cfg.Discover = nil, func(context.Context) ([]string, error) {
				asked.Add(1)
				return nil, errors.New("the cloud is away")
			}
		}))
		<-a.Ready()
		synctest.Wait()
		before := asked.Load()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if more := asked.Load() - before; more < 10 || more > 200 || before > 100 {
			t.Errorf("asked %d times at the start, then %d times", before, more)
		}
	})
}

// If Discover ignores its context, the agent calls it only once. The hanging call delays neither Ready nor Close.
func TestDiscoverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		var asked atomic.Int64
		released := make(chan struct{})
		defer close(released)
		a := c.StartWith("a", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Join, cfg.Discover = nil, func(context.Context) ([]string, error) {
				asked.Add(1)
				<-released
				return nil, nil
			}
		}))
		<-a.Ready()
		time.Sleep(10 * time.Minute)
		if n := asked.Load(); n != 1 {
			t.Errorf("Discover runs %d times at once", n)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A running node whose only seed does not exist gets a second seed, and joins within seconds. Invalid seeds change
// nothing. If all seeds are removed, the node stays in the cluster.
func TestSetJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		a := c.StartWith("a")
		lost := c.StartWith("b", clustertest.WithConfig(func(cfg *cluster.Config) {
			cfg.Join, cfg.Bootstrap, cfg.RejoinInterval = []string{"10.0.200.1:7946"}, true, time.Hour
		}))
		time.Sleep(time.Minute)
		if n := len(lost.Members()); n != 1 {
			t.Fatalf("%d members by a seed that does not exist", n)
		}
		if err := lost.SetJoin(a.Addr(), "nonsense"); err == nil || !slices.Equal(lost.Config().Join, []string{"10.0.200.1:7946"}) {
			t.Fatalf("%v, seeds %v", err, lost.Config().Join)
		}
		if err := lost.SetJoin("10.0.200.1:7946", a.Addr()); err != nil {
			t.Fatal(err)
		}
		if got := lost.Config().Join; !slices.Equal(got, []string{"10.0.200.1:7946", a.Addr()}) {
			t.Errorf("Config has seeds %v", got)
		}
		c.WaitAgreed(10 * time.Second)
		if err := lost.SetJoin(); err != nil || len(lost.Config().Join) != 0 {
			t.Errorf("without seeds: %v, %v", err, lost.Config().Join)
		}
		time.Sleep(time.Minute)
		c.WaitAgreed(time.Second)
	})
}

// A node at a loopback address fails to start if its seeds are on other hosts, even if Discover finds them late.
func TestSeedsDoNotReachLoopback(t *testing.T) {
	var calls atomic.Int64
	late := func(context.Context) ([]string, error) {
		if calls.Add(1) == 1 {
			return nil, errors.New("not yet")
		}
		return []string{"192.0.2.1:7946"}, nil
	}
	for name, cfg := range map[string]cluster.Config{
		"known": {Join: []string{"192.0.2.1:7946"}, Bootstrap: true},
		"late":  {Discover: late},
	} {
		cfg.ID, cfg.Bind, cfg.Network, cfg.StartupGrace, cfg.Log = "a", "127.0.0.1:0", cluster.Local, time.Minute, slog.New(slog.DiscardHandler)
		a, err := cluster.Start(t.Context(), cfg)
		if err == nil {
			_ = a.Close()
			t.Errorf("%s: started", name)
			continue
		}
		if !strings.Contains(err.Error(), "192.0.2.1:7946 is on another host") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
