package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// fakeHost returns a host with these addresses, of which some belong to bridges. The routes are pairs of a network and
// the address from which the host sends to that network.
func fakeHost(bridges, addrs []string, routes ...string) host {
	return host{
		source: func(to netip.AddrPort) (netip.Addr, error) {
			if to.Addr().IsLoopback() {
				return to.Addr(), nil
			}
			for _, a := range append(addrs, bridges...) {
				if netip.MustParseAddr(a) == to.Addr() {
					return to.Addr(), nil
				}
			}
			for i := 0; i < len(routes); i += 2 {
				if netip.MustParsePrefix(routes[i]).Contains(to.Addr()) {
					return netip.MustParseAddr(routes[i+1]), nil
				}
			}
			return netip.Addr{}, errors.New("no route")
		},
		addrs: func() (all []hostAddr, err error) {
			for _, a := range bridges {
				all = append(all, hostAddr{ip: netip.MustParseAddr(a), up: true, bridge: true})
			}
			for _, a := range addrs {
				all = append(all, hostAddr{ip: netip.MustParseAddr(a), up: true})
			}
			return all, nil
		},
	}
}

// A node that listens on all addresses advertises the address from which its host reaches the seeds.
func TestGuess(t *testing.T) {
	docker := []string{"172.17.0.1"}
	public := fakeHost(docker, []string{"127.0.0.1", "45.0.0.3"}, "172.17.0.0/16", "172.17.0.1", "45.0.0.0/24",
		"45.0.0.3", "0.0.0.0/0", "45.0.0.3")
	dual := fakeHost(nil, []string{"10.0.0.3", "fd00::3"}, "10.0.0.0/8", "10.0.0.3", "fd00::/8", "fd00::3")
	homed := fakeHost(nil, []string{"10.0.0.3", "192.168.0.3"}, "10.0.0.0/8", "10.0.0.3", "192.168.0.0/16",
		"192.168.0.3", "0.0.0.0/0", "10.0.0.3")
	for name, tc := range map[string]struct {
		host  host
		seeds string
		want  string // or a part of the error
	}{
		"public host with docker0":         {public, "45.0.0.1:1", "45.0.0.3"},
		"the same, no seeds":               {public, "", "45.0.0.3"},
		"the same, a seed on docker0":      {public, "172.17.0.9:1", "172.17.0.1"},
		"the same, docker0 itself":         {public, "172.17.0.1:1", "45.0.0.3"},
		"the same, itself":                 {public, "45.0.0.3:1", "45.0.0.3"},
		"the same, loopback":               {public, "127.0.0.1:1", "45.0.0.3"},
		"the same, loopback first":         {public, "127.0.0.1:1 172.17.0.1:1 45.0.0.2:1", "45.0.0.3"},
		"dual stack, seeds of IPv6":        {dual, "[fd00::1]:1", "fd00::3"},
		"dual stack, seeds of IPv4":        {dual, "10.0.0.1:1", "10.0.0.3"},
		"dual stack, names of both":        {dual, "[fd00::1]:1 10.0.0.1:1 [fd00::2]:1 10.0.0.2:1", "10.0.0.3"},
		"dual stack, one without IPv4":     {dual, "[fd00::1]:1 10.0.0.1:1 [fd00::2]:1", "fd00::3"},
		"dual stack, no seeds, no gateway": {dual, "", "10.0.0.3"},
		"seeds not behind the gateway":     {homed, "192.168.0.1:1 192.168.0.2:1", "192.168.0.3"},
		"most seeds decide":                {homed, "10.0.0.1:1 192.168.0.1:1 192.168.0.2:1", "192.168.0.3"},
		"another family": {
			fakeHost(nil, []string{"10.0.0.3"}, "0.0.0.0/0", "10.0.0.3"), "[fd00::1]:1",
			"no route to the seed [fd00::1]:1, and its own address 10.0.0.3",
		},
		"the family of one seed":        {fakeHost(nil, []string{"10.0.0.3"}), "[fd00::1]:1 10.9.0.1:1", "10.0.0.3"},
		"bridges alone":                 {fakeHost(docker, []string{"127.0.0.1"}), "45.0.0.1:1", "bridges (172.17.0.1)"},
		"a bridge to the gateway":       {fakeHost([]string{"10.0.0.3"}, nil, "0.0.0.0/0", "10.0.0.3"), "", "10.0.0.3"},
		"a bridge to the seeds":         {fakeHost([]string{"10.0.0.3"}, nil, "0.0.0.0/0", "10.0.0.3"), "45.0.0.1:1", "10.0.0.3"},
		"no network":                    {fakeHost(nil, []string{"127.0.0.1"}), "", "no address but loopback"},
		"no network, seeds on loopback": {fakeHost(nil, []string{"127.0.0.1"}), "127.0.0.1:1", "127.0.0.1"},
		"no network, seeds elsewhere":   {fakeHost(nil, []string{"127.0.0.1"}), "10.0.0.1:1", "no address but loopback"},
	} {
		ip, err := tc.host.guess(addrPorts(strings.Fields(tc.seeds)))
		got := ip.String()
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != tc.want || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// If other nodes may not reach a node's address, Locate returns a better address if the current one was guessed, and
// otherwise the reason.
func TestLocate(t *testing.T) {
	guessed := own{at: netip.MustParseAddrPort("10.0.0.3:7946"), had: true}
	set, translated, loopback := guessed, guessed, guessed
	set.setting, translated.setting, loopback.setting = "Bind (--bind)", "Advertise (--advertise)", "Bind (--bind)"
	translated.had = false
	loopback.at = netip.MustParseAddrPort("127.0.0.1:7946")
	moved := fakeHost(nil, []string{"10.0.0.33"}, "10.0.0.0/8", "10.0.0.33")
	away := fakeHost([]string{"172.17.0.1"}, []string{"127.0.0.1"})
	both := fakeHost(nil, []string{"10.0.0.3", "192.168.0.3"}, "10.0.0.0/8", "10.0.0.3", "192.168.0.0/16",
		"192.168.0.3", "0.0.0.0/0", "10.0.0.3")
	unknown := host{source: moved.source, addrs: func() ([]hostAddr, error) { return nil, errors.New("no netlink") }}
	for name, tc := range map[string]struct {
		own   own
		host  host
		reach string
		want  string
	}{
		"it moved":                       {guessed, moved, "10.0.0.1:7946", "10.0.0.33:7946"},
		"it moved, alone":                {guessed, moved, "", "10.0.0.33:7946"},
		"gone":                           {guessed, away, "10.0.0.1:7946", "no longer has 10.0.0.3"},
		"as it was":                      {guessed, both, "10.0.0.1:7946", "10.0.0.3:7946"},
		"as it was, and no others":       {guessed, both, "", "10.0.0.3:7946"},
		"as it was, one of two networks": {guessed, both, "192.168.0.1:7946 192.168.0.2:7946 10.0.0.1:7946", "10.0.0.3:7946"},
		"seeds were found elsewhere":     {guessed, both, "192.168.0.1:7946", "192.168.0.3:7946"},
		"lost for a moment, a tunnel": {
			guessed,
			fakeHost([]string{"172.17.0.1"}, []string{"127.0.0.1", "100.64.0.7"}, "100.64.0.0/10", "100.64.0.7"),
			"10.0.0.1:7946", "no longer has 10.0.0.3",
		},
		"containers that have gone": {
			guessed,
			fakeHost([]string{"172.17.0.1"}, []string{"10.0.0.3"}, "172.17.0.0/16", "172.17.0.1", "0.0.0.0/0", "10.0.0.3"),
			"172.17.0.9:7946", "10.0.0.3:7946",
		},
		"not known":                     {guessed, unknown, "", "10.0.0.3:7946"},
		"set, and gone":                 {set, moved, "10.0.0.1:7946", "no longer has 10.0.0.3, to which Bind (--bind) is set"},
		"set, as it was":                {set, both, "192.168.0.1:7946", "10.0.0.3:7946"},
		"set, not known":                {set, unknown, "", "10.0.0.3:7946"},
		"translated":                    {translated, moved, "10.0.0.1:7946", "10.0.0.3:7946"},
		"loopback":                      {loopback, both, "10.0.0.1:7946", "10.0.0.1:7946 is on another host"},
		"loopback, also a seed":         {loopback, both, "10.0.0.1:7946 127.0.0.1:7000", "127.0.0.1:7946"},
		"loopback, a name of this host": {loopback, both, "10.0.0.1:7946 127.0.1.1:7946", "10.0.0.1:7946 is on another host"},
		"loopback, a node of this host": {loopback, both, "10.0.0.3:7947", "127.0.0.1:7946"},
		"loopback, all seeds":           {loopback, both, "127.0.0.2:7946 127.0.0.3:7946", "127.0.0.1:7946"},
	} {
		got, err := tc.own.locate(tc.host, addrPorts(strings.Fields(tc.reach)))
		if err != nil {
			if got != tc.own.at.String() {
				t.Errorf("%s: the address is %s", name, got)
			}
			got = err.Error()
		}
		if err == nil && got != tc.want || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A node does not start with an address at which other nodes cannot reach it.
func TestUnusableAddress(t *testing.T) {
	nameServer(t, []byte{224, 0, 0, 1})
	elsewhere := func(context.Context) []string { return []string{"192.0.2.1:7946"} }
	for name, tc := range map[string]struct {
		cfg  Config
		want string
	}{
		"loopback": {Config{Bind: "127.0.0.1:0", Seeds: []string{"192.0.2.1:7946"}}, "--advertise HOST:PORT"},
		"of all addresses": {
			Config{Bind: "0.0.0.0:0", Advertise: "127.0.0.1:0", Seeds: []string{"192.0.2.1:7946"}},
			"192.0.2.1:7946 is on another host",
		},
		"a name of seeds": {Config{Bind: "127.0.0.1:0", LookUp: elsewhere}, "192.0.2.1:7946 is on another host"},
		"multicast":       {Config{Bind: "127.0.0.1:0", Advertise: "good.test.:7946"}, "224.0.0.1 is not the address of one host"},
		"any":             {Config{Bind: "127.0.0.1:0", Advertise: "0.0.0.0:7946"}, "0.0.0.0 is not the address of one host"},
	} {
		tc.cfg.Name, tc.cfg.Meta = "a#1", metaOf("")
		n, err := Start(t.Context(), tc.cfg, nil)
		if err == nil {
			_ = n.Close()
			t.Errorf("%s: started", name)
			continue
		}
		if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// When the address of a running node changes, other nodes find the node at the new address, under its new name.
func TestAdvertise(t *testing.T) {
	a, toA := start(t, "a#1", func(c *Config) { c.Bind, c.Advertise = "0.0.0.0:0", "127.0.0.1:0" })
	b, toB := start(t, "b#1", nil)
	if err := b.Join(a.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	var joins sync.WaitGroup
	joins.Go(func() { // joins run while Advertise replaces the memberlist
		for range 20 {
			_ = b.Join(a.Addr(), nil)
			_ = a.Join(b.Addr(), nil)
		}
	})
	_, port, _ := strings.Cut(a.Addr(), ":")
	if err := a.Advertise("a#2", "127.0.0.2:"+port); err != nil {
		t.Fatal(err)
	}
	joins.Wait()
	if got := a.Addr(); got != "127.0.0.2:"+port {
		t.Errorf("the address is %s", got)
	}
	if err := errors.Join(a.Join(b.Addr(), nil), b.Join(a.Addr(), nil)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b has a under its new name", func() bool {
		return slices.ContainsFunc(b.list.Load().Members(), func(m *memberlist.Node) bool {
			return m.Name == "a#2" && m.Addr.Equal(net.IPv4(127, 0, 0, 2))
		})
	})
	for n, to := range map[*Node]*Node{a: b, b: a} {
		if err := n.Send(to.Addr(), []byte("packet")); err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range []*inbox{toA, toB} {
		eventually(t, "packets arrive", func() bool { packets, _ := in.got(); return len(packets) > 0 })
	}
	if err := a.Advertise("a#3", "nowhere"); err == nil {
		t.Error("a name is no address")
	}
	err := errors.Join(a.Leave(time.Second), a.Advertise("a#3", "127.0.0.1:"+port), a.Close(), a.Advertise("a#4", "127.0.0.1:"+port))
	if err != nil {
		t.Error(err)
	}
}
