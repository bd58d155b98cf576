//go:build linux

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/redistest"
)

// faulty is a cluster of nodes a, b and c, in which the test causes a problem.
type faulty struct {
	t       *testing.T
	a, b, c *proc
	redis   *redistest.Server // only for faults with redis
	link    *redistest.Link   // to it
	args    []string          // of all agents
	at      *agenttest.Observer
}

// namedFault is a problem of node b or of something that the nodes share. It includes what users see of the problem.
type namedFault struct {
	name   string
	args   []string        // of all agents, in addition to the usual ones
	redis  bool            // the agents pin rooms
	ready  func(f *faulty) // before it
	begin  func(f *faulty)
	within time.Duration   // 0: 10 s
	all    bool            // doctor asks all agents
	want   agenttest.Views // at c
}

// finds returns views in which the doctor and the page show these findings, all nodes are active, and nothing else
// happens.
func finds(findings ...string) agenttest.Views {
	return agenttest.Views{Doctor: findings, Page: findings, Members: []string{"a active", "b active", "c active"}}
}

// loses returns the views after the loss of b, with more lines in the log.
func loses(reason string, more ...string) agenttest.Views {
	v := finds("warn members: lost: b " + reason + " ")
	v.Members, v.History = []string{"a active", "c active", "b " + reason + " "}, []string{"lost b " + reason}
	v.Log = append([]string{"member lost b " + reason, "ownership changed"}, more...)
	return v
}

// tells returns the views after a loss if the doctor asks all agents and says what happened to b.
func tells(v agenttest.Views, became string) agenttest.Views {
	for _, f := range v.Page {
		v.Doctor = []string{strings.Replace(f, "lost: ", "lost, and "+became+": ", 1), "a " + f}
	}
	return v
}

// logs adds lines of the log to views.
func logs(v agenttest.Views, lines ...string) agenttest.Views {
	v.Log = lines
	return v
}

// remembers adds events of the history to views.
func remembers(v agenttest.Views, events ...string) agenttest.Views {
	v.History = append(v.History, events...)
	return v
}

