package cluster_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// A node whose seeds lead to itself alone, by what they are, starts at once. One with another alias of
// itself, or with a directory that does not name it yet, waits for others.
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

// Of two nodes that enter themselves in a directory and start together, the first one may be alone, and the
// second finds it.
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

// The same on real sockets, by name, with a grace that would outlast the test.
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
