package cluster_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// directory is what Config.Discover asks.
type directory struct {
	addrs atomic.Pointer[[]string] // nil: it does not answer
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

// Nodes find each other by Discover alone, also if it hangs at first, or names unauthenticated peers and the
// node itself. A node that it told nothing at first joins later.
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

// A Discover that fails is like seeds that do not answer: the node goes on alone and asks again, not too
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

// A Discover that ignores its context is called once. It holds up neither the node nor its end.
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
