//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster"
)

// eventsOf returns the events that an agent saw, one per line, without the numbers of partitions.
func eventsOf(t *testing.T, p *proc) (lines []string) {
	t.Helper()
	h, err := p.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Events {
		line := fmt.Sprint(e.Kind, " ", e.Member, " ", e.Reason)
		if e.Kind == cluster.EventMoved {
			line = fmt.Sprint("moved ", e.Moved > 0, " gained ", e.Gained > 0, " lost ", e.Lost > 0)
		}
		if e.Kind == cluster.EventLost && e.Partitions > 0 {
			line += " with partitions"
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// TestHistoryCommand: one agent is killed, one drains, and one leaves. Another agent lists each event with its reason,
// in order, and nothing else.
func TestHistoryCommand(t *testing.T) {
	t.Parallel()
	a, b, c := trio(t, append(calm(), slow()...)...)
	d := agent(t, "d", append(append(calm(), slow()...), "--join", a.Gossip)...)
	agree(t, a, b, c, d)
	before := eventsOf(t, a)
	if len(before) == 0 || before[0] != "started a" || !slices.Contains(before, "ready a") || !slices.Contains(before, "joined d") {
		t.Errorf("at first a saw %q", before)
	}
	want := slices.Clone(before)
	expect := func(lines ...string) {
		t.Helper()
		want = append(want, lines...)
		eventually(t, func() error {
			if got := eventsOf(t, a); !slices.Equal(got, want) {
				return fmt.Errorf("a saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			return nil
		})
	}
	d.Signal(syscall.SIGKILL)
	expect("lost d crashed with partitions", "moved true gained true lost false")
	succeeds(t, "drain", "--addr", b.Base)
	expect("draining b", "moved true gained true lost false")
	succeeds(t, "undrain", "--addr", b.Base)
	expect("undrained b", "moved true gained false lost true")
	succeeds(t, "leave", "--addr", c.Base)
	expect("draining c", "moved true gained true lost false", "lost c left")
	out := succeeds(t, "history", "--addr", a.Base)
	if strings.Count(out, "\n") != 1+len(want) || !strings.Contains(out, " d     crashed, owned ") {
		t.Errorf("history prints\n%s", out)
	}
}
