package node_test

import (
	"errors"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// Another cluster, with another cluster time, answers a node's questions at the address of a lost member. This must not
// fence the node, because the members of its own cluster answer as well.
func TestAnswersOfAnotherCluster(t *testing.T) {
	w, others := newNetwork(t, nil, "a", "b"), newNetwork(t, nil, "s")
	w.run(time.Minute)
	others.run(2 * time.Minute) // their cluster time is a minute ahead
	answers := 0
	w.sent = func(id string, p node.Packet) {
		if id != "a" {
			return
		}
		s := others.nodes["s"]
		s.Receive(others.at("s"), p.Bytes)
		for _, answer := range s.Ready(others.at("s")).Packets {
			if answer.To == "a" {
				answers++
				w.nodes["a"].Receive(w.at("a"), answer.Bytes)
			}
		}
		others.now = others.now.Add(10 * time.Millisecond)
	}
	w.run(30 * time.Second)
	if n := w.nodes["a"].View().Stats.Fences; n > 0 || answers == 0 {
		t.Errorf("fenced %d times by %d answers", n, answers)
	}
}

// If an outsider answers at the address of a lost member, a node does not try this address again for about a minute,
// even if the node itself rejoins in between.
func TestOutsidersAreLeftAlone(t *testing.T) {
	for reason, pause := range map[node.Reason]time.Duration{
		node.OtherCluster: 48 * time.Second,
		node.HungUp:       48 * time.Second,
		node.Refused:      48 * time.Second,
		node.NoAnswer:     0,
	} {
		w := newNetwork(t, func(c *node.Config) { c.StartupGrace = time.Minute }, "lost", "a")
		w.agreed(t)
		a, tries := w.nodes["a"], 0
		a.SetSeeds(w.now, []string{"seed"}, nil)
		w.stuck["lost"], w.stuck["a"] = true, true
		w.run(7 * time.Second)
		for range 4000 { // 40 s
			for _, x := range a.Ready(w.now).Exchanges {
				if x.Addr == "lost" {
					tries++
					a.Exchanged(w.now, x, reason, errors.New("test"))
				} else {
					a.Exchanged(w.now, x, node.NoAnswer, errors.New("connection refused"))
				}
			}
			w.now = w.now.Add(10 * time.Millisecond)
		}
		if once := pause > 0; tries == 0 || (tries == 1) != once {
			t.Errorf("reason %d: %d tries in 40 s", reason, tries)
		}
	}
}
