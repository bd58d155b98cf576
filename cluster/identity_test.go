package cluster_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/simnet"
)

// addresses is a simulated network in which a new process can get the address of a process that has ended.
type addresses struct {
	t   *testing.T
	net *simnet.Network
}

// process is an agent at an address.
type process struct {
	*cluster.Agent
	transport *simnet.Transport
	log       *logbook
}

// aliased is a transport that reaches nodes, including its own, at additional addresses.
type aliased struct {
	*simnet.Transport
	alias map[string]string
}

func (a *aliased) at(to memberlist.Address) memberlist.Address {
	if real, ok := a.alias[to.Addr]; ok {
		to.Addr = real
	}
	return to
}

func (a *aliased) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return a.Transport.DialAddressTimeout(a.at(to), timeout)
}

func (a *aliased) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return a.Transport.WriteToAddress(b, a.at(to))
}

func (w *addresses) start(id, addr string, change func(*cluster.Config)) *process {
	w.t.Helper()
	return w.startBehind(id, addr, nil, change)
}

// startBehind starts an agent that can reach nodes at alias addresses.
func (w *addresses) startBehind(id, addr string, alias map[string]string, change func(*cluster.Config)) *process {
	w.t.Helper()
	tr, err := w.net.Listen(addr)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{transport: tr, log: new(logbook)}
	cfg := cluster.Config{ID: id, Log: slog.New(p.log.handler())}
	if change != nil {
		change(&cfg)
	}
	env := gossip.Env{Transport: &aliased{Transport: tr, alias: alias}}
	if p.Agent, err = cluster.Start(gossip.WithEnv(w.t.Context(), env), cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	return p
}

// crash ends a process without a leave message. Then another process can use its address.
func (p *process) crash() {
	p.transport.Crash()
	_ = p.Close()
}

func (p *process) ids() (ids []string) {
	for _, m := range p.Members() {
		ids = append(ids, string(m.ID))
	}
	return ids
}

func seeds(addrs ...string) func(*cluster.Config) {
	return func(c *cluster.Config) { c.Join = addrs }
}

func inAddresses(t *testing.T, f func(t *testing.T, w *addresses)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // goroutines of memberlist end only after a while
		f(t, &addresses{t, simnet.New(simnet.Config{Delay: time.Millisecond})})
	})
}

const (
	addr1 = "10.0.0.1:7946"
	addr2 = "10.0.0.2:7946"
	addr3 = "10.0.0.3:7946"
	addr4 = "10.0.0.4:7946"
)

// Two clusters with the same name and settings do not merge when a process of one cluster gets the address of a dead
// member of the other cluster. The process logs only a few lines about this.
func TestReusedAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		id    string        // id of the process that gets the address
		after time.Duration // time after the death
		other bool          // it joins another member of its cluster
		key   bool
		alone bool // the dead member's cluster had only one other member
	}{
		"a new id":             {id: "x", after: 20 * time.Second},
		"the id of the dead":   {id: "b", after: 20 * time.Second},
		"the id of a survivor": {id: "a", after: 20 * time.Second},
		"at once":              {id: "a"},
		"a member of a larger": {id: "b", after: 20 * time.Second, other: true},
		"with one key":         {id: "a", after: 20 * time.Second, key: true},
		"of two nodes":         {id: "a", after: 20 * time.Second, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			inAddresses(t, func(t *testing.T, w *addresses) {
				with := func(addrs ...string) func(*cluster.Config) {
					return func(c *cluster.Config) {
						if c.Join = addrs; tt.key {
							c.Key = bytes.Repeat([]byte{7}, 32)
						}
					}
				}
				a := w.start("a", addr1, with())
				b := w.start("b", addr2, with(addr1))
				want := []string{"a"}
				if !tt.alone {
					w.start("c", addr3, with(addr1))
					want = []string{"a", "c"}
				}
				time.Sleep(10 * time.Second)
				b.crash()
				time.Sleep(tt.after)
				theirs := []string{tt.id}
				var join []string
				if tt.other {
					w.start("a", addr4, with())
					join, theirs = []string{addr4}, []string{"a", tt.id}
				}
				x := w.start(tt.id, addr2, with(join...))
				time.Sleep(10 * time.Second)
				lines := x.log.String()
				for range 12 {
					time.Sleep(10 * time.Second)
					if !slices.Equal(a.ids(), want) || !slices.Equal(x.ids(), theirs) || a.Err() != nil || x.Err() != nil {
						t.Fatalf("one cluster has %v (%v), the other %v (%v)", a.ids(), a.Err(), x.ids(), x.Err())
					}
				}
				if n := strings.Count(x.log.String()[len(lines):], "\n"); n > 2 {
					t.Errorf("%d lines in 2 minutes:\n%s", n, x.log.String()[len(lines):])
				}
			})
		})
	}
}

