package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

var (
	floods = flag.Bool("floods", false,
		"run all attacks of TestFloods, for longer, with the timings of a LAN, and print the table; takes minutes")
	floodExe = flag.String("flood-exe", "",
		"the roost binary to attack, of any release; nothing is asserted then; default: built from this tree, and checked")
)

// flood is an attack by unauthenticated peers without the key on the TCP side of a gossip port. On each connection,
// they send a head, and then data up to the size that the head announced. If a connection is closed, they open another.
type flood struct {
	name    string
	plain   bool // the agents have no key
	conns   int
	sources int                // source addresses, from 127.0.0.2 on; 0 = 127.0.0.1, which everyone else uses
	head    func(i int) []byte // of the i-th connection
	fill    int                // bytes after the head
	drip    time.Duration      // between single bytes of the head; 0 = send the head at once
	short   bool               // part of make test
	again   time.Duration      // how long to wait before a closed connection is opened again; 0 = 1 s
}

// sealed is the head of an encrypted stream that announces n bytes.
func sealed(n uint32) func(int) []byte {
	return func(int) []byte {
		return binary.BigEndian.AppendUint32([]byte("\xf4\x05roost\x0a"), n)
	}
}

func nothing(int) []byte { return nil }

const mib = 1 << 20

func allFloods() []flood {
	exchange := func(int) []byte { // 32,768 nodes and a state of 6 MiB
		return []byte("\xf4\x05roost\x06\x83\xa5Nodes\xcd\x80\x00\xacUserStateLen\xce\x00\x60\x00\x00\xa4Join\xc3")
	}
	return []flood{
		{name: "64 × 20 MiB announced and sent", conns: 64, head: sealed(20 * mib), fill: 20*mib - 1, short: true},
		{name: "64 × 6 MiB announced and sent", conns: 64, head: sealed(6 * mib), fill: 6*mib - 1, short: true},
		{name: "64 × 6 MiB, of 8 sources", conns: 64, sources: 8, head: sealed(6 * mib), fill: 6*mib - 1},
		{name: "64 × 6 MiB announced, nothing sent", conns: 64, head: sealed(6 * mib)},
		{name: "1,000 × 100 kB announced, nothing sent", conns: 1000, head: sealed(100_000)},
		{name: "1,000 × 8 kB announced and sent", conns: 1000, head: sealed(8000), fill: 7999},
		{name: "1,000 silent", conns: 1000, head: nothing, short: true},
		{name: "1,000 silent, of 8 sources", conns: 1000, sources: 8, head: nothing, short: true},
		{name: "1,000 silent, of 250 sources", conns: 1000, sources: 250, head: nothing},
		{name: "1,000 silent, again at once", conns: 1000, head: nothing, again: time.Millisecond},
		{name: "1,000 slow heads", conns: 1000, head: sealed(1000), drip: 100 * time.Millisecond},
		{name: "1,000 slow heads, of 8 sources", conns: 1000, sources: 8, head: sealed(1000), drip: 100 * time.Millisecond},
		{name: "no key: 64 × the largest exchange", plain: true, conns: 64, head: exchange, fill: 16 * mib},
		{name: "no key: 256 × 32,768 nodes without a name", plain: true, conns: 256, again: time.Millisecond, head: func(int) []byte {
			return append([]byte("\xf4\x05roost\x06\x83\xa5Nodes\xcd\x80\x00\xacUserStateLen\x00\xa4Join\xc3"), bytes.Repeat([]byte("\x81\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00"), 32768)...)
		}},
		{name: "no key: 64 × a ping without an end", plain: true, conns: 64, fill: 64 * mib, head: func(int) []byte { // whose name has 1 GiB
			return []byte("\xf4\x05roost\x00\x81\xa4Node\xdb\x40\x00\x00\x00")
		}},
		{name: "no key: 1,000 silent", plain: true, conns: 1000, head: nothing},
		{name: "no key: 1,000 × half a ping", plain: true, conns: 1000, head: func(int) []byte { return []byte("\xf4\x05roost\x00") }},
	}
}

// TestFloods: unauthenticated peers at the gossip port cannot exhaust the memory of an agent with a key, make it
// unready, or prevent a new node that knows only this agent from joining. With -floods, the test prints the table in
// docs/dev/design/gossip-security.md.
func TestFloods(t *testing.T) {
	for _, f := range allFloods() {
		siege{name: f.name, plain: f.plain, short: f.short, begin: f.begin}.test(t)
	}
	siege{name: "no key: 64 × a state of 6 MiB", plain: true, begin: states}.test(t)
}

// siege is an attack on agent a, and one row of the table. Agent b is a member of a's cluster, and agent c joins via a
// during the attack.
type siege struct {
	name  string
	plain bool // the agents have no key
	short bool // part of make test
	args  []string
	start func(t *testing.T, id string, args ...string) *proc // nil = attacked

	// begin returns when the attack is running. Canceling ctx ends it.
	begin func(ctx context.Context, t *testing.T, s *scene)

	// believed means that the agents accept the messages, so members may lose leases and readiness. Afterwards, they
	// must agree.
	believed bool
}

// scene is the target of an attack.
type scene struct {
	a, b  *proc
	c     atomic.Pointer[proc] // once it runs
	args  []string             // of an agent that joins
	key   key                  // of all agents; nil = they have none
	wait  sync.WaitGroup
	sent  atomic.Int64 // connections or packets
	left  int          // the number of losses that begin has caused on purpose
	after func()       // makes additional checks; nil = none
}

