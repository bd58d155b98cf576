package cluster

import (
	"testing"

	"github.com/roost-cluster/roost/lease"
)

// A member's HTTP API has a URL only if it listens on the advertised host or on all addresses.
func TestMemberHTTP(t *testing.T) {
	for _, c := range []struct {
		gossip, listens string
		tls             bool
		want            string
	}{
		{"10.0.0.1:7946", "10.0.0.1:8401", false, "http://10.0.0.1:8401"},
		{"10.0.0.1:7946", "10.0.0.1:65535", true, "https://10.0.0.1:65535"},
		{"10.0.0.1:7946", "0.0.0.0:8401", true, "https://10.0.0.1:8401"},
		{"[fd00::1]:7946", "[::]:1", false, "http://[fd00::1]:1"},
		{"10.0.0.1:7946", "[::ffff:10.0.0.1]:8401", false, "http://10.0.0.1:8401"},
		{"127.0.0.1:7946", "127.0.0.1:8401", false, "http://127.0.0.1:8401"},
		{"10.0.0.1:7946", "127.0.0.1:8401", false, ""},
		{"10.0.0.1:7946", "192.168.0.1:8401", false, ""},
		{"10.0.0.1:7946", "", true, ""},
	} {
		cfg := Config{HTTPAddr: c.listens, HTTPTLS: c.tls}
		rec := cfg.record(c.gossip, 1)
		m := memberOf(nil, &lease.Member{Record: &rec}, 0)
		if got := m.HTTP(); got != c.want {
			t.Errorf("gossip at %s, HTTP at %q, TLS %t: %q, want %q", c.gossip, c.listens, c.tls, got, c.want)
		}
	}
}
