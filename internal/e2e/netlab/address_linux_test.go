package netlab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/lease"
)

// restart restarts the agent of a host with additional arguments, and waits until all agents agree.
func (l *lab) restart(i int, args ...string) {
	l.t.Helper()
	l.nodes[i].process.Stop(agenttest.Timeout)
	l.start(i, args...)
	if _, err := l.agree(time.Minute); err != nil {
		l.t.Fatal(err)
	}
}

// readdress replaces an address of a host with another address.
func (l *lab) readdress(i int, from, to string) {
	l.t.Helper()
	l.must("ip -n %[1]s addr del %[2]s/24 dev eth0; ip -n %[1]s addr add %[3]s/24 dev eth0", l.ns(i), from, to)
	l.nodes[i].Base = to + ":8401"
}

// eventually waits until a condition holds.
func (l *lab) eventually(what string, holds func(ctx context.Context) error) {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
		err := holds(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s: %v", what, err)
		}
	}
}

// advertised returns the gossip addresses of the members in the view of host 1.
func (l *lab) advertised() map[lease.NodeID]string {
	l.t.Helper()
	m, err := l.nodes[1].Members(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	addrs := make(map[lease.NodeID]string)
	for _, n := range m.Members {
		addrs[n.ID] = n.Addr
	}
	return addrs
}

// The address of n3 changes. If n3 had chosen its address itself, it advertises the new address, and nothing moves.
// Otherwise, it reports that its host does not have the configured address, until the host has this address again.
func TestAddressChanges(t *testing.T) {
	everywhere := []string{"--http", "0.0.0.0:8401"}
	all := func(l *lab) []string { return []string{l.gossip(1), l.gossip(2), l.gossip(3)} }
	other := func(l *lab) string { return l.addr(33) }
	t.Run("guessed", func(t *testing.T) {
		t.Parallel()
		l := newLab(t, 121, 3, all)
		l.restart(3, append(everywhere, "--bind", "0.0.0.0:7946")...)
		before := l.counts()
		l.readdress(3, l.addr(3), other(l))
		began := time.Now()
		l.eventually("others have the new address", func(context.Context) error {
			if got := l.advertised()["n3"]; got != other(l)+":7946" {
				return fmt.Errorf("n3 advertises %s", got)
			}
			return nil
		})
		took := time.Since(began)
		t.Logf("others have the new address after %v", took.Round(100*time.Millisecond))
		if _, err := l.agree(time.Minute); err != nil {
			t.Fatal(err)
		}
		for i, n := range l.counts() {
			// If n3 notices its new address late, for example on a busy machine, the other nodes lose it until then.
			if n.tables != before[i].tables && took < 3*time.Second {
				t.Errorf("n%d changed its table %d times", i, n.tables-before[i].tables)
			}
		}
		if log := l.nodes[3].process.Log.String(); !strings.Contains(log, "own address changed") || strings.Contains(log, "fenced") {
			t.Errorf("the log of n3:\n%s", log)
		}
	})
	for i, name := range []string{"--bind", "--advertise"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 122+i, 3, all)
			args := append(everywhere, "--bind", l.gossip(3))
			if name == "--advertise" {
				args = append(everywhere, "--bind", "0.0.0.0:7946", "--advertise", l.gossip(3))
			}
			l.restart(3, args...)
			l.readdress(3, l.addr(3), other(l))
			gone := "this host no longer has " + l.addr(3)
			l.eventually("n3 says that its address is gone", func(ctx context.Context) error {
				s, err := l.nodes[3].Stats(ctx)
				ready := l.nodes[3].Ready(ctx)
				switch {
				case err != nil:
					return err
				case !strings.Contains(s.Unreachable, gone), !strings.Contains(s.Unreachable, "("+name+")"):
					return fmt.Errorf("it is %s: %q", s.State, s.Unreachable)
				case ready == nil || !strings.Contains(ready.Error(), gone):
					return fmt.Errorf("/readyz: %w", ready)
				}
				return nil
			})
			d, err := l.nodes[3].Doctor(t.Context(), 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if c := d.Checks[0]; !strings.Contains(c.Finding, gone) || !strings.Contains(c.Do, "--advertise") || strings.Contains(c.Do, "firewall") {
				t.Errorf("doctor: %+v", c)
			}
			if log := l.nodes[3].process.Log.String(); !strings.Contains(log, "others cannot reach this node") {
				t.Errorf("the log of n3:\n%s", log)
			}
			l.readdress(3, other(l), l.addr(3))
			if _, err := l.agree(time.Minute); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Agents listen on all addresses of hosts with a second network, with docker0, or with both IPv4 and IPv6. They find
// each other, because each agent advertises the address from which its host reaches the seeds.
func TestAddressIsGuessed(t *testing.T) {
	const own = "ip -n %[1]s addr add 172.17.%[3]d.1/16 dev docker0; ip -n %[1]s link set docker0 up; ip -n %[1]s addr add %[2]s dev eth0 nodad"
	for i, tc := range []struct{ name, bind, network, bits string }{
		{"public addresses", "0.0.0.0:7946", "45.99.%d.%d", "24"},
		{"public addresses, all of both families", "[::]:7946", "45.99.%d.%d", "24"},
		{"IPv6", "[::]:7946", "fd99:%d::%d", "64"},
		{"IPv6, 0.0.0.0", "0.0.0.0:7946", "fd99:%d::%d", "64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			at := func(l *lab, i int) string {
				ip := fmt.Sprintf(tc.network, l.number, i)
				if tc.bits == "64" {
					ip = "[" + ip + "]"
				}
				return ip + ":7946"
			}
			l := newLab(t, 124+i, 3, func(l *lab) []string { return []string{at(l, 1), at(l, 2), at(l, 3), l.gossip(1)} })
			for i := 1; i <= 3; i++ {
				l.nodes[i].process.Stop(agenttest.Timeout)
				l.must("ip -n %s link add docker0 type bridge", l.ns(i))
				l.must(own, l.ns(i), fmt.Sprintf(tc.network+"/"+tc.bits, l.number, i), i)
			}
			for i := 1; i <= 3; i++ {
				l.start(i, "--bind", tc.bind)
			}
			if _, err := l.agree(time.Minute); err != nil {
				t.Fatal(err)
			}
			for id, got := range l.advertised() {
				if want := at(l, int(id[1]-'0')); got != want {
					t.Errorf("%s advertises %s, want %s", id, got, want)
				}
			}
		})
	}
}

// If an agent cannot find its own address, or only its own host can reach this address, the agent exits at the start,
// and says what to set.
func TestAddressIsOfNoUse(t *testing.T) {
	t.Parallel()
	l := newLab(t, 128, 2, func(l *lab) []string { return []string{l.gossip(1), l.gossip(2)} })
	l.connect(3)
	l.args = l.args[:len(l.args)-2] // without --join
	join := []string{"--join", l.gossip(1)}
	for _, tc := range []struct {
		name, script string
		args         []string
		says         string
	}{
		{"loopback", ":", append(join, "--bind", "127.0.0.1:7946"), "--bind"},
		{"loopback advertised", ":", append(join, "--bind", "0.0.0.0:7946", "--advertise", "127.0.0.1:7946"), "--advertise HOST:PORT"},
		{"empty host", ":", append(join, "--bind", "0.0.0.0:7946", "--advertise", ":7946"), "has no host"},
		{"any address", ":", append(join, "--bind", "0.0.0.0:7946", "--advertise", "[::]:7946"), "is not the address of one host"},
		{"another family", ":", []string{"--bind", "0.0.0.0:7946", "--join", "[fd00::1]:7946"}, "of another family"},
		{
			"a bridge alone",
			"ip addr flush dev eth0; ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up",
			append(join, "--bind", "0.0.0.0:7946"), "bridges (172.17.0.1)",
		},
	} {
		l.startAfter(3, tc.script, append([]string{"--http", "off"}, tc.args...)...)
		h := l.nodes[3]
		delete(l.nodes, 3)
		select {
		case <-h.process.Done():
		case <-time.After(agenttest.Timeout):
			_ = h.process.Kill()
			t.Errorf("%s: it runs", tc.name)
		}
		if log := h.process.Log.String(); !strings.Contains(log, tc.says) || !strings.Contains(log, "dvertise") {
			t.Errorf("%s: no %q in\n%s", tc.name, tc.says, log)
		}
	}
	if _, err := l.agree(time.Minute); err != nil {
		t.Fatal(err)
	}
}
