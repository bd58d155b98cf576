//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// inState waits until /readyz of an agent has a state; "" is ready.
func inState(t *testing.T, p *proc, want string) {
	t.Helper()
	eventually(t, func() error {
		err, state := p.Ready(t.Context()), ""
		if problem, ok := errors.AsType[*clusterhttp.Problem](err); ok {
			state = problem.State
		}
		if state != want {
			return fmt.Errorf("%s is %q, want %q (%w)", p.ID, state, want, err)
		}
		owned, err := p.Owned(t.Context())
		if owns := len(owned.Partitions) > 0; err == nil && owns != (want == "") {
			err = fmt.Errorf("%s is %q, and owns %d partitions", p.ID, state, len(owned.Partitions))
		}
		return err
	})
}

// TestEvictCommand: one agent takes another out for all, also after kill -9 and a restart
// under the same id, until the eviction is cancelled.
func TestEvictCommand(t *testing.T) { // S5.11
	t.Parallel()
	args := []string{"--heartbeat", "400ms", "--ttl", "4s"}
	a, b, c := trio(t, args...)
	if out := succeeds(t, "evict", "b", "--for", "1h", "--reason", "slow disk", "--addr", a.Base); out != "b is evicted for 1h0m0s, and every member has agreed\n" {
		t.Errorf("evict prints %q", out)
	}
	inState(t, b, "evicted")
	for _, p := range []*proc{a, b, c} {
		out := succeeds(t, "members", "--addr", p.Base)
		if !strings.Contains(out, "evicted") || !strings.Contains(out, "b is evicted for another ") || !strings.HasSuffix(out, "slow disk\n") {
			t.Errorf("members of %s:\n%s", p.ID, out)
		}
		p.Logs("member evicted; it owns nothing", "slow disk")
	}
	agree(t, a, b, c)
	b.Signal(syscall.SIGKILL)
	b = agent(t, "b", append(args, "--join", c.Gossip)...)
	inState(t, b, "evicted")
	agree(t, a, b, c)
	if code, _, fault := roost(t, "evict", "z", "--for", "1m", "--addr", b.Base); code != exitFailed || fault != "roost: no member has this id: see /v1/members\n" {
		t.Errorf("evict z: %d %q", code, fault)
	}
	if out := succeeds(t, "evict", "b", "--cancel", "--addr", b.Base); out != "b is not evicted, and every member has agreed\n" {
		t.Errorf("evict --cancel prints %q", out)
	}
	inState(t, b, "")
	agree(t, a, b, c)
}

// TestHealthCommand: a program next to an agent reports its health, and is silent then.
func TestHealthCommand(t *testing.T) { // S5.11
	t.Parallel()
	a, b, c := trio(t, calm()...)
	if out := succeeds(t, "health", "--ttl", "300ms", "--addr", b.Base); out != "b expects the next report within 300ms\n" {
		t.Errorf("health prints %q", out)
	}
	inState(t, b, "ill")
	b.Logs("program is ill; this node owns nothing", "no report for 300ms")
	if code, out, _ := roost(t, "doctor", "--over", "1ms", "--addr", b.Base); code != exitBroken || !strings.Contains(out, "its program is ill: no report for 300ms") {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	agree(t, a, b, c)
	for range 2 {
		succeeds(t, "health", "--ttl", "1h", "--addr", b.Base)
	}
	inState(t, b, "")
	b.Logs("program is well")
	if out := succeeds(t, "health", "--ttl", "0", "--addr", b.Base); out != "b expects no further report\n" {
		t.Errorf("health prints %q", out)
	}
	agree(t, a, b, c)
}
