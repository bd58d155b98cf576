package node

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A seed whose founder has no place among the eight recognizes what this node sends all the same.
func TestFullIdentity(t *testing.T) {
	ours, theirs := lease.ClusterID{1, 2, 3, 4, 5, 6, 7, 8}, lease.ClusterID{9}
	id, err := meets(ours, theirs, true, false)
	if err != nil || !id.Same(theirs) || !id.Same(ours) || len(id) > lease.MaxFounders || !slices.IsSorted(id) {
		t.Errorf("%v, %v", id, err)
	}
	if back := id.Union(ours); !slices.Equal(back, ours) {
		t.Errorf("with the others it becomes %v", back)
	}
}

// Two lists of seeds of different lengths are both tried to their ends.
func TestSeedsInTurn(t *testing.T) {
	w := newNetwork(t, nil, "a")
	n := w.nodes["a"]
	short, long := numbered(20), numbered(200)
	tried := make(map[string]bool)
	for range 25 {
		n.join.inTurn("short", short, 8)
		for _, addr := range n.join.inTurn("long", long, 8) {
			tried[addr] = true
		}
	}
	if len(tried) != len(long) {
		t.Errorf("%d of %d seeds had their turn", len(tried), len(long))
	}
}

// What may not be a member at the address of a lost member is left alone for a minute or so, also by a node
// that joins again.
func TestOutsidersAreLeftAlone(t *testing.T) {
	for reason, pause := range map[Reason]time.Duration{
		OtherCluster: 48 * time.Second,
		HungUp:       48 * time.Second,
		Refused:      48 * time.Second,
		NoAnswer:     0,
	} {
		j := newJoining(t, func(c *Config) { c.Seeds, c.StartupGrace = []string{"seed"}, time.Minute })
		j.n.join.lost.add(j.now, []string{"lost"})
		tries := 0
		for range 4000 { // 40 s
			for _, x := range j.n.Ready(j.now).Exchanges {
				if x.Addr == "lost" {
					tries++
					j.n.Exchanged(j.now, x, reason, errors.New("test"))
				} else {
					j.n.Exchanged(j.now, x, NoAnswer, errors.New("connection refused"))
				}
			}
			j.now = j.now.Add(10 * time.Millisecond)
		}
		if once := pause > 0; tries == 0 || (tries == 1) != once {
			t.Errorf("reason %d: %d tries in 40 s", reason, tries)
		}
	}
}

// A cluster with another time, which answers questions at the address of a lost member, does not fence a node
// that is awake: members answer the node, too.
func TestAnswersOfAnotherCluster(t *testing.T) {
	w, others := newNetwork(t, nil, "a", "b"), newNetwork(t, nil, "s")
	w.run(time.Minute)
	others.run(2 * time.Minute) // a minute ahead, by its time
	answers := 0
	w.sent = func(id string, p Packet) {
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
