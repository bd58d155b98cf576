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

// inState waits until /readyz of an agent reports a state. The state "" means ready.
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

// TestCordonCommand: an agent cordons another agent on all members. The cordon lasts until it is canceled, even if the
// cordoned agent is killed and restarted with the same id.
func TestCordonCommand(t *testing.T) {
	t.Parallel()
	args := []string{"--heartbeat", "400ms", "--ttl", "4s"}
	a, b, c := trio(t, args...)
	out := succeeds(t, "cordon", "b", "--for", "1h", "--reason", "slow disk", "--addr", a.Base)
	if out != "b is cordoned for 1h0m0s, and every member has agreed\n" {
		t.Errorf("cordon prints %q", out)
	}
	inState(t, b, "cordoned")
	for _, p := range []*proc{a, b, c} {
		out := succeeds(t, "members", "--addr", p.Base)
		if !strings.Contains(out, "cordoned") || !strings.Contains(out, "b is cordoned for another ") || !strings.HasSuffix(out, "slow disk\n") {
			t.Errorf("members of %s:\n%s", p.ID, out)
		}
		p.Logs("member cordoned; it owns nothing", "slow disk")
	}
	agree(t, a, b, c)
	b.Signal(syscall.SIGKILL)
	b = agent(t, "b", append(args, "--join", c.Gossip)...)
	inState(t, b, "cordoned")
	agree(t, a, b, c)
	code, _, problem := roost(t, "cordon", "z", "--for", "1m", "--addr", b.Base)
	if code != exitFailed || problem != "roost: no member has this id; /v1/members lists the members\n" {
		t.Errorf("cordon z: %d %q", code, problem)
	}
	if out := succeeds(t, "uncordon", "b", "--addr", b.Base); out != "b is not cordoned, and every member has agreed\n" {
		t.Errorf("uncordon prints %q", out)
	}
	inState(t, b, "")
	agree(t, a, b, c)
}

// TestHealthCommand: an application next to an agent reports its health, and then stops reporting.
func TestHealthCommand(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t, calm()...)
	if out := succeeds(t, "health", "--ttl", "300ms", "--addr", b.Base); out != "b expects the next report within 300ms\n" {
		t.Errorf("health prints %q", out)
	}
	inState(t, b, "unhealthy")
	b.Logs("owns nothing", "unhealthy", "no report for 300ms")
	code, out, _ := roost(t, "doctor", "--over", "1ms", "--addr", b.Base)
	if code != exitBroken || !strings.Contains(out, "b is unhealthy: no report for 300ms") {
		t.Errorf("doctor: %d\n%s", code, out)
	}
	agree(t, a, b, c)
	for range 2 {
		succeeds(t, "health", "--ttl", "1h", "--addr", b.Base)
	}
	inState(t, b, "")
	b.Logs("hold ended", "unhealthy")
	if out := succeeds(t, "health", "--ttl", "0", "--addr", b.Base); out != "b expects no more reports\n" {
		t.Errorf("health prints %q", out)
	}
	agree(t, a, b, c)
}
