package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// TestFaultsAreNamed makes a fault of the network of n3. Within 10 s, twice that on a busy machine, doctor --all at n2 names the cause
// and the node; its history has one event and moves.
func TestFaultsAreNamed(t *testing.T) { // S8.1, S8.3
	for i, f := range []struct {
		name    string
		begin   func(l *lab)
		doctor  []string
		history string
	}{
		{
			"cut off", func(l *lab) {
				l.drop(append(append(l.tcp("daddr", 3), l.tcp("saddr", 3)...), l.udp("daddr", 3), l.udp("saddr", 3))...)
			},
			[]string{"fail views: sides that do not see each other: n1, n2 | n3", "warn members: lost: n3 expired "},
			"lost n3 expired",
		},
		{
			"deaf by UDP", func(l *lab) { l.drop(l.udp("daddr", 3)) },
			[]string{"n3 fail ready: it is joining: members answer over TCP, but UDP does not get through both ways", "warn members: settling, and owning nothing: n3"},
			"fenced n3",
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 101+i, 3, func(l *lab) []string { return []string{l.gossip(1), l.gossip(2), l.gossip(3)} })
			before := len(l.events(2))
			began := time.Now()
			f.begin(l)
			for {
				err := l.named(f.doctor, f.history, before)
				if err == nil {
					break
				}
				if time.Since(began) > 20*time.Second {
					t.Fatal(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("named after %v", time.Since(began).Round(10*time.Millisecond))
		})
	}
}

// named compares what n2 says with what it should.
func (l *lab) named(want []string, history string, before int) error {
	text := strings.Join(l.doctor(2), "\n")
	for _, w := range want {
		if !strings.Contains(text, w) {
			return fmt.Errorf("no %q in\n%s", w, text)
		}
	}
	if events := l.events(2)[before:]; len(events) != 1 || !strings.HasPrefix(events[0], history) {
		return fmt.Errorf("the history has %q", events)
	}
	return nil
}

// doctor returns what doctor --all at an agent finds that is not ok, with the agent if it is another one.
func (l *lab) doctor(i int) (found []string) {
	l.t.Helper()
	type check struct{ Name, Status, Finding string }
	var d struct {
		Checks []check
		Agents []struct {
			ID     string
			Checks []check
		}
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	// #nosec G204 -- the test's own binary
	out, _ := exec.CommandContext(ctx, agenttest.Binary(l.t), "doctor", "--all", "--over", "1ms", "--addr", l.nodes[i].Base, "--output", "json").Output()
	if err := json.Unmarshal(out, &d); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	for _, c := range d.Checks {
		if c.Status != "ok" {
			found = append(found, fmt.Sprintf("%s %s: %s", c.Status, c.Name, c.Finding))
		}
	}
	for _, a := range d.Agents {
		for _, c := range a.Checks {
			found = append(found, fmt.Sprintf("%s %s %s: %s", a.ID, c.Status, c.Name, c.Finding))
		}
	}
	return found
}

// events returns the history of an agent without moves.
func (l *lab) events(i int) (lines []string) {
	l.t.Helper()
	h, err := l.nodes[i].History(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range h.Events {
		if e.Kind != cluster.EventMoved {
			lines = append(lines, fmt.Sprint(e.Kind, " ", e.Member, " ", e.Reason))
		}
	}
	return lines
}
