package firewall_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// over returns a firewall in front of a transport. The end of the test shuts it down.
func over(t *testing.T, transport memberlist.NodeAwareTransport, change func(*firewall.Config)) *firewall.Firewall {
	t.Helper()
	r := firewall.NewRejections(nil)
	ring, err := firewall.NewRing(keys())
	if err != nil {
		t.Fatal(err)
	}
	cfg := configOf(ring, r)
	if change != nil {
		change(&cfg)
	}
	f := firewall.New(transport, cfg)
	t.Cleanup(func() { _ = f.Shutdown() })
	return f
}

// stuck is a transport on which dials hang until the test ends.
type stuck struct {
	pipes
	dials chan struct{}
	over  <-chan struct{}
}

func (s *stuck) DialAddressTimeout(memberlist.Address, time.Duration) (net.Conn, error) {
	s.dials <- struct{}{}
	<-s.over
	return nil, errTest
}

// Dial returns when its context is done or the firewall is shut down, even if the transport is still dialing.
func TestDialEnds(t *testing.T) {
	s := &stuck{pipes{streams: make(chan net.Conn)}, make(chan struct{}, 2), t.Context().Done()}
	f := over(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	for _, tt := range []struct {
		ctx context.Context
		end func()
	}{{ctx, cancel}, {t.Context(), func() { _ = f.Shutdown() }}} {
		end := make(chan error)
		go func() {
			_, err := f.Dial(tt.ctx, memberlist.Address{Addr: "127.0.0.1:1"}, time.Hour)
			end <- err
		}()
		<-s.dials
		tt.end()
		if err := <-end; !errors.Is(err, net.ErrClosed) {
			t.Errorf("error %v", err)
		}
	}
}

// Shutdown closes incoming and outgoing streams, and does not wait for them.
func TestShutdownClosesStreams(t *testing.T) {
	p := &pipes{streams: make(chan net.Conn)}
	long := func(c *firewall.Config) { c.HeadTimeout, c.StreamTimeout = time.Hour, time.Hour }
	f := over(t, p, long)
	near, far := net.Pipe()
	p.streams <- far
	l := listener(t)
	sockets := start(t, "a#1", keys(), long)
	out, err := sockets.firewall.DialAddressTimeout(memberlist.Address{Addr: l.Addr().String()}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = f.Shutdown(), sockets.firewall.Shutdown()
	ends(t, near)
	ends(t, conn)
}

// counter is a transport that counts the bytes of the packets that it sends.
type counter struct {
	pipes
	sent int
}

func (c *counter) WriteToAddress(b []byte, _ memberlist.Address) (time.Time, error) {
	c.sent += len(b)
	return time.Now(), nil
}

// The packets that memberlist sends by itself to an address without a live lease are limited to a few bytes, and
// memberlist cannot open a stream to such an address.
func TestUnconfirmedAddresses(t *testing.T) {
	c := &counter{pipes: pipes{streams: make(chan net.Conn)}}
	f := over(t, c, func(c *firewall.Config) { c.Live = func(string) bool { return false } })
	send := func(name, addr string) int {
		c.sent = 0
		for range 10 {
			if _, err := f.WriteToAddress(make([]byte, 100), memberlist.Address{Addr: addr, Name: name}); err != nil {
				t.Error(err)
			}
		}
		return c.sent
	}
	if sent := send("x#1", "203.0.113.1:7946"); sent != 500 {
		t.Errorf("%d bytes go to an unconfirmed address", sent)
	}
	if sent := send("", "203.0.113.1:7946"); sent != 1000 {
		t.Errorf("%d of 1000 bytes of roost's own go out", sent)
	}
	if _, err := f.DialAddressTimeout(memberlist.Address{Addr: "203.0.113.2:7946", Name: "x#1"}, time.Second); err == nil ||
		!strings.Contains(err.Error(), "no live lease") {
		t.Errorf("a stream to an unconfirmed address: %v", err)
	}
	f.SetOwn(netip.MustParseAddr("203.0.113.3"))
	if sent := send("x#1", "203.0.113.3:7946"); sent != 1000 {
		t.Errorf("%d of 1000 bytes go to the own host", sent)
	}
}
