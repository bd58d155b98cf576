package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// bystander is an address that never asked for anything.
type bystander struct {
	addr                 netip.AddrPort
	packets, bytes, tcps atomic.Int64
}

func stand(t *testing.T, host byte) *bystander {
	t.Helper()
	port := redistest.FreePort(t) // for TCP, too
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, host), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	b := &bystander{addr: udp.LocalAddr().(*net.UDPAddr).AddrPort()} //nolint:forcetypeassert // UDP
	tcp, err := net.Listen("tcp4", b.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close(); _ = tcp.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, _, err := udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			b.packets.Add(1)
			b.bytes.Add(int64(n))
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			b.tcps.Add(1)
			go func() {
				n, _ := io.Copy(io.Discard, conn)
				b.bytes.Add(n)
				_ = conn.Close()
			}()
		}
	}()
	return b
}

// insight contains what an agent reveals to anyone who has the key, or to anyone at all if there is no key.
type insight struct {
	meta     []byte
	settings uint32
	of       map[lease.NodeID]*lease.Record
}

func spy(t *testing.T, addr string, k key) insight {
	t.Helper()
	var b []byte
	redistest.Eventually(t, "the state of "+addr, func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _ = conn.Write(k.stream([]byte("\x06\x83\xa5Nodes\x00\xacUserStateLen\x00\xa4Join\xc2")))
		if b, err = io.ReadAll(conn); err == nil && string(b) == "\xc9" {
			err = errors.New("it is busy with other streams")
		}
		return err
	})
	b = k.open(t, b)
	_, m, _ := bytes.Cut(b, []byte("\xa4Meta\xda"))
	n := int(binary.BigEndian.Uint16(m))
	_, s, _ := bytes.Cut(b, []byte("UserStateLen"))
	size := int(s[0])
	switch s[0] {
	case 0xcc, 0xd0:
		size = int(s[1])
	case 0xcd, 0xd1:
		size = int(binary.BigEndian.Uint16(s[1:]))
	}
	state, err := lease.Decode(b[len(b)-size:])
	if err != nil {
		t.Fatal(err)
	}
	i := insight{m[2 : 2+n], state.Settings, make(map[lease.NodeID]*lease.Record)}
	for _, r := range state.Records {
		i.of[r.ID] = r
	}
	return i
}

// alive returns a memberlist message that says that an invented node is alive at an address.
func (k insight) alive(i int, at netip.AddrPort) []byte {
	name, ip := fmt.Sprintf("x%d#1000000000000000", i), at.Addr().As4()
	b := append([]byte("\xf4\x05roost\x04\x86\xa4Node"), 0xa0|byte(len(name)))
	b = append(append(b, name...), "\xabIncarnation\x01\xa4Addr\xa4"...)
	b = append(append(b, ip[:]...), "\xa4Port\xcd"...)
	b = binary.BigEndian.AppendUint16(b, at.Port())
	b = append(b, "\xa4Meta\xda"...)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(k.meta))), k.meta...)
	return append(b, "\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00"...)
}

// heartbeat returns a lease message with the heartbeat of an invented node at an address.
func (k insight) heartbeat(i int, at netip.AddrPort) []byte {
	r := lease.Record{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("x", i)), Incarnation: 1e15, Addr: at.String(), Weight: 100}}
	s := lease.NewSet(time.Now(), r, lease.Params{TTL: time.Minute, Settings: k.settings})
	s.Establish()
	return append([]byte("\xf4\x05roost\x08"), lease.Encode(s.Sync(time.Now()))...)
}

// TestReflection: a sender makes agents without a key send traffic to hosts that never asked for it. Unless the sender
// sends only a few packets, the agents send at most twice as many bytes as the sender. With -floods, the test prints
// the table in docs/dev/design/gossip-security.md.
func TestReflection(t *testing.T) {
	t.Parallel()
	a := attacked(t, "a")
	a.Runs()
	b, c := attacked(t, "b", "--join", a.Gossip), attacked(t, "c", "--join", a.Gossip)
	b.Runs()
	c.Runs()
	agree(t, a, b, c)
	k := spy(t, a.Gossip, nil)
	conn, err := net.Dial("udp", a.Gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows := []struct {
		name    string
		packets int
		make    func(i int, at netip.AddrPort) []byte
		by      *bystander
		in      int
	}{
		{name: "a heartbeat", packets: 1, make: k.heartbeat},
		{name: "100 heartbeats", packets: 100, make: k.heartbeat},
		{name: "a name", packets: 1, make: k.alive},
		{name: "100 names", packets: 100, make: k.alive},
	}
	for i := range rows {
		x := &rows[i]
		x.by = stand(t, byte(9+i))
		for n := range x.packets {
			p := x.make(1000*i+n, x.by.addr)
			x.in += len(p)
			if _, err := conn.Write(p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // the socket's buffer is bounded
		}
	}
	watched := 5 * time.Second
	if *floods {
		watched = 40 * time.Second // until memberlist has forgotten the names
	}
	time.Sleep(watched)
	for _, x := range rows {
		out := x.by.bytes.Load()
		t.Logf("| %s | %d | %d | %d | %d | %.1f |", x.name, x.in, out, x.by.packets.Load(), x.by.tcps.Load(), float64(out)/float64(x.in))
		if *floodExe == "" && x.packets > 1 && (out == 0 || out > 2*int64(x.in)) {
			t.Errorf("%s: %d bytes draw %d", x.name, x.in, out)
		}
	}
}
