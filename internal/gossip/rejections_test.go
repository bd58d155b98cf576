package gossip

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// If a node has another cluster name or key, its packets and streams are counted by reason, and its address is listed.
func TestRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	with := func(cluster string, key []byte) func(*Config) {
		return func(c *Config) { c.Cluster, c.Key = cluster, key }
	}
	const none Why = -1
	for name, tt := range map[string]struct {
		node, sender func(*Config)
		tcp, udp     Why
		cluster      string
	}{
		"another key":                  {with("test", key), with("test", other), WrongKey, WrongKey, ""},
		"another cluster":              {with("test", key), with("prod", key), WrongCluster, WrongCluster, "prod"},
		"another cluster, without key": {with("test", nil), with("prod", nil), WrongCluster, WrongCluster, "prod"},
		"a longer name":                {with("test", nil), with("testing", nil), WrongCluster, WrongCluster, "testing"},
		"no key where others have one": {with("test", key), with("test", nil), WrongKey, WrongKey, ""},
		"a key where others have none": {with("test", nil), with("test", key), WrongKey, none, ""}, // an encrypted packet may look like any message
	} {
		n, in := start(t, "a#1", tt.node)
		sender, _ := start(t, "b#1", tt.sender)
		find := func(why Why, over firewall.Over) bool {
			for _, r := range n.Rejections() {
				from := sender.Addr()
				if over == firewall.TCP {
					from = "127.0.0.1"
				}
				if r.Why == why && r.Over == over && r.From == from && r.Cluster == tt.cluster && r.Count > 0 && !r.Latest.IsZero() {
					return n.Rejected(why) > 0
				}
			}
			return false
		}
		if err := sender.Join(n.Addr(), nil); err == nil {
			t.Errorf("%s: joined", name)
		}
		eventually(t, name+": the stream is counted", func() bool { return find(tt.tcp, firewall.TCP) })
		if tt.udp != none {
			if err := sender.Send(n.Addr(), []byte("gossip")); err != nil {
				t.Error(err)
			}
			eventually(t, name+": the packet is counted", func() bool { return find(tt.udp, firewall.UDP) })
		}
		if packets, merged := in.got(); len(packets)+len(merged) > 0 {
			t.Errorf("%s: %q and %q arrived", name, packets, merged)
		}
		for _, why := range []Why{WrongKey, WrongCluster, NotAllowed} {
			if why != tt.tcp && n.Rejected(why) > 0 {
				t.Errorf("%s: %d counted as %s", name, n.Rejected(why), why)
			}
		}
	}
}

// Nodes of one cluster do not reject each other's messages, even while their keys change.
func TestMembersAreNotRejected(t *testing.T) {
	t.Parallel()
	former, next := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	a, in := start(t, "a#1", func(c *Config) { c.Key = former })
	b, _ := start(t, "b#1", func(c *Config) { c.Key = former })
	if err := b.Join(a.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	exchange := func(step int) {
		t.Helper()
		sent := fmt.Sprint("step ", step)
		eventually(t, sent+": a packet arrives", func() bool {
			if err := b.Send(a.Addr(), []byte(sent)); err != nil {
				t.Fatal(err)
			}
			packets, _ := in.got()
			return len(packets) > 0 && packets[len(packets)-1] == sent
		})
		if err := b.Join(a.Addr(), nil); err != nil {
			t.Errorf("%s: %v", sent, err)
		}
	}
	for i, keys := range []struct{ use, old []byte }{{former, next}, {next, former}} {
		for _, n := range []*Node{a, b} {
			if err := n.SetKeys(keys.use, [][]byte{keys.old}); err != nil {
				t.Fatal(err)
			}
			exchange(i)
		}
	}
	for _, n := range []*Node{a, b} {
		if all := n.Rejections(); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	}
}
