package firewall

// This is the rule for sockets. In v0.5.1, memberlist's NetTransport allocates 64 KiB for each packet
// (udpListen). An unauthenticated peer that sends 70,000 packets per second makes a process allocate 4.5
// GB/s, and packets of members are lost meanwhile. The goroutines of NetTransport also block until someone
// reads the data that has arrived. If Shutdown is called before then, it never returns. And memberlist drops
// the zone of a link-local address: https://github.com/hashicorp/memberlist/issues/115
//
// The rule can be removed when NetTransport copies packets out of a single buffer, stops blocking at
// Shutdown, and accepts addresses with a zone.

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Sockets is a memberlist transport over UDP and TCP.
type Sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	zone    string // zone of the bound address, if it is link-local; the listener does not keep it
	log     *log.Logger
	allow   allowed
	packets chan *memberlist.Packet
	streams chan net.Conn

	closed  chan struct{}
	closing sync.Once
	wait    sync.WaitGroup
}

const (
	maxPacket    = 1 << 16
	receiveBytes = 2 << 20 // size of the kernel's receive buffer, if the kernel grants it
	acceptPause  = 50 * time.Millisecond
)

// Listen listens on the same port for UDP and TCP. Port 0 means any port that is free for TCP. Listen accepts packets
// and streams from the networks in allow, and counts packets and streams from other sources. If allow is empty, it
// accepts all sources.
func Listen(at netip.AddrPort, allow []netip.Prefix, r *Rejections, log *log.Logger) (*Sockets, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	s := &Sockets{
		tcp: tcp, zone: at.Addr().Zone(), log: log, allow: allowed{allow, r}, closed: make(chan struct{}),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), s.Port()))); err != nil {
		_ = tcp.Close()
		return nil, err
	}
	for size := receiveBytes; size > 0 && s.udp.SetReadBuffer(size) != nil; {
		size /= 2
	}
	s.wait.Go(s.receive)
	s.wait.Go(s.accept)
	return s, nil
}

// Port returns the port of both sockets.
func (s *Sockets) Port() uint16 {
	at, _ := netip.ParseAddrPort(s.tcp.Addr().String()) // the address of a listener is valid
	return at.Port()
}

func (s *Sockets) receive() {
	buf := make([]byte, maxPacket)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Printf("[ERR] memberlist: Error reading UDP packet: %v", err)
			continue
		}
		if n == 0 || !s.allow.source(from, UDP) {
			continue
		}
		p := &memberlist.Packet{
			Buf:       slices.Clone(buf[:n]),
			From:      net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr().Unmap(), from.Port())),
			Timestamp: time.Now(),
		}
		select {
		case s.packets <- p:
		case <-s.closed:
			return
		}
	}
}

func (s *Sockets) accept() {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Printf("[ERR] memberlist: Error accepting TCP connection: %v", err)
			time.Sleep(acceptPause) // for example, if there is no free file descriptor
			continue
		}
		if from, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err != nil || !s.allow.source(from, TCP) {
			_ = conn.Close()
			continue
		}
		select {
		case s.streams <- conn:
		case <-s.closed:
			_ = conn.Close()
			return
		}
	}
}

// FinalAdvertiseAddr implements memberlist.Transport. It returns the given address and port, or the bound address and
// port if they are empty.
func (s *Sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	bound := s.tcp.Addr().(*net.TCPAddr) //nolint:forcetypeassert // of TCP
	if ip == "" {
		return bound.IP, bound.Port, nil
	}
	parsed := net.ParseIP(ip)
	if parsed == nil {
		return nil, 0, fmt.Errorf("gossip: advertised address %q is none", ip)
	}
	if four := parsed.To4(); four != nil {
		parsed = four
	}
	if port == 0 {
		port = bound.Port
	}
	return parsed, port, nil
}

// WriteTo implements memberlist.Transport.
func (s *Sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (s *Sockets) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	at, err := net.ResolveUDPAddr("udp", s.zoned(to.Addr))
	if err != nil {
		return time.Time{}, err
	}
	_, err = s.udp.WriteTo(b, at)
	return time.Now(), err
}

// DialTimeout implements memberlist.Transport.
func (s *Sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (s *Sockets) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", s.zoned(to.Addr), timeout)
}

// zoned adds the zone of the bound address to a link-local address without a zone.
func (s *Sockets) zoned(addr string) string {
	if s.zone == "" {
		return addr
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil || !at.Addr().Is6() || !at.Addr().IsLinkLocalUnicast() || at.Addr().Zone() != "" {
		return addr
	}
	return netip.AddrPortFrom(at.Addr().WithZone(s.zone), at.Port()).String()
}

// PacketCh implements memberlist.Transport.
func (s *Sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh implements memberlist.Transport.
func (s *Sockets) StreamCh() <-chan net.Conn { return s.streams }

// Shutdown closes the sockets, and waits until no goroutine reads them.
func (s *Sockets) Shutdown() error {
	var err error
	s.closing.Do(func() {
		close(s.closed)
		err = errors.Join(s.tcp.Close(), s.udp.Close())
	})
	s.wait.Wait()
	return err
}