// TestFaultsAreNamed causes one problem at a time, in clusters with leases of 6 s. The doctor, the page, the members,
// the history and the log of c must show what the table says, and nothing else: within 2 s after a crash, 20 s
// after a pause, and 10 s after any other problem. At least one view must name the cause, and the node if only one
// node has the problem. docs/dev/testing.md lists which view does. A crash adds two lines to the log, and three if the
// agents pin rooms.
// internal/e2e/netlab tests network faults.
func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	silent := func(why string) agenttest.Views {
		v := logs(finds("fail redis: Redis has not answered lately ("+why), "store does not answer; resolving without it")
		v.History = []string{"store-away"}
		return v
	}
	for _, n := range []namedFault{
		{name: "killed", within: 2 * time.Second, begin: func(f *faulty) { f.b.Signal(syscall.SIGKILL) }, want: loses("crashed")},
		{
			name: "killed with rooms", redis: true, within: 2 * time.Second, ready: (*faulty).pinRooms,
			begin: func(f *faulty) { f.b.Signal(syscall.SIGKILL) }, want: remembers(loses("crashed", "rooms failed over"), "rooms-moved b its node died"),
		},
		{
			// roost doctor --all waits 5 s for b's answer, and two runs begin before b is lost.
			name: "paused", all: true, within: 20 * time.Second, begin: func(f *faulty) { f.b.Signal(syscall.SIGSTOP) }, want: tells(loses("expired"), "paused"),
		},
		{name: "ended", all: true, begin: func(f *faulty) { f.b.Signal(syscall.SIGKILL) }, want: tells(loses("crashed"), "ended")},
		{
			name: "drained", all: true, begin: func(f *faulty) { succeeds(f.t, "drain", "--addr", f.b.Base) },
			want: agenttest.Views{
				Doctor:  []string{"b warn ready: b is draining"},
				Passes:  []string{"members: 2 of 3 own partitions; draining: b", "seeds: all of them are members: 127.0.0.1:"},
				Members: []string{"a active", "b draining", "c active", "b has been draining for "},
				History: []string{"draining b"},
				Log:     []string{"ownership changed"},
			},
		},
		{
			name: "wrong advertise", all: true, begin: (*faulty).advertiseNothing, // b has left, and does not become a member again
			want: agenttest.Views{
				Page: []string{"warn members: heard only over TCP: b at 127.0.0.1:"},
				Doctor: []string{
					"warn members: heard only over TCP: b at 127.0.0.1:",
					"warn views: running, but not members: b (joining: members answer over TCP, but UDP does not get through both ways: is UDP blocked, or can others not reach this node at its advertised address 127.0.0.1:",
				},
				Members: []string{"a active", "c active", "b is reachable only over TCP: ", "b left "},
				History: []string{"draining b", "lost b left"}, Log: []string{"ownership changed", "member left b left"},
			},
		},
		{
			name: "clock off", begin: (*faulty).startAhead, // d never becomes a member
			want: agenttest.Views{
				Doctor:  []string{"fail clocks: more than 5s from the other clocks: d "},
				Page:    []string{"fail clocks: more than 5s from the other clocks: d "},
				Members: append(finds().Members, "d is rejected: its clock is "),
				Log:     []string{"rejected heartbeats: sender's clock too far ahead d by "},
			},
		},
		{name: "Redis down", redis: true, begin: (*faulty).killRedis, want: silent("connection refused)")},
		{name: "Redis hangs", redis: true, begin: func(f *faulty) { f.link.Hang() }, want: silent("not within 150ms)")},
		{
			name:  "Redis slow",
			redis: true,
			begin: func(f *faulty) { f.link.Delay(200 * time.Millisecond) },
			want:  silent("not within 150ms)"),
		},
		{
			name: "too few partitions", args: []string{"--partitions", "2"}, begin: (*faulty).waitForUneven,
			want: finds("fail balance: 2 partitions on 3 nodes"),
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
	// The leases are longer than in other tests, because a false loss on a busy machine would stay in the history.
	f.args = append([]string{"--heartbeat", "1s", "--ttl", "6s"}, n.args...)
	if n.redis { // only where needed, because a Redis that is slow on a busy machine would be a second problem
		f.redis = redistest.Start(t)
		f.link = redistest.Proxy(t, f.redis.Addr())
		f.args = append(f.args, "--redis", f.link.URL(f.redis))
	}
	f.a, f.b, f.c = trio(t, f.args...)
	f.at = agenttest.Observe(t, f.c.Client, f.c.Log)
	f.at.All = n.all
	atA := agenttest.Observe(t, f.a.Client, f.a.Log)
	if n.ready != nil {
		n.ready(f)
	}
	began, left := time.Now(), machineFor([]*proc{f.a, f.c})
	n.begin(f)
	if n.within == 0 {
		n.within = 10 * time.Second
	}
	took := f.at.Await(began, 4*n.within, n.want)
	t.Logf("named after %v", took)
	if most := stretched(n.within, left()); took > most {
		t.Errorf("named after %v, want %v at most: %v, and the machine was ours by %.0f %%", took, most, n.within, 100*left())
	}
	if len(n.want.Log) == 3 { // each of the two survivors must show the problem
		atA.Await(time.Now(), 4*n.within, n.want)
	}
}

// killRedis kills Redis. It also closes the link, so that nothing listens at its address.
func (f *faulty) killRedis() {
	f.redis.Kill()
	f.link.Cut()
}

// pinRooms pins rooms, some of them to b.
func (f *faulty) pinRooms() {
	f.t.Helper()
	for i := range 30 {
		pinRoom(f.t, f.c, fmt.Sprint("room-", i), 1)
	}
}

// advertiseNothing restarts b with an advertised address at which nothing listens.
func (f *faulty) advertiseNothing() {
	f.t.Helper()
	f.b.Stop(timeout)
	b := launch(f.t, "b",
		append(f.args, "--join", f.c.Gossip, "--http", f.b.Base, "--advertise", fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(f.t)))...)
	f.b.Process = b.Process
}

// waitForUneven waits for the log line about an uneven spread. The agent logs it once, before or after other lines.
func (f *faulty) waitForUneven() {
	f.t.Helper()
	f.c.Logs(`"partitions are spread unevenly"`, "raise Partitions from 2")
	_, out, _ := roost(f.t, "doctor", "--addr", f.c.Base, "--over", "1ms")
	if !strings.Contains(out, "stop all agents, then start them with the new --partitions") {
		f.t.Errorf("no fix in\n%s", out)
	}
	f.at = agenttest.Observe(f.t, f.c.Client, f.c.Log)
}

// startAhead starts node d, with a wall clock that is ahead.
func (f *faulty) startAhead() {
	f.t.Helper()
	d, err := cluster.Start(gossip.WithEnv(f.t.Context(), gossip.Env{ClockOffset: 7 * time.Second}), cluster.Config{
		ID: "d", Bind: "127.0.0.1:0", Join: []string{f.a.Gossip}, HeartbeatInterval: time.Second, LeaseTTL: 6 * time.Second,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = d.Close() })
}
