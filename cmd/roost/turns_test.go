package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
)

// TestTurns: two supervised processes with one id stop each other again and again. Each says at its end where
// both are, and doctor at any other node does, too.
func TestTurns(t *testing.T) {
	t.Parallel()
	seed := agent(t, "seed", brisk()...)
	start := func(bind string) *proc {
		return agent(t, "x", append(brisk(), "--join", seed.Gossip, "--bind", bind)...)
	}
	one := start("127.0.0.1:0")
	two := start("127.0.0.1:0")
	named := func() bool {
		_, out, _ := roostIn(t, map[string]string{"ROOST_ADDR": seed.Base}, "doctor", "--over", "1ms", "--output", "json")
		var d doctor.Diagnosis
		if err := json.Unmarshal([]byte(out), &d); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return slices.ContainsFunc(d.Checks, func(c doctor.Check) bool {
			return strings.HasPrefix(c.Finding, "two processes with one id: x at ") &&
				strings.Contains(c.Finding, one.Gossip) && strings.Contains(c.Finding, two.Gossip)
		})
	}
	for turn := 0; !named(); turn++ {
		if turn == 20 { // three are enough, if the seed sees each of them
			t.Fatal("doctor does not name the two processes")
		}
		one.Exits(exitFailed, "agent failed", `two processes use the node id "x": this process at `+one.Gossip,
			"and a process at "+two.Gossip, "give each its own id (--id)")
		one, two = two, start(one.Gossip) // as its supervisor does
	}
	two.Logs("owns nothing", "flapping", "a process with its id was at "+one.Gossip)
}
