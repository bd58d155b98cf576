package survey

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/lease"
)

// These limits are generous, because they apply only if a host is up and does not answer. Otherwise, nothing waits that
// long.
const (
	connectFor = 1500 * time.Millisecond // Linux sends a lost SYN again after a second
	answerFor  = 2 * time.Second         // a starved process takes this long; a paused one never answers
)

// Knock connects to the gossip ports of lost members, each once, and returns what it found. It uses only
// addresses that members have announced. Knock sends no data, so the processes there need not trust it, and
// do not count it as hostile.
//
// If the ports seem closed, Knock also connects to the gossip port of the agent of s, at self. If that does
// not answer either, this machine cannot tell which processes run, and the ports are unknown.
func Knock(ctx context.Context, s *session.Session, self string, lost []clusterhttp.Lost, progress func(done, of int)) map[lease.NodeID]doctor.Port {
	ports := make(map[lease.NodeID]doctor.Port)
	var mu sync.Mutex
	var wait sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	lost = slices.DeleteFunc(slices.Clone(lost), func(l clusterhttp.Lost) bool {
		return l.Reason == lease.Departed || s.Elsewhere(l.Addr)
	})
	for _, l := range lost {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			port := knock(ctx, l.Addr)
			mu.Lock()
			defer mu.Unlock()
			ports[l.ID] = port
			progress(len(ports), len(lost))
		})
	}
	wait.Wait()
	closed := func(_ lease.NodeID, p doctor.Port) bool {
		return p == doctor.PortRefused || p == doctor.PortUnreachable
	}
	open := maps.Clone(ports)
	maps.DeleteFunc(open, closed)
	if len(open) < len(ports) && knock(ctx, self) != doctor.PortAnswers {
		return open
	}
	return ports
}

// knock opens a connection and closes its own direction. A gossip node reads the end of the stream and closes
// the connection, too. If its process is paused, the kernel accepts the connection, but nobody closes it.
func knock(ctx context.Context, addr string) doctor.Port {
	at, err := netip.ParseAddrPort(addr) // a name would cause a DNS query
	if err != nil || ctx.Err() != nil {
		return doctor.PortUnknown
	}
	d := net.Dialer{Timeout: connectFor}
	conn, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return closedPort(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err = cmp.Or(conn.(*net.TCPConn).CloseWrite(), conn.SetReadDeadline(time.Now().Add(answerFor))) //nolint:forcetypeassert // of TCP
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(conn, 1<<16)) // a gossip node sends nothing
	}
	switch {
	case ctx.Err() != nil:
		return doctor.PortUnknown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return doctor.PortSilent
	default:
		return doctor.PortAnswers
	}
}

// closedPort returns what a failed attempt to connect shows about the other host. Problems of this machine
// show nothing.
func closedPort(err error) doctor.Port {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return doctor.PortRefused
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return doctor.PortUnreachable
	}
	for _, e := range []error{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN} {
		if errors.Is(err, e) {
			return doctor.PortUnreachable
		}
	}
	return doctor.PortUnknown
}
