package netlab

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is something that a test does to a lab of five hosts.
type fault struct {
	name   string
	faulty int // the host whose own table does not count; or 0
	begin  func(l *lab)
	lasts  time.Duration
	end    func(l *lab) // in addition to ending all faults on the bridge
	holds  func(*testing.T, *lab, outcome)

	noSeed   bool // the only seed has left before
	hungDNS  bool // two of three seeds are host names
	flapping bool // the faulty node keeps leaving and returning
	short    bool // part of make test

	majority bool // only one side of a split owns anything
}

// TestFaults runs five agents through one fault each time, and prints a row of a table. The row has the number of table
// changes at other nodes, how long the average partition had no owner, how long it had two owners, how many partitions
// had two owners at the same time, the time from the beginning of the fault until all partitions had owners again, the
// time from the end of the fault until all agents agreed, and the state of the faulty node.
func TestFaults(t *testing.T) {
	all := slices.Concat(splits(), firewalls(), losses(), udpCuts(), cuts(), resets(), []fault{vanish(), hungDNS()},
		deaths(), restarts(), pauses(), settings())
	for k, f := range all {
		if !f.short && !*long {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			l := f.lab(t, 1+k)
			if !*long {
				f.lasts = 3 * ttl()
			}
			o := l.observe(f.faulty)
			o.begins()
			f.begin(l)
			time.Sleep(f.lasts)
			o.ends()
			l.heal()
			if f.end != nil {
				f.end(l)
			}
			timeout := 2 * time.Minute
			if f.flapping {
				timeout += 30 * ttl()
			}
			out := o.outcome(timeout)
			out.log(t, f.name)
			if *exe == "" {
				if out.never != nil {
					t.Error(out.never)
				}
				f.holds(t, l, out)
			}
		})
	}
}

// lab returns five hosts whose agents agree.
func (f fault) lab(t *testing.T, number int) *lab {
	t.Helper()
	switch {
	case f.noSeed:
		l := newLab(t, number, 6, func(l *lab) []string { return []string{l.gossip(6)} })
		l.nodes[6].process.Stop(time.Minute)
		delete(l.nodes, 6)
		if _, err := l.agree(time.Minute); err != nil {
			t.Fatal(err)
		}
		return l
	case f.hungDNS:
		return newLab(t, number, 5, func(l *lab) []string { return []string{"a.hung.test:7946", "b.hung.test:7946", l.gossip(1)} })
	}
	seeds := func(l *lab) []string { return []string{l.gossip(1), l.gossip(2), l.gossip(3)} }
	if f.majority {
		l := newLab(t, number, 5, seeds, "--split", "majority")
		time.Sleep(2 * ttl()) // members have no vote in the first moments
		return l
	}
	return newLab(t, number, 5, seeds)
}

// atMost fails the test if a table changed more often than this.
func atMost(changes int) func(*testing.T, *lab, outcome) {
	return func(t *testing.T, _ *lab, out outcome) {
		t.Helper()
		if out.changes > changes {
			t.Errorf("others changed their tables %d times, want %d at most", out.changes, changes)
		}
	}
}

// still fails the test if anything moved, or the end of any process was confirmed.
func still(t *testing.T, l *lab, out outcome) {
	t.Helper()
	atMost(0)(t, l, out)
	for i, n := range out.confirmations {
		if n > 0 {
			t.Errorf("n%d counts %d confirmations of the end of a process", i, n)
		}
	}
}

// confirmedWithin fails the test unless the other nodes confirmed the failure of n5, and took over within the limit.
func confirmedWithin(limit time.Duration) func(*testing.T, *lab, outcome) {
	return func(t *testing.T, l *lab, out outcome) {
		t.Helper()
		atMost(2)(t, l, out)
		for i, n := range out.confirmations {
			if n != 1 {
				t.Errorf("n%d counts %d confirmations of the end of n5", i, n)
			}
		}
		if out.unowned > limit {
			t.Errorf("partitions of n5 had no owner for %v", out.unowned)
		}
	}
}

// oneWay fails the test unless the faulty node left and returned once, never owned more than half of the partitions,
// and says why.
func oneWay(says string) func(*testing.T, *lab, outcome) {
	return func(t *testing.T, l *lab, out outcome) {
		t.Helper()
		atMost(2)(t, l, out)
		if out.ownedBy > partitions/2 || out.twice > time.Second {
			t.Errorf("n5 owned up to %d partitions; a partition had two owners for %v", out.ownedBy, out.twice)
		}
		if out.state != "joining" || !strings.Contains(out.said, says) {
			t.Errorf("n5 is %s and says %q, want %q", out.state, out.said, says)
		}
	}
}
