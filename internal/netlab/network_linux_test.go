package netlab

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fault is what a test does to a lab of five.
type fault struct {
	name   string
	faulty int // host, or 0
	apply  func(l *lab)
	lasts  time.Duration
	seeds  []int
	short  bool // part of make test
}

func faults() []fault {
	all := []int{1, 2, 3, 4, 5}
	one := func(name string, short bool, apply func(l *lab)) fault {
		return fault{name: name, faulty: 5, apply: apply, lasts: 40 * time.Second, short: short}
	}
	split := func(name string, lasts time.Duration, seeds ...int) fault {
		return fault{name: name, apply: func(l *lab) { l.split(all[:2], all[2:]) }, lasts: lasts, seeds: seeds}
	}
	list := []fault{
		one("UDP cut out of n5", true, func(l *lab) { l.drop(l.udp("saddr", 5)) }),
		one("UDP cut into n5", true, func(l *lab) { l.drop(l.udp("daddr", 5)) }),
		one("UDP cut both ways", true, func(l *lab) { l.drop(l.udp("saddr", 5), l.udp("daddr", 5)) }),
		one("n5 is mute: UDP and TCP", false, func(l *lab) { l.drop(append(l.tcp("saddr", 5), l.udp("saddr", 5))...) }),
		one("n5 is deaf: UDP and TCP", false, func(l *lab) { l.drop(append(l.tcp("daddr", 5), l.udp("daddr", 5))...) }),
		one("n5 is cut off", false, func(l *lab) {
			l.drop(append(append(l.tcp("daddr", 5), l.tcp("saddr", 5)...), l.udp("daddr", 5), l.udp("saddr", 5))...)
		}),
		split("split 2\\|3, 10 s", 10*time.Second),
		split("split 2\\|3, 70 s", 70*time.Second),
		split("split 2\\|3, 5 min", 5*time.Minute),
		split("split 2\\|3, 70 s, no seed", 70*time.Second, 6),
		split("split 2\\|3, 5 min, no seed", 5*time.Minute, 6),
	}
	for _, percent := range []int{20, 40, 60} {
		list = append(list, fault{name: fmt.Sprintf("%d %% loss", percent), apply: func(l *lab) {
			l.drop(fmt.Sprintf("udp dport 7946 numgen random mod 100 < %d", percent))
		}, lasts: time.Minute})
	}
	return list
}

// TestFaults puts five agents through one fault of the network each.
func TestFaults(t *testing.T) { // S5.6, S5.8
	for k, f := range faults() {
		if !f.short && !*long {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 1+k, 5, f.seeds...)
			if !*long {
				f.lasts = 3 * ttl()
			}
			o := l.observe(f.faulty)
			f.apply(l)
			time.Sleep(f.lasts)
			o.faultEnds()
			l.heal()
			out := o.end(2 * time.Minute)
			t.Logf("| %s | %v | %s, %d |", f.name, out, out.state, out.ownedBy)
			if f.short && *exe == "" {
				judgeOneWay(t, l, out)
			}
		})
	}
}

// judgeOneWay fails the test unless the node at fault left and came back once, owned no
// more than before, and says why.
func judgeOneWay(t *testing.T, l *lab, out outcome) {
	t.Helper()
	if out.changes > 2 {
		t.Errorf("others changed their tables %d times", out.changes)
	}
	if out.ownedBy > partitions/2 || out.twice > time.Second {
		t.Errorf("n5 owned up to %d partitions; a partition had two owners for %v", out.ownedBy, out.twice)
	}
	if out.state != "joining" || !strings.Contains(out.said, l.addr(5)+":7946") {
		t.Errorf("n5 is %s and says %q", out.state, out.said)
	}
}
