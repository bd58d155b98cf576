package gossip

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// nameServer starts a DNS server that answers only for names that begin with "good". Such a name has the address a in
// an A record, and no other records.
func nameServer(t *testing.T, a net.IP) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for b := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			const header = 12
			if n < header || !strings.HasPrefix(string(b[header+1:n]), "good") {
				continue
			}
			name := header + slices.Index(b[header:n], 0) + 1
			reply := append(slices.Clone(b[:header]), b[header:name+4]...) // the question, with its type and class
			reply[2], reply[3], reply[11] = 0x81, 0x80, 0                  // an answer without error or additional records
			if b[name+1] == 1 {                                            // A
				reply[7] = 1
				reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
				reply = append(reply, a.To4()...)
			}
			_, _ = conn.WriteTo(reply, from)
		}
	}()
	addr := conn.LocalAddr().String()
	nameServerAddr.Store(&addr)
	t.Cleanup(func() { nameServerAddr.Store(nil) })
}

// nameServerAddr is the DNS server to use instead of those of this machine.
var nameServerAddr atomic.Pointer[string]

func askNameServer(ctx context.Context, network, addr string) (net.Conn, error) {
	if own := nameServerAddr.Load(); own != nil {
		network, addr = "udp", *own
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// If no DNS server answers for some names, the other names are still resolved.
func TestResolveAll(t *testing.T) {
	nameServer(t, net.IPv4(10, 1, 2, 3))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	addrs, err := ResolveAll(ctx, []string{"hangs.test.:1", "good.test.:7946", "hangs.too.test.:1"})
	if err != nil || !slices.Equal(addrs, []string{"10.1.2.3:7946"}) {
		t.Errorf("%v, %v", addrs, err)
	}
	if addrs, err = ResolveAll(ctx, []string{"hangs.test.:1"}); err == nil || !strings.Contains(err.Error(), "hangs.test.") {
		t.Errorf("%v, %v, want an error", addrs, err)
	}
}
