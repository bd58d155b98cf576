//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/redistest"
)

// complaints returns the checks of an agent that are not ok.
func complaints(t *testing.T, p *proc) (found []string) {
	t.Helper()
	_, out, fault := roost(t, "doctor", "--addr", p.Base, "--over", "1ms", "--output", "json")
	var d struct {
		Checks []struct{ Name, Status, Finding string }
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("%v: %s%s", err, out, fault)
	}
	for _, c := range d.Checks {
		if c.Status != doctor.OK.String() {
			found = append(found, fmt.Sprintf("%s %s: %s", c.Status, c.Name, c.Finding))
		}
	}
	return found
}

// faulty is a cluster of a, b and c over one Redis, before its fault.
type faulty struct {
	t     *testing.T
	b, c  *proc
	redis *redistest.Server
	link  *redistest.Link // to it
	seed  string
	args  []string // of all agents
}

// namedFault is one fault of node b, or of what the nodes share, and how c names it.
type namedFault struct {
	name    string
	args    []string // of all agents, besides the usual
	fault   func(f *faulty)
	within  time.Duration // 0: 10 s
	doctor  []string      // how its complaints begin
	history string        // the last event that is not of the table; "" = no new one
	members string        // a line, in words
	log     []string      // the messages since the fault, each with what it names
}

// busy is how much longer than on a quiet machine naming a fault may take.
const busy = 2

// TestFaultsAreNamed makes one fault each, on agents with leases of 6 s. Doctor, the history, the members and the log of c name
// the cause and the node, and nothing else: a crash within 2 s, all others within 10 s. A death is two lines of the log, without rooms
// that it had. TestDoctorNamesWhatDoesNotArrive has another fault, and internal/netlab those of networks.
func TestFaultsAreNamed(t *testing.T) { // S8.1, S8.2
	t.Parallel()
	for _, n := range []namedFault{
		{
			name: "killed", within: 2 * time.Second, fault: func(f *faulty) { f.b.Signal(syscall.SIGKILL) },
			doctor: []string{"warn members: lost: b crashed "}, history: "lost b crashed", members: "b crashed",
			log: []string{"member lost b crashed", "ownership changed"},
		},
		{
			name: "paused", fault: func(f *faulty) { f.b.Signal(syscall.SIGSTOP) },
			doctor: []string{"warn members: lost: b expired "}, history: "lost b expired", members: "b expired",
			log: []string{"member lost b expired", "ownership changed"},
		},
		{
			name: "drained", fault: func(f *faulty) { succeeds(f.t, "drain", "--addr", f.b.Base) },
			history: "draining b", members: "b draining", log: []string{"ownership changed"},
		},
		{
			name: "clock off", members: "b active", fault: (*faulty).startAhead,
			doctor: []string{"fail clocks: more than 5s ahead of the others: d by "},                                // d never becomes a member
			log:    []string{"rejected heartbeats from a clock too far ahead; set the clock of their sender d by "}, // 7s, or 6.9s
		},
		{
			name: "Redis down", fault: func(f *faulty) { f.redis.Kill() },
			doctor: []string{"fail redis: Redis has not answered lately"}, members: "b active",
			log: []string{"store does not answer; resolving without it"},
		},
		{
			name: "Redis hangs", fault: func(f *faulty) { f.link.Hang() },
			doctor: []string{"fail redis: Redis has not answered lately"}, members: "b active",
			log: []string{"store does not answer; resolving without it"},
		},
		{
			name: "Redis slow", fault: func(f *faulty) { f.link.Delay(2 * time.Second) },
			doctor: []string{"fail redis: Redis has not answered lately"}, members: "b active",
			log: []string{"store does not answer; resolving without it"},
		},
		{
			name: "too few partitions", args: []string{"--partitions", "2"},
			fault:  func(f *faulty) { f.c.Logs(`"partitions are spread unevenly"`, "raise Partitions from 2") }, // before or after the lines below
			doctor: []string{"fail balance: 2 partitions on 3 nodes"}, members: "b active",
		},
	} {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			n.holds(t)
		})
	}
}