func (g siege) test(t *testing.T) {
	t.Helper()
	if g.short || *floods {
		t.Run(g.name, g.run)
	}
}

func (g siege) run(t *testing.T) {
	args := []string{"--heartbeat", "2s", "--ttl", "1m"}
	switch {
	case *floods:
		args = nil
	case g.believed, g.start != nil:
		args = brisk() // short leases, because members must be lost during the test
	}
	args = append(args, g.args...)
	var s scene
	if !g.plain {
		var file string
		s.key, file = newKey(t)
		args = append(args, "--key-file", file)
	}
	start := g.start
	if start == nil {
		start = attacked
	}
	s.a = start(t, "a", args...)
	s.a.Runs()
	s.args = append(args, "--join", s.a.Gossip)
	s.b = start(t, "b", s.args...)
	s.b.Runs()
	agree(t, s.a, s.b)
	if *floods {
		time.Sleep(3 * time.Second) // until both agents are idle
	}
	before := memory(t, s.a)

	ctx, cancel := context.WithCancel(t.Context())
	end := func() { cancel(); s.wait.Wait() }
	defer end()
	g.begin(ctx, t, &s)
	ready := watchReady(ctx, &s.wait, s.a.Base)
	if *floods {
		pause(ctx, 2*time.Second)
	}
	began := time.Now()
	c := start(t, "c", s.args...)
	c.Runs()
	s.c.Store(c)
	joined := time.Since(began)
	if !g.believed {
		agree(t, s.a, s.b, c)
	}
	agreed := time.Since(began)
	switch {
	case *floods:
		pause(ctx, 10*time.Second)
	case g.believed:
		pause(ctx, time.Second)
	}
	end()
	if g.believed {
		began = time.Now()
		agree(t, s.a, s.b, c)
		agreed = time.Since(began)
	}
	lost, most := lostBy(s.a)+lostBy(s.b)-s.left, max(memory(t, s.a), memory(t, s.b))
	t.Logf("| %s | %d | %d MB | %d of %d | %d | %.2f s | %.2f s |", g.name, s.sent.Load(), most>>20,
		ready.ok.Load(), ready.asked.Load(), lost, joined.Seconds(), agreed.Seconds())
	if *floodExe != "" {
		return
	}
	if s.after != nil {
		s.after()
	}
	if most > 150*mib {
		t.Errorf("an agent took up to %d MB, %d before", most>>20, before>>20)
	}
	if !g.believed && ready.ok.Load() < ready.asked.Load() {
		t.Errorf("a was ready %d times of %d", ready.ok.Load(), ready.asked.Load())
	}
	if !g.believed && lost > 0 {
		t.Errorf("%d leases were lost", lost)
	}
	for _, p := range []*proc{s.a, s.b, c} {
		if strings.Contains(p.Text(), "continuing alone") || strings.Contains(p.Text(), "panic") {
			t.Errorf("%s took itself for alone, or panicked", p.ID)
		}
	}
}

// lostBy returns how often an agent lost one of the members a, b and c. Invented members don't count.
func lostBy(p *proc) (lost int) {
	for line := range strings.Lines(p.Text()) {
		var l struct{ Msg, Member string }
		if json.Unmarshal([]byte(line), &l) == nil && (l.Msg == "member left" || l.Msg == "member lost") && len(l.Member) == 1 {
			lost++
		}
	}
	return lost
}

// begin opens all connections.
func (f flood) begin(ctx context.Context, t *testing.T, s *scene) {
	for i := range f.conns {
		s.wait.Go(func() {
			for ctx.Err() == nil {
				f.intrude(ctx, s.a.Gossip, i, &s.sent)
				pause(ctx, cmp.Or(f.again, time.Second))
			}
		})
	}
	eventually(t, func() error {
		if n := s.sent.Load(); n < int64(f.conns) {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
}

// attacked starts an agent with the binary under attack.
func attacked(t *testing.T, id string, args ...string) *proc {
	t.Helper()
	exe := *floodExe
	if exe == "" {
		exe = agenttest.Binary(t)
	}
	return agenttest.LaunchCommand(t, id, agentproc.Command(exe, id, args...))
}

// intrude opens a connection and keeps it open until the other side closes it.
func (f flood) intrude(ctx context.Context, addr string, i int, opened *atomic.Int64) {
	var from net.Dialer
	if f.sources > 0 {
		from.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%f.sources))}
	}
	conn, err := from.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	opened.Add(1)
	if f.drip > 0 {
		for b := range slices.Chunk(f.head(i), 1) {
			if _, err := conn.Write(b); err != nil {
				return
			}
			pause(ctx, f.drip)
		}
	} else if _, err := conn.Write(f.head(i)); err != nil {
		return
	}
	junk := make([]byte, 64<<10)
	for left := f.fill; left > 0; {
		n, err := conn.Write(junk[:min(left, len(junk))])
		if err != nil {
			return
		}
		left -= n
	}
	_, _ = conn.Read(make([]byte, 1))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// readiness counts how often an agent was asked whether it is ready, and how often the answer was yes.
type readiness struct{ asked, ok atomic.Int64 }

func watchReady(ctx context.Context, wait *sync.WaitGroup, addr string) *readiness {
	r := new(readiness)
	wait.Go(func() {
		for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
			resp, err := http.Get("http://" + addr + "/readyz")
			if ctx.Err() != nil {
				return
			}
			r.asked.Add(1)
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					r.ok.Add(1)
				}
			}
		}
	})
	return r
}
