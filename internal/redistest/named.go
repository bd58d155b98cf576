package redistest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names maps the host names of tests to their addresses.
var names sync.Map //nolint:gochecknoglobals // there is one default resolver

// Names makes net.DefaultResolver query a DNS server in this process, which only knows the names of
// StartNamed. Call Names in TestMain. A later call would be a data race, because abandoned lookups can still
// read net.DefaultResolver.
func Names() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			_ = serveNames(server)
		}()
		return client, nil
	}}
}

var named atomic.Int32 //nolint:gochecknoglobals // a name is for one test alone

// StartNamed starts a master and a replica behind a host name. After Move, the name only resolves to the
// address of the second server. TestMain must call Names. StartNamed needs the addresses 127.0.0.2 and
// 127.0.0.3, which exist on Linux.
func StartNamed(tb testing.TB) *Failover {
	tb.Helper()
	f := startFailover(tb)
	name, port := fmt.Sprintf("redis-%d.test.", named.Add(1)), strconv.Itoa(FreePort(tb))
	ips := [2]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 2}), netip.AddrFrom4([4]byte{127, 0, 0, 3})}
	for i, ip := range ips {
		proxyAt(tb, net.JoinHostPort(ip.String(), port), f.pair[i].Addr())
	}
	f.addr = net.JoinHostPort(name, port)
	f.point = func(to int) { names.Store(name, ips[to]) }
	f.point(0)
	tb.Cleanup(func() { names.Delete(name) })
	return f
}

// serveNames answers queries like a DNS server over TCP until the connection is closed.
func serveNames(conn net.Conn) error {
	size := make([]byte, 2)
	for {
		if _, err := io.ReadFull(conn, size); err != nil {
			return err
		}
		query := make([]byte, int(size[0])<<8|int(size[1]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return err
		}
		var m dnsmessage.Message
		if err := m.Unpack(query); err != nil {
			return err
		}
		answer(&m)
		reply, err := m.AppendPack(make([]byte, 2, 512))
		if err != nil {
			return err
		}
		n := len(reply) - 2
		reply[0], reply[1] = byte(n>>8), byte(n)
		if _, err := conn.Write(reply); err != nil {
			return err
		}
	}
}

// answer turns the query m into its response.
func answer(m *dnsmessage.Message) {
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	m.RCode = dnsmessage.RCodeNameError
	if len(m.Questions) != 1 {
		return
	}
	q := m.Questions[0]
	ip, ok := names.Load(q.Name.String())
	if !ok {
		return
	}
	m.RCode = dnsmessage.RCodeSuccess
	if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: ip.(netip.Addr).As4()},
		}}
	}
}
