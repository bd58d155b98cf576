package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
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
	floods   = flag.Bool("floods", false, "run all attacks of TestFloods, for longer, with the timings of a LAN, and print the table; takes minutes")
	floodExe = flag.String("flood-exe", "", "the roost binary to attack, of any release; nothing is asserted then; default: built from this tree, and judged")
)

// flood is what strangers without the key do to the TCP side of a gossip port: connections,
// each of which sends a head and then fills up to the size that it announced. A connection
// that is closed is opened again.
type flood struct {
	name    string
	plain   bool // the agents have no key
	conns   int
	sources int                // 127.0.0.2 and the following addresses; 0 = the address of everyone else, 127.0.0.1
	head    func(i int) []byte // of the i-th connection
	fill    int                // bytes after the head
	drip    time.Duration      // between single bytes of the head, 0 = at once
	short   bool               // part of make test
	again   time.Duration      // after its end a connection is opened again; 0 = 1 s
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
		{name: "no key: 64 × a ping without an end", plain: true, conns: 64, fill: 64 * mib, head: func(int) []byte { // with a name of 1 GiB
			return []byte("\xf4\x05roost\x00\x81\xa4Node\xdb\x40\x00\x00\x00")
		}},
		{name: "no key: 1,000 silent", plain: true, conns: 1000, head: nothing},
		{name: "no key: 1,000 × half a ping", plain: true, conns: 1000, head: func(int) []byte { return []byte("\xf4\x05roost\x00") }},
	}
}

// TestFloods: strangers at the gossip port take neither memory nor readiness from a keyed agent, and
// keep no newcomer out that knows this agent alone (S9.1, S9.4). Long, it prints the table
// of docs/security.md.
func TestFloods(t *testing.T) {
	for _, f := range allFloods() {
		if f.short || *floods {
			t.Run(f.name, f.run)
		}
	}
}

func (f flood) run(t *testing.T) {
	args := []string{"--heartbeat", "2s", "--ttl", "1m"}
	if *floods {
		args = nil
	}
	if !f.plain {
		key := secretFile(t, "")
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		succeeds(t, "keygen", "--out", key)
		args = append(args, "--key-file", key)
	}
	a := attacked(t, "a", args...)
	a.Runs()
	args = append(args, "--join", a.Gossip)
	b := attacked(t, "b", args...)
	b.Runs()
	agree(t, a, b)
	if *floods {
		time.Sleep(3 * time.Second) // both are at rest
	}
	before := memory(t, a)

	ctx, cancel := context.WithCancel(t.Context())
	var strangers sync.WaitGroup
	end := func() { cancel(); strangers.Wait() }
	defer end()
	var opened atomic.Int64
	for i := range f.conns {
		strangers.Go(func() {
			for ctx.Err() == nil {
				f.intrude(ctx, a.Gossip, i, &opened)
				pause(ctx, cmp.Or(f.again, time.Second))
			}
		})
	}
	ready := watchReady(ctx, &strangers, a.Base)
	eventually(t, func() error {
		if n := opened.Load(); n < int64(f.conns) {
			return fmt.Errorf("%d connections are open", n)
		}
		return nil
	})
	if *floods {
		pause(ctx, 2*time.Second)
	}
	began := time.Now()
	c := attacked(t, "c", args...)
	c.Runs()
	joined := time.Since(began)
	agree(t, a, b, c)
	agreed := time.Since(began)
	if *floods {
		pause(ctx, 10*time.Second)
	}
	end()
	lost := values(t, metricsOf(t, b.Base))["roost_lease_expiries_total"] + values(t, metricsOf(t, a.Base))["roost_lease_expiries_total"]
	most := memory(t, a)
	t.Logf("| %s | %d | %d MB | %d of %d | %.0f | %.2f s | %.2f s |", f.name, opened.Load(), most>>20,
		ready.ok.Load(), ready.asked.Load(), lost, joined.Seconds(), agreed.Seconds())
	if *floodExe != "" {
		return
	}
	if most > 150*mib {
		t.Errorf("a took up to %d MB, %d before", most>>20, before>>20)
	}
	if ready.ok.Load() < ready.asked.Load() {
		t.Errorf("a was ready %d times of %d", ready.ok.Load(), ready.asked.Load())
	}
	if strings.Contains(c.Text(), "continuing alone") {
		t.Error("c took itself for alone")
	}
}

// attacked starts an agent of the binary under test.
func attacked(t *testing.T, id string, args ...string) *proc {
	t.Helper()
	exe := *floodExe
	if exe == "" {
		exe = agenttest.Binary(t)
	}
	return agenttest.LaunchCommand(t, id, agentproc.Command(exe, id, args...))
}

// intrude opens one connection, and keeps it until the other side closes it.
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

// readiness counts how often an agent was asked whether it is ready, and was.
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
