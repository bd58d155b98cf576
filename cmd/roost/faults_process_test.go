//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
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

// TestFaultsAreNamed makes one fault of node b, or of what the nodes share. Doctor, the history,
// the members and the log of c name the cause and the node, and doctor names nothing else.
func TestFaultsAreNamed(t *testing.T) { // S8.1, S8.2
	t.Parallel()
	for name, f := range map[string]struct {
		fault   func(t *testing.T, b *proc, redis *redistest.Server)
		doctor  []string // how its complaints begin
		history string   // the last event that is not of the table; "" = no new one
		members string   // a line, in words
		log     []string
	}{
		"killed": {
			func(_ *testing.T, b *proc, _ *redistest.Server) { b.Signal(syscall.SIGKILL) },
			[]string{"warn members: lost: b crashed "},
			"lost b crashed", "b crashed",
			[]string{`"member left"`, `"member":"b","reason":"crashed"`},
		},
		"paused": {
			func(_ *testing.T, b *proc, _ *redistest.Server) { b.Signal(syscall.SIGSTOP) },
			[]string{"warn members: lost: b expired "},
			"lost b expired", "b expired",
			[]string{`"member left"`, `"member":"b","reason":"expired"`},
		},
		"drained": {
			func(t *testing.T, b *proc, _ *redistest.Server) { succeeds(t, "drain", "--addr", b.Base) },
			nil, "draining b", "b draining",
			[]string{`"ownership changed"`},
		},
		"Redis down": {
			func(_ *testing.T, _ *proc, redis *redistest.Server) { redis.Kill() },
			[]string{"fail redis: Redis has not answered lately"},
			"", "b active", nil,
		},
		"Redis hangs": {
			func(_ *testing.T, _ *proc, redis *redistest.Server) { redis.Pause() },
			[]string{"fail redis: Redis has not answered lately"},
			"", "b active", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			// Longer leases than in other tests: a false loss on a busy machine would stay in the history.
			_, b, c := trio(t, "--heartbeat", "1s", "--ttl", "6s", "--redis", redis.URL())
			before := eventsOf(t, c)
			f.fault(t, b, redis)
			eventually(t, func() error {
				found := complaints(t, c)
				if !slices.EqualFunc(found, f.doctor, strings.HasPrefix) {
					return fmt.Errorf("doctor complains of %q, want %q", found, f.doctor)
				}
				events := slices.DeleteFunc(eventsOf(t, c)[len(before):], func(e string) bool { return strings.HasPrefix(e, "moved") })
				if f.history == "" && len(events) > 0 || f.history != "" && (len(events) != 1 || !strings.HasPrefix(events[0], f.history)) {
					return fmt.Errorf("the history has %q, want %q", events, f.history)
				}
				words := strings.Join(strings.Fields(succeeds(t, "members", "--addr", c.Base)), " ")
				if !strings.Contains(words, f.members) {
					return fmt.Errorf("members prints %q", words)
				}
				return nil
			})
			c.Logs(f.log...)
		})
	}
}
