package firewall

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

// Only a few of the latest sources are kept for each reason and protocol. So forged packets use little memory, and do
// not displace the source of a stream. For each reason and protocol, at most one line is logged per minute.
func TestRejectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := NewRejections(slog.New(slog.NewTextHandler(&log, nil)))
		at := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), uint16(i))
		}
		r.note(WrongKey, TCP, netip.MustParseAddrPort("192.0.2.1:50000"), "")
		r.note(WrongKey, TCP, netip.MustParseAddrPort("192.0.2.1:50001"), "")
		const forged = 100_000
		for i := range forged {
			r.note(WrongKey, UDP, at(i), "")
		}
		r.note(WrongKey, UDP, at(forged-2), "") // a known source again
		all := r.All()
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
	r := NewRejections(slog.New(slog.DiscardHandler))
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			for j := range 500 {
				r.note(Why(j%int(reasons)), Over(i%2), netip.AddrPortFrom(netip.IPv6Loopback(), uint16(j%7)), "x")
				_ = r.All()
			}
		})
	}
	wait.Wait()
	if n := r.counts[WrongKey].Load() + r.counts[WrongCluster].Load() + r.counts[NotAllowed].Load(); n != 4000 {
		t.Errorf("%d counted", n)
	}
}