func (n namedFault) holds(t *testing.T) {
	t.Helper()
	f := &faulty{t: t}
	// Longer leases than in other tests: a false loss on a busy machine would stay in the history.
	f.args = append([]string{"--heartbeat", "1s", "--ttl", "6s"}, n.args...)
	if strings.HasPrefix(n.name, "Redis") { // for the others one that is late on a busy machine would be a second fault
		f.redis = redistest.Start(t)
		f.link = redistest.Proxy(t, f.redis.Addr())
		f.args = append(f.args, "--redis", f.link.URL(f.redis))
	}
	a, b, c := trio(t, f.args...)
	f.b, f.c, f.seed = b, c, a.Gossip
	events, lines := len(eventsOf(t, c)), len(linesOf(t, c))
	began := time.Now()
	n.fault(f)
	within := 10 * time.Second
	if n.within > 0 {
		within = n.within
	}
	for err := error(nil); ; time.Sleep(20 * time.Millisecond) {
		if err = n.named(t, c, events, lines); err == nil {
			break
		}
		if time.Since(began) > busy*within {
			t.Fatal(err)
		}
	}
	if len(n.log) == 2 { // a death
		c.Logs(`"moved":`, `"nodes":2,"max_mean":1.0`) // figures of two digits
	}
	t.Logf("named after %v", time.Since(began).Round(10*time.Millisecond))
}

// named compares what an agent says since it had so many events and lines.
func (n namedFault) named(t *testing.T, c *proc, events, lines int) error {
	t.Helper()
	if found := complaints(t, c); !slices.EqualFunc(found, n.doctor, strings.HasPrefix) {
		return fmt.Errorf("doctor complains of %q, want %q", found, n.doctor)
	}
	news := slices.DeleteFunc(eventsOf(t, c)[events:], func(e string) bool { return strings.HasPrefix(e, "moved") })
	if n.history == "" && len(news) > 0 || n.history != "" && (len(news) != 1 || !strings.HasPrefix(news[0], n.history)) {
		return fmt.Errorf("the history has %q, want %q", news, n.history)
	}
	words := strings.Join(strings.Fields(succeeds(t, "members", "--addr", c.Base)), " ")
	if !strings.Contains(words, n.members) {
		return fmt.Errorf("members prints %q", words)
	}
	// A sweep or a join may meet the fault of Redis, too. What is uneven is logged once, at any time.
	said := slices.DeleteFunc(linesOf(t, c)[lines:], func(l string) bool {
		return l == "rooms of dead nodes not found, retrying" || strings.HasPrefix(l, "store circuit breaker") || l == "partitions are spread unevenly"
	})
	if !slices.EqualFunc(said, n.log, strings.HasPrefix) {
		return fmt.Errorf("the log has %q, want %q", said, n.log)
	}
	return nil
}

// linesOf returns the messages of a log, with the member and the reason if they have any.
func linesOf(t *testing.T, p *proc) (said []string) {
	t.Helper()
	for line := range strings.Lines(p.Log.String()) {
		var l struct{ Msg, Member, Senders, Reason string }
		if !strings.HasSuffix(line, "\n") {
			continue // more follows
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		said = append(said, strings.Join(strings.Fields(l.Msg+" "+l.Member+" "+l.Senders+" "+l.Reason), " "))
	}
	return said
}

// startAhead starts node d, with a wall clock that is ahead.
func (f *faulty) startAhead() {
	f.t.Helper()
	d, err := cluster.Start(gossip.WithEnv(f.t.Context(), gossip.Env{ClockOffset: 7 * time.Second}), cluster.Config{
		ID: "d", Bind: "127.0.0.1:0", Join: []string{f.seed}, HeartbeatInterval: time.Second, LeaseTTL: 6 * time.Second,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = d.Close() })
}
