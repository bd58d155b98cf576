package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// Each node watches the four nodes that follow it in the order of handles, so it is watched by the four nodes before
// it.
func TestWatch(t *testing.T) {
	for _, c := range []struct{ nodes, watched int }{{1, 0}, {2, 1}, {3, 2}, {5, 4}, {6, 4}, {12, 4}} {
		t.Run(fmt.Sprint(c.nodes), func(t *testing.T) {
			var ids []string
			for i := range c.nodes {
				ids = append(ids, fmt.Sprintf("n%02d", i))
			}
			w := newNetwork(t, nil, ids...)
			var order []lease.Handle
			for _, id := range ids {
				order = append(order, w.nodes[id].Handle())
			}
			slices.Sort(order)
			for _, id := range ids {
				own := slices.Index(order, w.nodes[id].Handle())
				var want []lease.Handle
				for k := range c.watched {
					want = append(want, order[(own+1+k)%len(order)])
				}
				var got []lease.Handle
				for _, n := range w.last[id].Watch {
					got = append(got, n.Node)
					if n.Addr != w.nodes[id].Leases().AddrOf(n.Node) || n.Addr == "" {
						t.Errorf("%s watches %v at %q", id, n.Node, n.Addr)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s watches %v, want %v", id, got, want)
				}
			}
		})
	}
}

// The shell is told only about changes, and a node that has left watches nothing.
func TestWatchChanges(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	clear(w.last)
	w.run(10 * time.Second)
	if got := w.last["a"].Watch; got != nil {
		t.Errorf("the shell is told again to watch %v", got)
	}
	w.nodes["a"].Leave(w.now)
	w.run(time.Second)
	if got := w.last["a"].Watch; got == nil || len(got) != 0 {
		t.Errorf("a node that has left watches %v", got)
	}
	if got := w.last["b"].Watch; len(got) != 1 || got[0].Addr != "c" {
		t.Errorf("after a left, b watches %v", got)
	}
}

// A suspect is reported only if it does not answer. Its lease ends when two watchers have reported it. A single report
// is enough if there are fewer than three members.
func TestSuspects(t *testing.T) {
	for _, c := range []struct {
		name     string
		nodes    []string
		watchers []string
		evidence lease.Evidence
		answers  bool
		ends     bool
	}{
		{"two watchers", []string{"a", "b", "c", "d"}, []string{"b", "c"}, lease.Refused, false, true},
		{"two watchers of a silent node", []string{"a", "b", "c", "d"}, []string{"b", "c"}, lease.Silent, false, true},
		{"it answers", []string{"a", "b", "c", "d"}, []string{"b", "c", "d"}, lease.Refused, true, false},
		{"one watcher", []string{"a", "b", "c", "d"}, []string{"b"}, lease.Refused, false, false},
		{"one watcher, twice", []string{"a", "b", "c", "d"}, []string{"b", "b"}, lease.Refused, false, false},
		{"two of three", []string{"a", "b", "c"}, []string{"b", "c"}, lease.Refused, false, true},
		{"one of two", []string{"a", "b"}, []string{"b"}, lease.Refused, false, true},
		{"one of two, silent", []string{"a", "b"}, []string{"b"}, lease.Silent, false, false},
		{"itself", []string{"a", "b", "c", "d"}, []string{"a", "b"}, lease.Refused, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newNetwork(t, nil, c.nodes...)
			a := w.nodes["a"].Handle()
			w.stuck["a"] = !c.answers
			w.run(2 * time.Second)
			w.sent = func(from string, p node.Packet) {
				if c.answers && reports(t, p) {
					t.Errorf("%s reports a node that answers", from)
				}
			}
			for _, id := range c.watchers {
				w.nodes[id].StreamEnded(w.now, a, c.evidence)
			}
			w.run(500 * time.Millisecond)
			for _, id := range c.nodes[1:] {
				if ended := w.nodes[id].Leases().AddrOf(a) == ""; ended != c.ends {
					t.Errorf("ended for %s: %v", id, ended)
				}
			}
		})
	}
}

// A running node whose failure was reported is a member again as soon as other nodes hear from it.
func TestRefutation(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c", "d")
	a := w.nodes["a"]
	w.mute["a"] = true
	for _, id := range []string{"b", "c"} {
		w.nodes[id].StreamEnded(w.now, a.Handle(), lease.Refused)
	}
	w.run(400 * time.Millisecond)
	if w.nodes["d"].Leases().AddrOf(a.Handle()) != "" {
		t.Fatal("two watchers did not end it")
	}
	w.mute["a"] = false
	w.run(900 * time.Millisecond)
	if a.Leases().Stats().Reincarnations > 0 {
		t.Error("it took a new incarnation")
	}
	w.agreed(t)
}

// A watcher that was paused itself reads the waiting answers before it reports a suspect.
func TestPausedWatcher(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	b, found := w.nodes["b"], w.now
	b.StreamEnded(w.now, w.nodes["a"].Handle(), lease.Refused)
	b.Ready(w.now)
	w.stuck["b"] = true
	for _, pause := range []time.Duration{300 * time.Millisecond, time.Second} {
		w.run(pause)
		if slices.ContainsFunc(b.Ready(w.now).Packets, func(p node.Packet) bool { return reports(t, p) }) {
			t.Fatalf("%v after the suspicion began, it reports without a look at the answers", w.now.Sub(found))
		}
	}
	w.stuck["b"] = false
	w.sent = func(from string, p node.Packet) {
		if reports(t, p) {
			t.Errorf("%s reports a node that has answered", from)
		}
	}
	w.run(10 * time.Second)
}

// A paused watcher does not report a suspect before it has had time to read the waiting answers, no matter how often it
// asks the suspect meanwhile.
func TestAnswersWaitForPausedWatcher(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	w.sent = func(from string, p node.Packet) {
		if reports(t, p) {
			t.Errorf("%s reports a node that has answered", from)
		}
	}
	w.drop["a"] = true // the answers wait
	w.nodes["b"].StreamEnded(w.now, w.nodes["a"].Handle(), lease.Refused)
	w.run(190 * time.Millisecond)
	w.stuck["b"] = true
	w.run(time.Second)
	w.stuck["b"] = false
	w.run(400 * time.Millisecond)
	w.drop["a"] = false
	w.run(10 * time.Second)
}

// A failure is reported immediately, not with the next round of gossip.
func TestReportIsUrgent(t *testing.T) {
	const interval = time.Second
	for phase := time.Duration(0); phase < 2*interval; phase += interval / 10 {
		w := newNetwork(t, func(c *node.Config) { c.GossipInterval = interval }, "a", "b", "c", "d")
		w.run(phase)
		w.stuck["a"] = true
		began, reported := w.now, time.Duration(0)
		w.sent = func(from string, p node.Packet) {
			if reported == 0 && reports(t, p) {
				reported = w.now.Sub(began)
			}
		}
		w.nodes["b"].StreamEnded(w.now, w.nodes["a"].Handle(), lease.Refused)
		w.run(2 * interval)
		if asks := interval; reported < asks || reported > asks+interval/5 {
			t.Errorf("phase %v: reported after %v, want soon after %v", phase, reported, asks)
		}
	}
}

// reports reports whether a packet has a failure report.
func reports(t *testing.T, p node.Packet) bool {
	t.Helper()
	m, err := lease.Decode(p.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return len(m.FailureReports) > 0
}
