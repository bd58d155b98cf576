//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/placement"
)

// TestPlanIsWhatHappens: roost plan before a change and roost diff after it agree, on real
// agents.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"rendezvous+zones", "bounded-rendezvous-110", "least-partitions-1-50"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			args := append(calm(), "--strategy", strategy, "--partitions", "128")
			a := agent(t, "a", args...)
			agree(t, a)
			args = append(args, "--join", a.Gossip)

			joins := planned(t, a, "--add", "b")
			b := agent(t, "b", args...)
			joins.happens()

			joins = planned(t, a, "--add", "c=200")
			agent(t, "c", append(args, "--weight", "200")...)
			joins.happens()

			shrinks := planned(t, a, "--weight", "b=50")
			if out := succeeds(t, "weight", "50", "--addr", b.Base); out != "b has weight 50\n" {
				t.Errorf("weight prints %q", out)
			}
			shrinks.happens()

			leaves := planned(t, a, "--remove", "b")
			succeeds(t, "leave", "--addr", b.Base)
			leaves.happens()
			b.Exits(0)
		})
	}
}

// forecast contains a plan, and the table before the change.
type forecast struct {
	t            *testing.T
	at           *proc
	before, plan string
}

func planned(t *testing.T, at *proc, args ...string) forecast {
	t.Helper()
	f := forecast{t: t, at: at, before: filepath.Join(t.TempDir(), "before.json")}
	f.save(f.before)
	args = append([]string{"plan", "--output", "json"}, args...)
	f.plan = succeeds(t, append(args, "--addr", at.Base)...)
	if f.plan != succeeds(t, append(args, "--from", f.before)...) {
		t.Error("the plan from the file is another one")
	}
	return f
}

func (f forecast) save(path string) {
	f.t.Helper()
	table := succeeds(f.t, "partitions", "--addr", f.at.Base, "--output", "json")
	if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// happens waits until the table differs from the former table exactly as planned.
func (f forecast) happens() {
	f.t.Helper()
	after := filepath.Join(f.t.TempDir(), "after.json")
	eventually(f.t, func() error {
		f.save(after)
		got := succeeds(f.t, "diff", f.before, after, "--output", "json")
		if f.certain(got) != f.certain(f.plan) {
			return fmt.Errorf("what happened is\n%.2000s\nplanned was\n%.2000s", got, f.plan)
		}
		return nil
	})
}

// certain returns the part of a plan that is certain. With least-partitions, other partitions may move.
func (f forecast) certain(changes string) string {
	f.t.Helper()
	var c placement.Changes
	if err := json.Unmarshal([]byte(changes), &c); err != nil {
		f.t.Fatal(err)
	}
	if !strings.Contains(f.t.Name(), "least-partitions") {
		return changes
	}
	return fmt.Sprint(len(c.Moves), c.ExpectedMin, c.Before, c.After)
}
