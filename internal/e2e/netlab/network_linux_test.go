package netlab

import (
	"fmt"
	"testing"
	"time"
)

// These are the faults of networks.

// udpCuts drop packets to or from n5, but not its streams.
func udpCuts() []fault {
	cut := func(name, says string, begin func(l *lab)) fault {
		return fault{name: name, faulty: 5, begin: begin, lasts: 40 * time.Second, short: true, holds: oneWay(says)}
	}
	return []fault{
		cut("UDP cut out of n5", "packets of others arrive here", func(l *lab) { l.drop(l.udp("saddr", 5)) }),
		cut("UDP cut into n5", "others not reach this node", func(l *lab) { l.drop(l.udp("daddr", 5)) }),
		cut("UDP cut both ways", "others not reach this node", func(l *lab) { l.drop(l.udp("saddr", 5), l.udp("daddr", 5)) }),
	}
}

// cuts drop packets and streams to or from n5.
func cuts() []fault {
	cut := func(name string, begin func(l *lab)) fault {
		return fault{name: name, faulty: 5, begin: begin, lasts: 40 * time.Second, holds: atMost(2)}
	}
	return []fault{
		cut("n5 is mute: UDP and TCP", func(l *lab) { l.drop(append(l.tcp("saddr", 5), l.udp("saddr", 5))...) }),
		cut("n5 is deaf: UDP and TCP", func(l *lab) { l.drop(append(l.tcp("daddr", 5), l.udp("daddr", 5))...) }),
		cut("n5 is cut off", func(l *lab) {
			l.drop(append(append(l.tcp("daddr", 5), l.tcp("saddr", 5)...), l.udp("daddr", 5), l.udp("saddr", 5))...)
		}),
	}
}

// splits separate two nodes from three. Either the two include the seed of all nodes, or the seed has left before.
func splits() []fault {
	split := func(name string, lasts time.Duration, noSeed bool) fault {
		return fault{
			name: name, lasts: lasts, noSeed: noSeed, short: noSeed && lasts == 70*time.Second,
			begin: func(l *lab) { l.split([]int{1, 2}, []int{3, 4, 5}) },
			holds: atMost(6), // three nodes are lost, and then return
		}
	}
	return []fault{
		split("split 2/3, 5 min", 5*time.Minute, false),
		split("split 2/3, 5 min, no seed", 5*time.Minute, true),
		split("split 2/3, 70 s", 70*time.Second, false),
		split("split 2/3, 70 s, no seed", 70*time.Second, true),
		split("split 2/3, 10 s", 10*time.Second, false),
		split("split 2/3, 10 s, no seed", 10*time.Second, true),
	}
}

// firewalls separate two nodes from three, with --split majority. They reset streams, and drop or reject packets. To
// each side, it looks as if all processes of the other side had ended. Only the side of three may own anything.
func firewalls() (list []fault) {
	for _, packets := range []string{"drop", "reject"} {
		list = append(list, fault{
			name: "TCP is reset between 2/3, UDP: " + packets, lasts: 40 * time.Second, short: packets == "drop", majority: true,
			begin: func(l *lab) { l.fence([]int{1, 2}, []int{3, 4, 5}, packets) },
			end:   func(l *lab) { l.accept(1, 2, 3, 4, 5) },
			holds: func(t *testing.T, _ *lab, out outcome) {
				t.Helper()
				if most := ttl() + 2*time.Second; out.twice > most {
					t.Errorf("the average partition had two owners for %v, want %v at most", out.twice, most)
				}
			},
		})
	}
	return list
}

// losses drop packets at random.
func losses() (list []fault) {
	for _, percent := range []int{20, 40, 60} {
		list = append(list, fault{
			name: fmt.Sprintf("%d %% loss of UDP", percent), lasts: time.Minute, holds: still,
			begin: func(l *lab) { l.drop(fmt.Sprintf("udp dport 7946 numgen random mod 100 < %d", percent)) },
		})
	}
	return list
}

// resets end the streams of n5, but do not drop its packets.
func resets() []fault {
	return []fault{
		{
			name: "all TCP of n5 reset", faulty: 5, lasts: 10 * time.Second, short: true, holds: still,
			begin: func(l *lab) {
				l.refuse(5)
				time.Sleep(2 * time.Second) // a silent stream is reset by its next keep-alive
				l.accept(5)
			},
		},
		{
			name: "all TCP of n5 refused", faulty: 5, lasts: 40 * time.Second, short: true, holds: still,
			begin: func(l *lab) { l.refuse(5) }, end: func(l *lab) { l.accept(5) },
		},
	}
}

// vanish takes the link of n5 down.
func vanish() fault {
	return fault{
		name: "the link of n5 goes down", faulty: 5, lasts: 15 * time.Second, holds: confirmedWithin(ttl()/2 + 3*time.Second),
		begin: func(l *lab) {
			l.nodes[5].hidden.Store(gone)
			l.must("ip link set %s down", l.ns(5))
		},
		end: func(l *lab) {
			l.must("ip link set %s up", l.ns(5))
			l.nodes[5].hidden.Store(shown)
		},
	}
}

// hungDNS restarts n5 while the DNS server does not answer. Only one of the three seeds is an IP address.
func hungDNS() fault {
	return fault{
		name: "hung DNS, n5 restarts", faulty: 5, lasts: 30 * time.Second, hungDNS: true, holds: atMost(2),
		begin: func(l *lab) {
			l.kill(5)
			l.start(5)
		},
	}
}
