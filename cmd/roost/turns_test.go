package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
)

// TestTurns: if two processes use one id, the second stops the first, and doctor at another node says where both are.
// If a supervisor restarts them, they stop each other again and again. Each of them logs where both are when it ends.
func TestTurns(t *testing.T) {
	t.Parallel()
	seed := agent(t, "seed", brisk()...)
	start := func(bind string) *proc {
		return agent(t, "x", append(brisk(), "--join", seed.Gossip, "--bind", bind)...)
	}
	one := start("127.0.0.1:0")
	agree(t, seed, one) // the seed has seen the first process
	two := start("127.0.0.1:0")
	eventually(t, func() error {
		_, out, problem := roostIn(t, map[string]string{"ROOST_ADDR": seed.Base}, "doctor", "--over", "1ms", "--output", "json")
		var d doctor.Diagnosis
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatalf("%v\n%s", err, out+problem)
		}
		want := "two processes with one id: x at " + one.Gossip + " and at " + two.Gossip
		if !slices.ContainsFunc(d.Checks, func(c doctor.Check) bool { return c.Finding == want }) {
			return fmt.Errorf("no %q in %s", want, out)
		}
		return nil
	})
	for range 3 { // the restarts make the node flap
		one.Exits(exitFailed, "agent failed", `two processes use the node id "x": this process at `+one.Gossip,
			"and a process at "+two.Gossip, "give each its own id (--id)")
		one, two = two, start(one.Gossip) // as a supervisor would restart it
	}
	two.Logs("owns nothing", "flapping", "a process with its id was at "+one.Gossip)
}
