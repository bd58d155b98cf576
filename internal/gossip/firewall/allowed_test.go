package firewall

import (
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"testing"
	"time"
)

// If there is a list of networks, packets and streams from other sources are dropped and counted. Packets and streams
// from the listed networks arrive.
func TestAllowed(t *testing.T) {
	rejected := new(Rejections)
	allow := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("127.0.0.2/32")}
	s, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"), allow, rejected, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	send := func(from string) net.Conn {
		t.Helper()
		source := net.ParseIP(from)
		packets, err := net.DialUDP("udp", &net.UDPAddr{IP: source}, s.udp.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer packets.Close()
		if _, err := packets.Write([]byte(from)); err != nil {
			t.Fatal(err)
		}
		stream, err := net.DialTCP("tcp", &net.TCPAddr{IP: source}, s.tcp.Addr().(*net.TCPAddr))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stream.Close() })
		return stream
	}

	outsider := send("127.0.0.1")
	_ = outsider.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := outsider.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of an unauthenticated peer is not closed: %v", err)
	}
	member := send("127.0.0.2") // both queues keep their order, so the member's packet and stream must be the first to arrive
	if p := <-s.PacketCh(); string(p.Buf) != "127.0.0.2" {
		t.Errorf("a packet of %s arrived", p.Buf)
	}
	if c := <-s.StreamCh(); c.RemoteAddr().String() != member.LocalAddr().String() {
		t.Errorf("a stream of %v arrived", c.RemoteAddr())
	} else {
		_ = c.Close()
	}
	all := rejected.All()
	if n := rejected.Count(NotAllowed); n != 2 || len(all) != 2 || all[0].Over == all[1].Over {
		t.Errorf("%d rejected, want a packet and a stream: %+v", n, all)
	}
}

// An IPv4 address is recognized on an IPv6 socket, and a zone does not matter.
func TestAllowedAddresses(t *testing.T) {
	allow := &allowed{
		networks:   []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")},
		rejections: new(Rejections),
	}
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fe80::1%eth0": true, "11.0.0.1": false, "2001:db8::1": false, "::ffff:11.0.0.1": false,
	} {
		if got := allow.source(netip.AddrPortFrom(netip.MustParseAddr(addr), 7946), UDP); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if !new(allowed).source(netip.MustParseAddrPort("11.0.0.1:7946"), TCP) {
		t.Error("without a list, all are allowed")
	}
}
