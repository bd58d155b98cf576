package main

import (
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestAddressesAsIDs: IPv6 addresses work as node ids in commands, over HTTP and in Redis.
func TestAddressesAsIDs(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const one, two = "2001:db8::1", "[2001:db8::2]:7946"
	fqdn := strings.Repeat("a.", 126) + "a"
	settings := append(brisk(), "--redis", redis.URL(), "--zone", fqdn, "--label", "host="+fqdn)
	a := agent(t, one, settings...)
	b := agent(t, two, append(settings, "--capacity", "100", "--join", a.Gossip)...)
	agree(t, a, b)
	does := func(want string, args ...string) {
		t.Helper()
		if code, out, problem := roost(t, append(args, "--addr", a.Base)...); code != exitOK || !strings.Contains(out, want) {
			t.Errorf("%v: %d %s%s, want %q", args, code, out, problem, want)
		}
	}
	does(two, "members")
	does(fqdn, "members", "--output", "json")
	does("", "room", "resolve", "standup")
	does(two, "room", "move", "standup", two)
	does(two, "room", "show", "standup")
	does("", "cordon", two, "--for", "1m")
	does("", "uncordon", two)
	does("", "plan", "--remove", two)
	does("", "plan", "--weight", one+"=50")
	if m, err := b.Members(t.Context()); err != nil || len(m.Members) != 2 || m.Members[0].ID != lease.NodeID(one) {
		t.Errorf("%+v, %v", m, err)
	}
}
