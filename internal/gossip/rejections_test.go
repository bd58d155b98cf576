package gossip

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Nodes of another cluster or key are counted by reason, over UDP and over TCP, and their addresses are known.
func TestRejectionsAreCounted(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	with := func(cluster string, key []byte) func(*Config) {
		return func(c *Config) { c.Cluster, c.Key = cluster, key }
	}
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
		"a key where others have none": {with("test", nil), with("test", key), WrongKey, reasons, ""}, // the packet may be of any kind
	} {
		n, in := start(t, "a#1", tt.node)
		sender, _ := start(t, "b#1", tt.sender)
		find := func(why Why, over Over) bool {
			for _, r := range n.Rejections() {
				from := sender.Addr()
				if over == TCP {
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
		eventually(t, name+": the stream is counted", func() bool { return find(tt.tcp, TCP) })
		if tt.udp < reasons {
			if err := sender.Send(n.Addr(), []byte("gossip")); err != nil {
				t.Error(err)
			}
			eventually(t, name+": the packet is counted", func() bool { return find(tt.udp, UDP) })
		}
		if packets, merged := in.got(); len(packets)+len(merged) > 0 {
			t.Errorf("%s: %q and %q arrived", name, packets, merged)
		}
		for why := range reasons {
			if why != tt.tcp && n.Rejected(why) > 0 {
				t.Errorf("%s: %d counted as %s", name, n.Rejected(why), why)
			}
		}
	}
}

// Nodes of one cluster reject nothing of each other, also while their keys change.
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

// The latest sources are kept, some of each reason and protocol: forged packets neither take memory nor displace
// the source of a stream. A reason is logged once a minute.
func TestRejectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &rejections{log: slog.New(slog.NewTextHandler(&log, nil))}
		at := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(i))
		}
		r.note(WrongKey, TCP, netip.MustParseAddrPort("192.0.2.1:50000"), "")
		r.note(WrongKey, TCP, netip.MustParseAddrPort("192.0.2.1:50001"), "")
		const forged = 100_000
		for i := range forged {
			r.note(WrongKey, UDP, at(i), "")
		}
		r.note(WrongKey, UDP, at(forged-2), "") // and again
		all := r.all()
		var lines []string
		for _, s := range all {
			lines = append(lines, fmt.Sprint(s.Over, " ", s.From, " ", s.Count))
		}
		want := "udp 10.1.134.158:34462 2"
		if len(all) != maxSources+1 || lines[len(lines)-1] != "tcp 192.0.2.1 2" && lines[0] != "tcp 192.0.2.1 2" ||
			!strings.Contains(strings.Join(lines, ","), want) {
			t.Errorf("sources %q, want %d of UDP with %q, and the one of TCP", lines, maxSources, want)
		}
		if n := r.counts[WrongKey].Load(); n != forged+3 {
			t.Errorf("%d counted", n)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines, want one for each protocol:\n%s", n, log.String())
		}
		time.Sleep(time.Minute)
		r.note(WrongKey, UDP, at(1), "")
		r.note(WrongKey, UDP, at(2), "")
		r.note(WrongCluster, UDP, at(2), "prod")
		if n := strings.Count(log.String(), "\n"); n != 4 {
			t.Errorf("%d lines after a minute, want one more, and one of another reason:\n%s", n, log.String())
		}
	})
}

func TestRejectionsFromManyGoroutines(t *testing.T) {
	r := &rejections{log: slog.New(slog.DiscardHandler)}
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				r.note(Why(j%int(reasons)), Over(i%2), netip.AddrPortFrom(netip.IPv6Loopback(), uint16(j%7)), "x")
				_ = r.all()
			}
		})
	}
	wait.Wait()
	if n := r.counts[WrongKey].Load() + r.counts[WrongCluster].Load() + r.counts[NotAllowed].Load(); n != 4000 {
		t.Errorf("%d counted", n)
	}
}
