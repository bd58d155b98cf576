package gossip

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

// sockets is memberlist's transport over UDP and TCP, but for two things. memberlist's own
// one allocates 64 KiB for each packet: an unauthenticated peer that sends 70,000 a second makes a process
// allocate 4.5 GB/s, and the packets of members get lost meanwhile. Nor does it let go
// of a packet or stream that nobody takes.
type sockets struct {
	tcp     *net.TCPListener
	udp     *net.UDPConn
	zone    string // of the bound address, if it is link-local; the listener does not keep it
	log     *log.Logger
	allow   *allowed
	packets chan *memberlist.Packet
	streams chan net.Conn

	closed  chan struct{}
	closing sync.Once
	wait    sync.WaitGroup
}

const (
	maxPacket    = 1 << 16
	receiveBytes = 2 << 20 // that the kernel keeps, if it grants as many
	acceptPause  = 50 * time.Millisecond
)

// openSockets listens on one port for UDP and TCP; 0 = any that is free for TCP.
func openSockets(at netip.AddrPort, allow *allowed, log *log.Logger) (*sockets, error) {
	tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	s := &sockets{
		tcp: tcp, zone: at.Addr().Zone(), log: log, allow: allow, closed: make(chan struct{}),
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
	}
	if s.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), s.port()))); err != nil {
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

func (s *sockets) port() uint16 {
	at, _ := netip.ParseAddrPort(s.tcp.Addr().String()) // of a listener, it is valid
	return at.Port()
}

func (s *sockets) receive() {
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

func (s *sockets) accept() {
	for {
		conn, err := s.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Printf("[ERR] memberlist: Error accepting TCP connection: %v", err)
			time.Sleep(acceptPause) // such as without a free descriptor
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

// FinalAdvertiseAddr implements memberlist.Transport: the given address and port, or else the bound ones.
func (s *sockets) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
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
func (s *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	return s.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress implements memberlist.NodeAwareTransport.
func (s *sockets) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	at, err := net.ResolveUDPAddr("udp", s.zoned(to.Addr))
	if err != nil {
		return time.Time{}, err
	}
	_, err = s.udp.WriteTo(b, at)
	return time.Now(), err
}

// DialTimeout implements memberlist.Transport.
func (s *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return s.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (s *sockets) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", s.zoned(to.Addr), timeout)
}

// PacketCh implements memberlist.Transport.
func (s *sockets) PacketCh() <-chan *memberlist.Packet { return s.packets }

// StreamCh implements memberlist.Transport.
func (s *sockets) StreamCh() <-chan net.Conn { return s.streams }

// Shutdown closes the sockets, and waits until nothing reads them.
func (s *sockets) Shutdown() error {
	var err error
	s.closing.Do(func() {
		close(s.closed)
		err = errors.Join(s.tcp.Close(), s.udp.Close())
	})
	s.wait.Wait()
	return err
}