// Two halves of a fleet that started separately become one cluster through seeds. After that, they find each other
// without seeds, too.
func TestHalvesMeet(t *testing.T) {
	inAddresses(t, func(t *testing.T, w *addresses) {
		halves := func() { w.net.Split([]string{addr1, addr2}, []string{addr3, addr4}) }
		all := []string{"a", "b", "c", "d"}
		agree := func(when string, of ...*process) {
			t.Helper()
			for range 60 {
				time.Sleep(time.Second)
				if !slices.ContainsFunc(of, func(p *process) bool { return !slices.Equal(p.ids(), all) || !p.Converged() }) {
					return
				}
			}
			for _, p := range of {
				t.Errorf("%s: a node sees %v", when, p.ids())
			}
		}
		halves()
		a := w.start("a", addr1, seeds(addr3)) // the only seeds that name the other half
		b := w.start("b", addr2, seeds(addr1))
		c := w.start("c", addr3, seeds())
		d := w.start("d", addr4, seeds(addr3))
		time.Sleep(time.Minute)
		w.net.HealAll()
		agree("once the halves meet", a, b, c, d)
		if err := a.SetJoin(); err != nil {
			t.Fatal(err)
		}
		halves()
		time.Sleep(2 * time.Minute)
		c.crash() // the seed of d; it will return with d as its seed
		c = w.start("c", addr3, seeds(addr4))
		d.crash()
		d = w.start("d", addr4, seeds(addr3))
		time.Sleep(time.Minute)
		w.net.HealAll()
		agree("after a split, in which one side restarted", a, b, c, d)
	})
}

// The first node of a cluster has no seeds. Even if it restarts many times, the other nodes find it again.
func TestFirstNodeRestarts(t *testing.T) {
	inAddresses(t, func(t *testing.T, w *addresses) {
		a := w.start("a", addr1, seeds())
		b := w.start("b", addr2, seeds(addr1))
		c := w.start("c", addr3, seeds(addr1))
		for restart := range 40 {
			a.crash()
			time.Sleep(5 * time.Second)
			a = w.start("a", addr1, seeds())
			for waited := 0; ; waited++ {
				if all := []string{"a", "b", "c"}; slices.Equal(a.ids(), all) && slices.Equal(b.ids(), all) && slices.Equal(c.ids(), all) {
					break
				}
				if waited == 60 {
					t.Fatalf("restart %d: a sees %v, b %v, c %v", restart, a.ids(), b.ids(), c.ids())
				}
				time.Sleep(time.Second)
			}
		}
	})
}

// If a seed's address leads to the node itself, the node does not take its own answer for another node's answer. It
// logs the address of that seed.
func TestSeedsThatAreAliases(t *testing.T) {
	const bridge = "172.17.0.1:7946" // leads each host to itself
	t.Run("alone", func(t *testing.T) {
		inAddresses(t, func(t *testing.T, w *addresses) {
			a := w.startBehind("a", addr1, map[string]string{bridge: addr1}, seeds(bridge))
			log := a.log.String()
			if strings.Contains(log, "seed_answered=true") || !strings.Contains(log, bridge+": that address leads to this node itself") {
				t.Errorf("it took its own answer for another node's, or does not say so:\n%s", log)
			}
		})
	})
	// Each node has a second address, which is the only one that the others know. Packets to second addresses are lost.
	t.Run("without UDP", func(t *testing.T) {
		inAddresses(t, func(t *testing.T, w *addresses) {
			ctx := t.Context()
			second := map[string]string{"10.1.0.1:7946": addr1, "10.1.0.2:7946": addr2, "10.1.0.3:7946": addr3}
			var logs []*logbook
			addrs := []string{addr1, addr2, addr3}
			for i, addr := range addrs {
				tr, err := w.net.Listen(addr)
				if err != nil {
					t.Fatal(err)
				}
				log := new(logbook)
				logs = append(logs, log)
				env := gossip.Env{Transport: &noUDP{aliased{Transport: tr, alias: second}}}
				go func() {
					ctx := gossip.WithEnv(ctx, env)
					agent, err := cluster.Start(ctx, cluster.Config{
						ID: fmt.Sprint("n", i), Join: []string{"10.1.0.1:7946", "10.1.0.2:7946", "10.1.0.3:7946"}, Log: slog.New(log.handler()),
					})
					if err == nil {
						t.Errorf("%s joined without a packet", agent.Addr())
						_ = agent.Close()
					}
				}()
			}
			time.Sleep(2 * time.Minute)
			for i, log := range logs {
				s := log.String()
				if strings.Contains(s, "joined") || !strings.Contains(s, fmt.Sprintf("10.1.0.%d:7946: that address leads to this node itself", i+1)) {
					t.Errorf("node %d:\n%s", i, s)
				}
			}
		})
	})
}

// noUDP loses all packets.
type noUDP struct{ aliased }

func (*noUDP) WriteToAddress([]byte, memberlist.Address) (time.Time, error) { return time.Now(), nil }

func (*noUDP) WriteTo([]byte, string) (time.Time, error) { return time.Now(), nil }
