package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// tap is an unauthenticated peer between an agent and the network. It records the traffic.
type tap struct {
	at, behind string // the advertised address, and the agent's real address
	udp        *net.UDPConn
	tcp        net.Listener

	mu      sync.Mutex
	packets [][]byte
	streams []*stream
	taken   bool // the agent has ended, and the unauthenticated peer has its address
}

// stream is what both sides of a connection sent.
type stream struct{ in, out []byte }

func newTap(t *testing.T) *tap {
	t.Helper()
	x := new(tap)
	eventually(t, func() (err error) {
		port := redistest.FreePort(t) // no other test can take this port at 127.0.0.2 before the agent listens
		x.at, x.behind = fmt.Sprint("127.0.0.1:", port), fmt.Sprint("127.0.0.2:", port)
		if x.tcp, err = net.Listen("tcp4", x.at); err != nil {
			return err
		}
		if x.udp, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(x.at))); err != nil {
			_ = x.tcp.Close()
		}
		return err
	})
	t.Cleanup(func() { _ = x.udp.Close(); _ = x.tcp.Close() })
	to, err := net.ResolveUDPAddr("udp4", x.behind)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, _, err := x.udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			x.mu.Lock()
			if !x.taken {
				x.packets = append(x.packets, slices.Clone(buf[:n]))
			}
			x.mu.Unlock()
			_, _ = x.udp.WriteToUDP(buf[:n], to)
		}
	}()
	go func() {
		for {
			conn, err := x.tcp.Accept()
			if err != nil {
				return
			}
			go x.pass(conn)
		}
	}()
	return x
}

// pass forwards a connection and records it, or replays a recorded answer.
func (x *tap) pass(conn net.Conn) {
	defer conn.Close()
	s := new(stream)
	x.mu.Lock()
	if x.taken {
		old := x.streams[time.Now().UnixNano()%int64(len(x.streams))]
		x.mu.Unlock()
		_, _ = conn.Write(old.out)
		_, _ = conn.Read(make([]byte, 1))
		return
	}
	x.streams = append(x.streams, s)
	x.mu.Unlock()
	to, err := net.Dial("tcp4", x.behind)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { x.carry(to, conn, &s.in) })
	both.Go(func() { x.carry(conn, to, &s.out) })
	both.Wait()
}

func (x *tap) carry(to, from net.Conn, keep *[]byte) {
	defer to.Close()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		x.mu.Lock()
		*keep = append(*keep, buf[:n]...)
		x.mu.Unlock()
		if _, problem := to.Write(buf[:n]); err != nil || problem != nil {
			return
		}
	}
}

// take gives an agent's address to the unauthenticated peer.
func (x *tap) take() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.taken = true
}

// recording contains everything that taps have recorded so far.
func recording(taps map[string]*tap) (packets [][]byte, streams [][]byte) {
	for _, x := range taps {
		x.mu.Lock()
		packets = append(packets, x.packets...)
		for _, s := range x.streams {
			streams = append(streams, slices.Clone(s.in))
		}
		x.mu.Unlock()
	}
	return packets, streams
}

// TestReplay: an unauthenticated peer records the traffic of a cluster with a key. It sends the recording again as soon
// as members have left, or two minutes later, to members and to a new node. It has also taken over the addresses of the
// former members, and gives their recorded answers there. No lease may end, and no former member may come back.
func TestReplay(t *testing.T) {
	t.Parallel()
	taps := make(map[string]*tap)
	tapped := func(t *testing.T, id string, args ...string) *proc {
		t.Helper()
		x := newTap(t)
		taps[id] = x
		return attacked(t, id, append(args, "--bind", x.behind, "--advertise", x.at)...)
	}
	siege{name: "replay", short: true, start: tapped, begin: func(ctx context.Context, t *testing.T, s *scene) {
		t.Helper()
		d, e := tapped(t, "d", s.args...), tapped(t, "e", s.args...)
		d.Runs()
		e.Runs()
		agree(t, s.a, s.b, d, e)
		listen, later := time.Second, time.Duration(0)
		if *floods {
			listen, later = 20*time.Second, 2*time.Minute
		}
		pause(ctx, listen)
		d.Signal(syscall.SIGTERM)
		d.Exits(exitOK)
		if err := e.Kill(); err != nil {
			t.Fatal(err)
		}
		taps["d"].take()
		taps["e"].take()
		agree(t, s.a, s.b)
		s.left = 4 // both a and b lose d and e
		packets, streams := recording(taps)
		pause(ctx, later)
		s.after = func() { stayedAway(t, s.a, s.b) }
		s.replay(ctx, t, taps["d"].udp, packets, streams)
		t.Logf("%d packets and %d streams were recorded", len(packets), len(streams))
	}}.test(t)
}

// replay starts to send all packets and streams to all agents, again and again.
func (s *scene) replay(ctx context.Context, t *testing.T, former *net.UDPConn, packets, streams [][]byte) {
	t.Helper()
	targets := func() []string {
		all := []string{s.a.Gossip, s.b.Gossip}
		if c := s.c.Load(); c != nil {
			all = append(all, c.Gossip)
		}
		return all
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 3)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	whole := make(chan struct{}, 2)
	s.wait.Go(func() {
		for ctx.Err() == nil {
			for i, p := range packets {
				for _, at := range targets() {
					to, err := net.ResolveUDPAddr("udp4", at)
					if err != nil || ctx.Err() != nil {
						return
					}
					from := []*net.UDPConn{conn, former}[i%2]
					_, _ = from.WriteToUDP(p, to)
					s.sent.Add(1)
				}
				pause(ctx, 200*time.Microsecond)
			}
			whole <- struct{}{}
		}
	})
	s.wait.Go(func() {
		for ctx.Err() == nil {
			var each sync.WaitGroup
			for _, b := range streams {
				for _, at := range targets() {
					each.Go(func() { again(ctx, at, b) })
					s.sent.Add(1)
				}
			}
			each.Wait()
			whole <- struct{}{}
			pause(ctx, 100*time.Millisecond)
		}
	})
	for range 2 {
		<-whole
	}
	s.wait.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-whole:
			case <-ctx.Done():
			}
		}
	})
}

// again sends what a recorded connection carried, and reads the answer.
func again(ctx context.Context, at string, b []byte) {
	conn, err := net.DialTimeout("tcp4", at, time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = conn.Write(b)
	_, _ = io.Copy(io.Discard, conn)
}

// stayedAway fails the test if former members came back.
func stayedAway(t *testing.T, agents ...*proc) {
	t.Helper()
	for _, p := range agents {
		joins := make(map[string]int)
		for line := range strings.Lines(p.Text()) {
			var l struct{ Msg, Member string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "member joined" {
				joins[l.Member]++
			}
		}
		if joins["d"] != 1 || joins["e"] != 1 {
			t.Errorf("at %s members joined so often: %v", p.ID, joins)
		}
		var old float64
		for name, n := range values(t, metricsOf(t, p.Base)) {
			if strings.HasPrefix(name, "roost_messages_dropped_total") && (strings.Contains(name, `"past"`) || strings.Contains(name, `"future"`)) {
				old += n
			}
		}
		if old == 0 {
			t.Errorf("%s has seen no recorded message", p.ID)
		}
		t.Logf("%s has refused %.0f messages as of another time", p.ID, old)
	}
}
