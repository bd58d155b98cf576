package firewall

import (
	"io"
	"log"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
)

func newSockets(t *testing.T, at string) *Sockets {
	t.Helper()
	for range 10 { // a free TCP port may be in use for UDP
		s, err := Listen(netip.MustParseAddrPort(at), nil, nil, log.New(io.Discard, "", 0))
		if err == nil {
			t.Cleanup(func() { _ = s.Shutdown() })
			return s
		}
	}
	t.Fatal("no free port")
	return nil
}

// A waiting packet does not change when the next packet arrives. It uses memory only for its own bytes, and not 64 KiB.
func TestPacketsOwnTheirBytes(t *testing.T) {
	s := newSockets(t, "127.0.0.1:0")
	to := memberlist.Address{Addr: s.udp.LocalAddr().String()}
	for _, b := range []string{"first", "second", "third"} {
		if _, err := s.WriteToAddress([]byte(b), to); err != nil {
			t.Fatal(err)
		}
	}
	var got []*memberlist.Packet
	for range 3 {
		got = append(got, <-s.PacketCh())
	}
	for i, want := range []string{"first", "second", "third"} {
		if p := got[i]; string(p.Buf) != want || cap(p.Buf) > 64 || p.From.String() != to.Addr {
			t.Errorf("packet %d is %q of %d bytes, from %v", i, p.Buf, cap(p.Buf), p.From)
		}
	}
}

// Shutdown returns even if nobody has read the packets and streams that arrived, and closes the streams.
func TestSocketsShutDown(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := newSockets(t, "127.0.0.1:0")
	addr := s.tcp.Addr().String()
	conn, err := s.DialTimeout(addr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := s.WriteTo([]byte("x"), addr); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Shutdown(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	if again, err := Listen(netip.MustParseAddrPort(addr), nil, nil, s.log); err != nil {
		t.Errorf("the port is not free: %v", err)
	} else {
		_ = again.Shutdown()
	}
}

// FinalAdvertiseAddr returns the given address and port, or the bound address and port if none are given.
func TestAdvertisedAddress(t *testing.T) {
	s := newSockets(t, "127.0.0.1:0")
	for _, tc := range []struct {
		ip   string
		port int
		want string
	}{
		{"", 0, s.tcp.Addr().String()},
		{"127.0.0.1", 0, s.tcp.Addr().String()},
		{"192.0.2.1", 7, "192.0.2.1:7"},
		{"::ffff:192.0.2.1", 7, "192.0.2.1:7"},
		{"2001:db8::1", 7, "[2001:db8::1]:7"},
	} {
		ip, port, err := s.FinalAdvertiseAddr(tc.ip, tc.port)
		if got := (&net.TCPAddr{IP: ip, Port: port}).String(); err != nil || got != tc.want {
			t.Errorf("of %q, %d: %s, %v; want %s", tc.ip, tc.port, got, err, tc.want)
		}
	}
	if _, _, err := s.FinalAdvertiseAddr("host", 7); err == nil {
		t.Error("a name is no address")
	}
}
