package netlab

import (
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// TestFaultsAreNamed causes a fault in the network of n3. Within 20 s, doctor --all, the page, the members, the history
// and the log of n2 name the cause and the node, and nothing else. The log of n3 does the same. doctor --all waits 5 s
// for the HTTP API of a lost host.
func TestFaultsAreNamed(t *testing.T) {
	const alone = "warn members: heard only over TCP: n3 at 10.99.102.3:7946"
	lost := "expired"
	if *long { // with a TTL of 6 s, members confirm first that the host has gone, because a cut looks the same
		lost = "crashed"
	}
	for i, f := range []struct {
		name  string
		begin func(l *lab)
		want  agenttest.Views
		says  string // according to the log of n3
	}{
		{
			"cut off", func(l *lab) {
				l.drop(append(append(l.tcp("daddr", 3), l.tcp("saddr", 3)...), l.udp("daddr", 3), l.udp("saddr", 3))...)
			},
			agenttest.Views{
				Doctor: []string{
					"fail views: sides that do not see each other: n1, n2 | n3",
					"warn members: lost, and running: n3 " + lost + " ", "n1 warn members: lost: n3 " + lost + " ",
					"n3 fail seeds: alone, although it should join ", "n3 warn members: lost: n1",
				},
				Page: []string{"warn members: lost: n3 " + lost + " "}, Members: []string{"n1 active", "n2 active", "n3 " + lost + " "},
				History: []string{"lost n3 " + lost}, Log: []string{"member lost n3 " + lost, "ownership changed"},
			},
			`"msg":"member lost","node":"n3","member":"n1"`,
		},
		{
			"deaf by UDP", func(l *lab) { l.drop(l.udp("daddr", 3)) },
			agenttest.Views{
				Doctor: []string{
					alone, "n1 " + alone,
					"n3 fail ready: n3 is joining: members answer over TCP, but UDP does not get through both ways",
				},
				Page: []string{alone}, Members: []string{"n1 active", "n2 active", "n3 settling", "n3 is reachable only over TCP: "},
				History: []string{"fenced n3"}, Log: []string{"ownership changed"},
			},
			`"msg":"fenced: not heard over UDP; rejoining"`,
		},
		{
			"host gone", func(l *lab) { l.must("ip link set %s down", l.ns(3)) },
			agenttest.Views{
				Doctor: []string{"warn members: lost, and out of reach: n3 " + lost + " ", "n1 warn members: lost: n3 " + lost + " "},
				Page:   []string{"warn members: lost: n3 " + lost + " "}, Members: []string{"n1 active", "n2 active", "n3 " + lost + " "},
				History: []string{"lost n3 " + lost}, Log: []string{"member lost n3 " + lost, "ownership changed"},
			},
			`"msg":"member lost","node":"n3","member":"n1"`,
		},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 101+i, 3, func(l *lab) []string { return []string{l.gossip(1), l.gossip(2), l.gossip(3)} })
			o := agenttest.Observe(t, &l.nodes[2].Client, l.nodes[2].process.Log)
			o.All = true
			began := time.Now()
			f.begin(l)
			t.Logf("named after %v", o.Await(began, 20*time.Second, f.want))
			if said := l.nodes[3].process.Log.String(); !strings.Contains(said, f.says) {
				t.Errorf("the log of n3 has no %q in\n%s", f.says, said)
			}
		})
	}
}
