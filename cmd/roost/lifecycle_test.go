//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// trio starts three agents with the given settings and waits until they agree.
func trio(t *testing.T, args ...string) (a, b, c *proc) {
	t.Helper()
	a = agent(t, "a", args...)
	args = append(args, "--join", a.Gossip)
	b, c = launch(t, "b", args...), launch(t, "c", args...)
	b.Runs()
	c.Runs()
	agree(t, a, b, c)
	return a, b, c
}

// brisk contains timings for tests in which a lease expires.
func brisk() []string { return []string{"--heartbeat", "400ms", "--ttl", "2s"} }

// calm contains timings for tests in which no lease expires.
func calm() []string { return []string{"--heartbeat", "1s", "--ttl", "10m"} }

// TestStop: a process is paused for longer than its lease, so the other nodes take over. When it continues, its first
// answer must say that it owns nothing.
func TestStop(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t, brisk()...)
	if o, err := c.Owned(t.Context()); err != nil || len(o.Partitions) == 0 {
		t.Fatalf("c owns %v (%v) before it is stopped", o, err)
	}
	const stop = 6 * time.Second // several leases long
	c.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	answered := make(chan error, 1)
	go func() { // the kernel accepts the request, and c reads it when it continues
		o, err := c.Owned(ctx)
		if len(o.Partitions) > 0 {
			err = fmt.Errorf("it owns %d partitions", len(o.Partitions))
		}
		answered <- err
	}()
	agree(t, a, b)
	select {
	case err := <-answered:
		t.Fatalf("a paused process answers: %v", err)
	case <-time.After(time.Until(stopped.Add(stop))):
	}
	c.Signal(syscall.SIGCONT)
	if err := <-answered; err != nil {
		t.Errorf("its first answer: %v", err)
	}
	agree(t, a, b, c)
	c.Logs("fenced")
}

// TestShutdownDelay: a load balancer that uses /readyz has time to stop using an agent that shuts down. Until then, the
// agent answers, owns nothing, and closes each connection after its answer.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	args := []string{"--heartbeat", "200ms", "--ttl", "10m"}
	a := agent(t, "a", args...)
	b := agent(t, "b", append(args, "--join", a.Gossip, "--shutdown-delay", "1h")...)
	agree(t, a, b)
	b.Signal(syscall.SIGTERM)
	inState(t, b, "draining")
	for _, p := range []*proc{a, b} {
		eventually(t, func() error { return ownsNothing(t, p, "b") })
	}
	resp, err := http.Get("http://" + b.Base + "/v1/place?key=x")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("a lookup while the agent waits: %s, the last of its connection: %v", resp.Status, resp.Close)
	}
	age, renewed := int64(0), 0
	eventually(t, func() error { // without the delay, b would have left before its next heartbeat
		m, err := a.Members(t.Context())
		if err != nil {
			return err
		}
		if len(m.Members) != 2 {
			t.Fatal("b left before its time")
		}
		if m.Members[1].AgeMS < age {
			renewed++
		}
		age = m.Members[1].AgeMS
		if renewed < 3 {
			return fmt.Errorf("b has renewed its lease %d times since it drained", renewed)
		}
		return nil
	})
	b.Signal(syscall.SIGTERM)
	b.Exits(exitInterrupted)
}

// TestRoomsWhileEnding: without a delay, an agent that shuts down still answers calls about rooms for five gossip
// intervals. In this time, load balancers that use /readyz stop using it.
func TestRoomsWhileEnding(t *testing.T) {
	t.Parallel()
	_, b := pair(t, redistest.Start(t), calm()...)
	signalled := time.Now() // measured before the signal, because a slow machine must not shorten the time
	b.Signal(syscall.SIGTERM)
	for i := 0; ; i++ {
		_, err := b.ResolveRoom(t.Context(), fmt.Sprintf("room-%d", i), affinity.Demand{Size: 2})
		if err == nil {
			continue
		}
		if took := time.Since(signalled); took < time.Second {
			t.Errorf("%v after SIGTERM: %v", took, err)
		}
		break
	}
	b.Exits(exitOK)
}

// TestTermBounded: if a node does not confirm a leave message, the agent stops waiting after 15 s, or immediately after
// a second signal.
func TestTermBounded(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t, calm()...)
	a.Signal(syscall.SIGSTOP) // it confirms nothing
	b.Signal(syscall.SIGTERM)
	c.Signal(syscall.SIGTERM)
	c.Logs("draining")
	c.Signal(syscall.SIGTERM)
	c.Exits(exitInterrupted)
	if strings.Contains(c.Text(), "leave incomplete") {
		t.Error("c did not stop at once")
	}
	b.Exits(0, "leave incomplete")
}

// TestTermWhileJoining: an agent that cannot join also ends on SIGTERM.
func TestTermWhileJoining(t *testing.T) {
	t.Parallel()
	// This seed accepts connections and says nothing.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	p := launch(t, "a", "--network", "wan", "--join", mute.Addr().String(), "--log-level", "debug")
	conn, err := mute.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Signal(syscall.SIGTERM)
	p.Exits(0, "stopped while joining")
}

// TestStdinCloses: an agent ends when its parent process ends, unless --exit-on-stdin-close is off.
func TestStdinCloses(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", brisk()...)
	b := agent(t, "b", append(brisk(), "--join", a.Gossip)...)
	c := agent(t, "c", append(brisk(), "--join", a.Gossip, "--exit-on-stdin-close=false")...)
	agree(t, a, b, c)
	_ = c.Stdin.Close()
	_ = b.Stdin.Close()
	b.Exits(0)
	agree(t, a, c)
	if strings.Contains(b.Text(), "leaving") {
		t.Error("b left the cluster")
	}
}

// ownsNothing returns an error if a node owns partitions in the table of an agent.
func ownsNothing(t *testing.T, at *proc, id lease.NodeID) error {
	t.Helper()
	table, err := at.Partitions(t.Context())
	if err == nil && table.Counts[id] > 0 {
		err = fmt.Errorf("%s owns %d partitions, says %s", id, table.Counts[id], at.ID)
	}
	return err
}
