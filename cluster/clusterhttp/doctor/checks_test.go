package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// healthyLook returns a look at a healthy cluster of three members.
func healthyLook() Look {
	members := make([]report.Member, 3)
	for i := range members {
		members[i] = report.Member{
			Profile: lease.Profile{
				ID:          lease.NodeID("node-" + string(rune('a'+i))),
				Addr:        fmt.Sprintf("10.0.0.%d:7946", i+1),
				Weight:      100,
				Capacity:    500,
				Incarnation: 7,
			}, State: lease.Active, AgeMS: int64(500 * (i + 1)), Load: int64(150 * i), ClockOffsetMS: int64(i), InSync: true,
		}
	}
	return Look{
		Stats: report.Stats{
			Self:   "node-a",
			State:  "active",
			Counts: cluster.Stats{CoreStats: cluster.CoreStats{Divergences: 4, DivergedTime: 800 * time.Millisecond}},
			Rooms:  &affinity.Stats{Breaker: "closed"},
			Settings: report.Settings{
				Cluster: "fleet", Partitions: 64, Strategy: "rendezvous", HeartbeatMS: 2000, TTLMS: 6000, MaxSkewMS: 5000,
				Addr: "10.0.0.1:7946", Join: []string{"10.0.0.1:7946", "10.0.0.2:7946", "seeds.test:7946"},
			},
		},
		Members: report.Members{Self: "node-a", Members: members, Version: 12, Digest: 0xabc, Converged: true},
		Table: report.Partitions{
			Export: placement.Export{Partitions: 64, Strategy: "rendezvous"}, Counts: map[lease.NodeID]int{"node-a": 22, "node-b": 21, "node-c": 21},
			Balance: report.Balance{MaxMean: 1.03, CV: 0.02},
		},
	}
}

// held adds a hold to a look.
func held(c cluster.Cause, reason string) func(l *Look) {
	return func(l *Look) {
		h := report.Hold{Cause: c, Reason: reason}
		if c == cluster.CauseCordoned || c == cluster.CauseFlapping {
			h.ForMS = 52_000
		}
		l.Stats.State, l.Stats.Holds = string(c), append(l.Stats.Holds, h)
	}
}

// reading sets how many states a reader of events lags behind.
func reading(l *Look, behind uint64) {
	l.Stats.Readers = []events.ReaderStats{{Name: "http", Open: 3}, {Name: "watch", Open: 1, Behind: behind}}
}

// TestChecks: the doctor finds and explains each problem, and does not complain about anything normal.
func TestChecks(t *testing.T) {
	both := func(f func(l *Look)) func(b, a *Look) { return func(b, a *Look) { f(b); f(a) } }
	after := func(f func(l *Look)) func(b, a *Look) { return func(_, a *Look) { f(a) } }
	member := func(i int, f func(m *report.Member)) func(l *Look) {
		return func(l *Look) { f(&l.Members.Members[i]) }
	}
	for name, c := range map[string]struct {
		change func(before, after *Look)
		want   string // each check that is not ok, as name: verdict: part of the finding
	}{
		"healthy": {func(_, _ *Look) {}, ""},
		"drain":   {both(held(cluster.CauseDraining, "by command")), "ready: warn: node-a is draining: by command"},
		"drain, and since when": {both(func(l *Look) {
			held(cluster.CauseDraining, "as planned")(l)
			l.Members.Members[0].State, l.Members.Members[0].DrainsMS = lease.Draining, 754_000
		}), "ready: warn: node-a is draining: as planned (for 12m34s)"},
		"settle": {after(func(l *Look) { l.Stats.State = "settling" }), "ready: warn: settling"},
		"few":    {after(held(cluster.CauseIsolated, "it sees 3")), "ready: fail: node-a is isolated: it sees 3"},
		"all few": {after(func(l *Look) {
			held(cluster.CauseIsolated, "it sees 3")(l)
			for i := range l.Members.Members {
				l.Members.Members[i].State = lease.Settling
			}
		}), "ready: fail: isolated"},
		"unhealthy": {after(held(cluster.CauseUnhealthy, "no disk")), "ready: fail: node-a is unhealthy: no disk"},
		"cordoned":  {after(held(cluster.CauseCordoned, "slow disk")), "ready: warn: node-a is cordoned for another 52s: slow disk"},
		"flapping":  {after(held(cluster.CauseFlapping, "3 returns")), "ready: warn: node-a is flapping for another 52s: 3 returns"},
		"another is unhealthy": {
			after(member(1, func(m *report.Member) { m.State, m.Unhealthy = lease.Draining, true })), "members: warn: unhealthy: node-b",
		},
		"for how long": {
			after(func(l *Look) { l.Members.Members[0].State, l.Members.Members[0].FlappingMS = lease.Draining, 52_000 }),
			"members: warn: flapping: node-a, for another 52s",
		},
		"a node that settles": {
			both(member(1, func(m *report.Member) { m.State = lease.Settling })),
			"members: warn: settling, and owning nothing: node-b",
		},
		"a node that streams alone reach": {both(func(l *Look) {
			l.Members.Members[1].State, l.Members.StreamsAlone = lease.Settling, map[lease.NodeID]string{
				"node-b": "10.0.0.9:7946",
				"node-z": "10.0.0.10:7946",
			}
		}), "members: warn: heard only over TCP: node-b at 10.0.0.9:7946, node-z at 10.0.0.10:7946"},
		"no loads": {
			both(member(1, func(m *report.Member) { m.Capacity, m.NoLoad = 500, true })),
			"members: warn: a capacity, but no load: node-b",
		},
		"a first load": {func(b, _ *Look) { b.Members.Members[1].Capacity, b.Members.Members[1].NoLoad = 500, true }, ""},
		"a cordon":     {after(func(l *Look) { l.Members.Cordons = []report.Cordon{{ID: "node-z"}} }), "members: warn: cordoned: node-z"},
		"a lost node": {after(func(l *Look) {
			l.Members.Lost = []report.Lost{
				{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Crashed, AgoMS: 14_000},
				{Profile: lease.Profile{ID: "node-y"}, Reason: lease.Departed},
			}
		}), "members: warn: lost: node-z crashed 14s ago"},
		"a lost majority":                    {after(lose(4, 7)), "members: fail: most members are lost: lost-0, lost-1, lost-2, lost-3 expired 14s ago"},
		"half is lost":                       {after(lose(3, 6)), "members: warn: lost: lost-0"},
		"lost and replaced each time":        {after(lose(9, 4)), "members: warn: lost: lost-0"},
		"a smaller cluster, and a lost node": {after(lose(1, 9)), "members: warn: lost: lost-0"},
		"a leave": {after(func(l *Look) {
			l.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-y"}, Reason: lease.Departed}}
		}), ""},
		"it flaps": {
			after(ended("node-z", 3, "crashed", time.Minute)),
			"members: warn: comes and goes: node-z, ended 3 times within 10m, the last 1m0s ago",
		},
		"replaced":   {after(ended("node-b", 5, "replaced", time.Minute)), "members: warn: comes and goes: node-b, ended 5 times"},
		"it flapped": {after(ended("node-b", 9, "crashed", 11*time.Minute)), ""},
		"twice":      {after(ended("node-b", 2, "crashed", time.Minute)), ""},
		"it left":    {after(ended("node-b", 5, "left", time.Minute)), ""},
		"a second process": {
			after(replacedAt("10.0.0.9:7946")), "members: warn: two processes with one id: node-b at 10.0.0.2:7946 and at 10.0.0.9:7946",
		},
		"a second process took the place of a seed": {after(func(l *Look) {
			replacedAt("10.0.0.9:7946")(l)
			l.Members.Members[1].Addr = "10.0.0.9:7946"
		}), "members: warn: two processes with one id: node-b at 10.0.0.2:7946 and at 10.0.0.9:7946"},
		"a second process, before": {after(func(l *Look) {
			replacedAt("10.0.0.9:7946")(l)
			l.History.Now = l.History.Now.Add(10 * time.Minute)
		}), ""},
		"two processes take turns": {after(func(l *Look) {
			replacedAt("10.0.0.9:7946", "10.0.0.2:7946", "10.0.0.9:7946")(l)
			l.Members.Members[1].State, l.Members.Members[1].FlappingMS = lease.Draining, 52_000 // which is not a separate problem
		}), "members: warn: two processes with one id: node-b at 10.0.0.2:7946 and at 10.0.0.9:7946"},
		"it has restarted at one place": {
			after(replacedAt("10.0.0.2:7946", "10.0.0.2:7946", "10.0.0.2:7946", "10.0.0.2:7946")),
			"members: warn: comes and goes: node-b, ended 4 times",
		},
		"flaps, and counts as flapping": {after(func(l *Look) {
			ended("node-a", 5, "crashed", time.Minute)(l)
			l.Members.Members[0].State, l.Members.Members[0].FlappingMS = lease.Draining, 52_000
		}), "members: warn: flapping: node-a (crashed 5 times within 10m), for another 52s"},
		"no effect": {after(func(l *Look) {
			l.Members.Cordons, l.Members.Spared = []report.Cordon{{ID: "node-z"}}, true
		}), "members: warn: without effect: node-z"},
		"one way": {after(func(l *Look) {
			l.Stats.State, l.Stats.Waits = "joining", "others cannot reach this node at its advertised address 10.0.0.1:7946"
		}), "ready: fail: advertised address 10.0.0.1:7946"},
		"address gone": {after(func(l *Look) {
			l.Stats.State, l.Stats.Unreachable = "joining", "this host no longer has 10.0.0.1"
			l.Stats.Waits = "members answer over TCP: " + l.Stats.Unreachable
		}), "ready: fail: no longer has 10.0.0.1"},
		"alone, address gone": {
			after(func(l *Look) { l.Stats.Unreachable = "this host no longer has 10.0.0.1" }),
			"address: fail: no longer has 10.0.0.1",
		},
		"one way, and it forgot the others": {both(func(l *Look) { // the seeds are not the problem
			l.Stats.State, l.Stats.Waits, l.Members.Digest, l.Table = "joining", "members answer over TCP", 0, report.Partitions{}
			l.Members.Members = l.Members.Members[:1]
			l.Members.Members[0].State = lease.Settling
		}), "ready: fail: members answer over TCP"},
		"fenced": {after(func(l *Look) { l.Stats.State = "joining" }), "ready: fail: joining"},

		"an old lease":  {after(member(2, func(m *report.Member) { m.AgeMS = 4001 })), "leases: warn: node-c 4s"},
		"at two thirds": {after(member(2, func(m *report.Member) { m.AgeMS = 4000 })), ""},
		"another's clock": {
			after(member(1, func(m *report.Member) { m.ClockOffsetMS = 5100 })), "clocks: fail: node-b 5.1s ahead",
		},
		"a clock by which a node is no member": {
			after(func(l *Look) { l.Members.Ahead = []report.Ahead{{ID: "node-z", ByMS: 7010}} }),
			"clocks: fail: more than 5s from the other clocks: node-z 7s ahead",
		},
		"a slow clock": {after(member(1, func(m *report.Member) { m.ClockOffsetMS = -9000 })), "clocks: warn: node-b 9s behind"},
		"nearly":       {after(member(1, func(m *report.Member) { m.ClockOffsetMS = 2600 })), "clocks: warn: node-b 2.6s ahead"},
		"its own clock": {after(func(l *Look) { // if all others agree, this node's clock is wrong
			l.Members.Members[1].ClockOffsetMS, l.Members.Members[2].ClockOffsetMS = -6000, -6000
		}), "clocks: fail: node-a 6s ahead"},

		"another key": {after(func(l *Look) {
			l.Stats.Rejected = []report.Rejection{
				{Reason: "wrong_key", Over: "tcp", From: "10.0.0.7", Count: 12, AgoMS: 3_000},
				{Reason: "wrong_key", Over: "udp", From: "10.0.0.7:7946", Count: 40, AgoMS: 4_000},
			}
		}), "gossip: warn: gossip that no key of this node decrypts, from 10.0.0.7 (tcp, 12 in all, latest 3s ago), 10.0.0.7:7946 (udp, 40 in all, latest 4s ago)"},
		"another cluster, and an address outside": {after(func(l *Look) {
			l.Stats.Rejected = []report.Rejection{
				{Reason: "wrong_cluster", Over: "tcp", From: "10.0.0.8", Cluster: "prod\xff" + strings.Repeat("x", 200), Count: 1},
				{Reason: "wrong_cluster", Over: "udp", From: "10.0.0.9:53", Count: 1},
				{Reason: "not_allowed", Over: "tcp", From: "10.0.0.9", Count: 1},
			}
		}), `gossip: warn: gossip of another cluster, from 10.0.0.8 ("prod?` + strings.Repeat("x", 59) +
			`", tcp, 1 in all, latest 0s ago), 10.0.0.9:53 (no name, udp, 1 in all, latest 0s ago) + gossip: warn: gossip from outside --gossip-allow, from 10.0.0.9 (tcp, 1 in all, latest 0s ago)`},
		"another key, long ago": {after(func(l *Look) {
			l.Stats.Counts.WrongKey = 12
			l.Stats.Rejected = []report.Rejection{{Reason: "wrong_key", Over: "tcp", From: "10.0.0.7", Count: 12, AgoMS: 601_000}}
		}), ""},

		"divergence that stays":     {both(member(1, func(m *report.Member) { m.InSync = false })), "tables: warn: node-b"},
		"members of before a fence": {after(func(l *Look) { l.Members.Stale, l.Members.Members[1].AgeMS = true, 60_000 }), ""},
		"nobody owned before a fence": {after(func(l *Look) {
			l.Members.Stale = true
			for i := range l.Members.Members {
				l.Members.Members[i].State = lease.Draining
			}
		}), ""},
		"divergence that came": {after(member(1, func(m *report.Member) { m.InSync = false })), ""},
		"one after another":    {func(b, a *Look) { b.Members.Members[1].InSync, a.Members.Members[2].InSync = false, false }, ""},
		"a newcomer":           {after(member(1, func(m *report.Member) { m.InSync, m.State = false, lease.Settling })), ""},
		"no table":             {after(func(l *Look) { l.Members.Digest, l.Table = 0, report.Partitions{} }), "tables: warn: no table"},

		"uneven": {after(func(l *Look) { l.Table.Balance.Advice = "raise Partitions." }), "balance: warn: 64 partitions on 3 nodes"},
		"uneven, and a node is lost": {after(func(l *Look) {
			l.Table.Balance.Advice, l.Members.Lost = "raise Partitions.", []report.Lost{
				{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Expired},
			}
		}), "members: warn: lost: node-z + balance: warn: 64 partitions"},
		"too few":  {after(func(l *Look) { l.Table.Partitions = 2 }), "balance: fail: 2 partitions on 3 nodes"},
		"weight 0": {after(member(1, func(m *report.Member) { m.Weight = 0 })), "members: warn: with weight 0: node-b"},
		"all settle": {after(func(l *Look) { // as when all members start together
			for i := range l.Members.Members {
				l.Members.Members[i].State = lease.Settling
			}
		}), "members: warn: no node owns anything yet; settling: node-a, node-b, node-c"},
		"one drains": {after(member(1, func(m *report.Member) { m.State = lease.Draining })), ""},
		"no owner": {
			after(func(l *Look) { weigh(l, 0, 0, 0) }),
			"members: fail: no node of 3 members + members: warn: with weight 0: node-a, node-b, node-c",
		},
		"one and drains": {
			after(func(l *Look) { weigh(l, 0, 100, 100); drainAll(l, 1, 2) }),
			"members: fail: no node of 3 members may own anything; draining: node-b, node-c + members: warn: with weight 0: node-a",
		},

		"lost seed": {
			after(func(l *Look) { l.Stats.Settings.Join = []string{"10.0.0.9:7946", "10.0.0.2:7946"} }),
			"seeds: warn: no live member at 10.0.0.9:7946",
		},
		"no seed":                {after(func(l *Look) { l.Stats.Settings.Join = nil }), "seeds: warn: none"},
		"no seed on one machine": {after(func(l *Look) { l.Stats.Settings.Join, l.Stats.Settings.Addr = nil, "127.0.0.1:7946" }), ""},
		"the seed is lost": {after(func(l *Look) { // the lost member must be named only once
			l.Stats.Settings.Join = []string{"10.0.0.9:7946", "10.0.0.2:7946"}
			l.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-z", Addr: "10.0.0.9:7946"}, Reason: lease.Crashed, AgoMS: 14_000}}
		}), "members: warn: lost: node-z crashed 14s ago"},
		"the seed has left": {after(func(l *Look) {
			l.Stats.Settings.Join = []string{"10.0.0.9:7946", "10.0.0.2:7946"}
			l.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-z", Addr: "10.0.0.9:7946"}, Reason: lease.Departed}}
		}), "seeds: warn: no live member at 10.0.0.9:7946"},
		"two nodes":   {both(func(l *Look) { l.Members.Members, l.Stats.Settings.Join = l.Members.Members[:2], nil }), ""},
		"itself only": {after(func(l *Look) { l.Stats.Settings.Join = []string{"10.0.0.1:7946"} }), "seeds: warn: none"},
		"alone": {
			after(func(l *Look) { l.Members.Members = l.Members.Members[:1] }),
			"seeds: fail: although it should join 10.0.0.2:7946, seeds.test:7946",
		},
		"alone by name": {after(func(l *Look) {
			l.Members.Members, l.Stats.Settings.Join = l.Members.Members[:1], []string{"seeds.test:7946"}
		}), "seeds: warn: alone, and its --join is seeds.test:7946"},
		"the first": {
			after(func(l *Look) { l.Members.Members = l.Members.Members[:1]; l.Stats.Settings.Join = nil }),
			"members: warn: this node is alone",
		},

		"a crash": {func(_, a *Look) { a.Stats.Counts.Crashed = 1 }, "losses: warn: expired: 1 more within 2s, 1 since start"},
		"a crash that is named": {func(_, a *Look) {
			a.Stats.Counts.Crashed, a.Members.Lost = 1, []report.Lost{{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Crashed, AgoMS: 1500}}
		}, "members: warn: lost: node-z crashed 2s ago"},
		"a crash after one that is named": {func(b, a *Look) {
			b.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Crashed, AgoMS: 60_000}}
			a.Stats.Counts.Crashed, a.Members.Lost = 1, b.Members.Lost
		}, "members: warn: lost: node-z crashed 1m0s ago + losses: warn: expired: 1 more"},
		"a crash just before that is named, and one that came back": {func(b, a *Look) {
			b.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-z", Incarnation: 3}, Reason: lease.Crashed, AgoMS: 100}}
			a.Stats.Counts.Crashed, a.Members.Lost = 1, []report.Lost{
				{Profile: lease.Profile{ID: "node-z", Incarnation: 3}, Reason: lease.Crashed, AgoMS: 2100},
			}
		}, "members: warn: lost: node-z crashed 2s ago + losses: warn: expired: 1 more"},
		"a second crash of one that was named": {func(b, a *Look) {
			b.Members.Lost = []report.Lost{{Profile: lease.Profile{ID: "node-z", Incarnation: 3}, Reason: lease.Crashed, AgoMS: 100}}
			a.Stats.Counts.Crashed, a.Members.Lost = 1, []report.Lost{
				{Profile: lease.Profile{ID: "node-z", Incarnation: 4}, Reason: lease.Crashed, AgoMS: 1100},
			}
		}, "members: warn: lost: node-z crashed 1s ago"},
		"a crash during a long look": {func(_, a *Look) {
			a.Stats.Counts.Crashed, a.Members.Lost = 1, []report.Lost{{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Crashed, AgoMS: 8000}}
		}, "members: warn: lost: node-z crashed 8s ago"},
		"heartbeats of a clock that is named": {func(_, a *Look) {
			a.Stats.Counts.SkewRejected, a.Members.Ahead = 7, []report.Ahead{{ID: "node-z", ByMS: 7010}}
		}, "clocks: fail: more than 5s from the other clocks: node-z 7s ahead"},
		"joins while redis is away": {func(_, a *Look) {
			a.Stats.Rooms.StoreDoubt, a.Stats.Rooms.Breaker, a.Stats.Rooms.StoreErrors, a.Stats.Rooms.Degraded = true, "open", 9, 9
		}, "redis: fail: Redis has not answered lately (no reason given)"},
		"half a key": {
			after(func(l *Look) { l.Stats.Counts.Sealed, l.Stats.Counts.SealedWith = 1<<31/3+1, "2f9a01cd" }),
			"key: warn: about 2.1 billion messages are encrypted with the gossip key 2f9a01cd: 715827883 by this node since its start, times 3 members",
		},
		"nearly half a key": {after(func(l *Look) { l.Stats.Counts.Sealed = 1 << 31 / 3 }), ""},
		"no reload": {after(func(l *Look) {
			l.Stats.Sources = &report.Sources{Problem: "roost.yaml:1: unknown key", ProblemMS: 61_000}
		}), "settings: warn: its settings could not be reloaded for 1m1s: roost.yaml:1: unknown key"},
		"unused": {
			after(func(l *Look) { l.Stats.Sources = &report.Sources{Restart: []string{"zone", "ttl"}} }),
			"settings: warn: not in effect until a restart: zone, ttl",
		},
		"unsaved": {
			after(func(l *Look) { l.Stats.Sources = &report.Sources{KeyFile: "/etc/roost/key"} }),
			"key: warn: its gossip keys differ from the keys in /etc/roost/key",
		},
		"reloaded": {after(func(l *Look) { l.Stats.Sources = &report.Sources{} }), ""},
		"hasty":    {after(func(l *Look) { l.Stats.Settings.TTLMS = 4900 }), "settings: warn: less than 2.5 heartbeats"},
		"redis far away": {after(func(l *Look) {
			l.Stats.Rooms.StoreRoundTrip, l.Stats.Rooms.StoreBudget = 60*time.Millisecond, 150*time.Millisecond
		}), "redis: warn: a heartbeat to Redis takes 60ms, and a join waits at most 150ms"},
		"redis is mute": {after(func(l *Look) {
			l.Stats.Rooms.StoreUnnotified = "NOPERM no channel"
		}), "redis: warn: Redis does not notify this node of changed rooms: NOPERM no channel"},
		"overloaded": {after(member(1, func(m *report.Member) { m.Load = 510 })), "load: warn: overloaded: node-b with 510 of 500 units"},
		"full": {after(func(l *Look) {
			for i := range l.Members.Members {
				l.Members.Members[i].Load = 500 + int64(i)
			}
		}), "load: warn: no node has headroom for new rooms; overloaded: node-b with 501 of 500 units, node-c with 502 of 500 units"},
		"refused": {after(func(l *Look) {
			l.History.Now = time.Now()
			l.Stats.Counts.NodesRefused, l.Stats.Counts.LatestRefused = 3, l.History.Now.Add(-20*time.Second)
			l.Stats.Counts.LatestRefusal = "cluster: setting partitions must be the same on all nodes, but it is 64 here and 128 on node-d#1"
		}), "settings: warn: refused a node 20s ago (3 since start): setting partitions must be the same on all nodes, but it is 64 here and 128 on node-d"},
		"refused long ago": {after(func(l *Look) {
			l.History.Now = time.Now()
			l.Stats.Counts.LatestRefused, l.Stats.Counts.LatestRefusal = l.History.Now.Add(-time.Hour), "x"
		}), ""},
		"redis away": {after(func(l *Look) { l.Stats.Rooms.StoreDoubt, l.Stats.Rooms.Breaker = true, "open" }), "redis: fail: Redis has not answered lately (no reason given)"},
		"redis is slow": {after(func(l *Look) {
			l.Stats.Rooms.StoreDoubt, l.Stats.Rooms.Breaker, l.Stats.Rooms.StoreProblem = true, "closed", "not within 150ms"
		}), "redis: fail: Redis has not answered lately (not within 150ms)"},
		"other settings": {after(func(l *Look) {
			l.Stats.Rooms.Refused = "affinity: settings differ: partitions is 64 here and 1024 on b"
		}), "redis: fail: partitions is 64 here and 1024 on b"},
		"no --join": {after(func(l *Look) {
			l.Stats.Rooms.CutOff = []lease.NodeID{"node-y", "node-z"}
		}), "redis: fail: 2 nodes with heartbeats in Redis, but out of reach of gossip: node-y, node-z"},
		"a member on another redis": {after(func(l *Look) {
			l.Stats.Rooms.Store, l.Stats.Rooms.Silent = "redis.test:6379/0", []lease.NodeID{"node-b"}
		}), "redis: fail: 1 live node of this cluster without heartbeats in Redis at redis.test:6379/0: node-b"},
		"a loop hangs":      {func(b, a *Look) { reading(b, 1); reading(a, 3) }, "events: warn: watch by 3 states"},
		"it catches up":     {func(b, a *Look) { reading(b, 3); reading(a, 1) }, ""},
		"it just fell back": {after(func(l *Look) { reading(l, 3) }), ""},
		"no rooms":          {both(func(l *Look) { l.Stats.Rooms = nil }), ""},
	} {
		e := Examination{Before: healthyLook(), After: healthyLook(), Over: 2 * time.Second, Addr: "agent:8401"}
		c.change(&e.Before, &e.After)
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, " + ")
		}
		expect(t, name, e, want)
	}
}

// lose adds n lost members to a look. It also adds to the look's history that the cluster once had as many members as
// most says.
func lose(n, most int) func(l *Look) {
	return func(l *Look) {
		for i := range n {
			l.Members.Lost = append(l.Members.Lost, report.Lost{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("lost-", i))}, Reason: lease.Expired, AgoMS: 14_000})
		}
		l.History.Samples = []report.Sample{{Members: most}, {Members: len(l.Members.Members)}}
	}
}

// ended adds to the history that a node ended and returned n times.
func ended(id lease.NodeID, n int, reason string, ago time.Duration) func(l *Look) {
	return func(l *Look) {
		l.History = report.History{Now: time.Unix(10_000, 0)}
		for range n {
			at := l.History.Now.Add(-ago)
			if reason == "replaced" {
				l.History.Events = append(l.History.Events, report.Event{At: at, Kind: cluster.EventReturned, Member: id, Reason: reason})
				continue
			}
			l.History.Events = append(l.History.Events, report.Event{At: at, Kind: cluster.EventLost, Member: id, Reason: reason},
				report.Event{At: at, Kind: cluster.EventReturned, Member: id})
		}
	}
}

// replacedAt adds to the history that node-b, which was at 10.0.0.2:7946, was replaced a second ago, once at each of
// these addresses.
func replacedAt(addrs ...string) func(l *Look) {
	return func(l *Look) {
		ended("node-b", len(addrs), "replaced", time.Second)(l)
		old := "10.0.0.2:7946"
		for i, addr := range addrs {
			l.History.Events[i].Addr = addr
			if addr != old {
				l.History.Events[i].OldAddr = old
			}
			old = addr
		}
	}
}

func weigh(l *Look, weights ...uint32) {
	for i, w := range weights {
		l.Members.Members[i].Weight = w
	}
}

func drainAll(l *Look, which ...int) {
	for _, i := range which {
		l.Members.Members[i].State = lease.Draining
	}
}

// An isolated agent looks up owners in its last table, so the doctor does not compare that table with other members'
// tables.
func TestTablesWhileIsolated(t *testing.T) {
	l := healthyLook()
	held(cluster.CauseIsolated, "it sees 3")(&l)
	for _, inSync := range []bool{true, false} {
		l.Members.Members[1].InSync = inSync
		if c := (Examination{Before: l, After: l}).tables(); c.Status != OK || !strings.Contains(c.Finding, "not checked while it is isolated") {
			t.Errorf("in sync %v: %+v", inSync, c)
		}
	}
}

// A seed whose id another process has taken is not missing, but the finding names it.
func TestTakenSeed(t *testing.T) {
	l := healthyLook()
	replacedAt("10.0.0.9:7946")(&l)
	l.Members.Members[1].Addr = "10.0.0.9:7946"
	c := (Examination{Before: l, After: l}).seeds()
	if c.Status != OK || !strings.Contains(c.Finding, "another process took the node's id: 10.0.0.2:7946") {
		t.Errorf("%+v", c)
	}
}

// If a node is alone and owns everything, the doctor suggests --min-members, unless it is set.
func TestAloneWithoutMinMembers(t *testing.T) {
	for min, want := range map[int]bool{1: true, 2: false} {
		for _, seeds := range [][]string{{"10.0.0.2:7946"}, {"seeds.test:7946"}} {
			l := healthyLook()
			l.Members.Members, l.Stats.Settings.Join, l.Stats.Settings.MinMembers = l.Members.Members[:1], seeds, min
			if c := (Examination{Before: l, After: l}).seeds(); strings.Contains(c.Do, "--min-members 2") != want {
				t.Errorf("--min-members %d, --join %s: %+v", min, seeds, c)
			}
		}
	}
}

// expect compares the checks that are not ok with want, by name, verdict and a part of the finding.
func expect(t *testing.T, name string, e Examination, want []string) {
	t.Helper()
	checks := e.Diagnose().Checks
	ok := make(map[string]bool)
	for _, c := range checks {
		if c.Status == OK {
			ok[c.Name] = true
			continue
		}
		if c.Means == "" || c.Do == "" {
			t.Errorf("%s: %s does not say what it means or what to do: %+v", name, c.Name, c)
		}
		got := fmt.Sprintf("%s: %s: %s", c.Name, c.Status, c.Finding)
		if len(want) == 0 {
			t.Errorf("%s: complains %q", name, got)
			continue
		}
		name, rest, _ := strings.Cut(want[0], ": ")
		verdict, part, _ := strings.Cut(rest, ": ")
		head := name + ": " + verdict + ": "
		if !strings.HasPrefix(got, head) || !strings.Contains(got, part) {
			t.Errorf("%s: got %q, want %q", name, got, want[0])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("%s: no complaint of %q", name, want)
	}
	for _, c := range checks {
		if c.Status != OK && ok[c.Name] {
			t.Errorf("%s: %s is ok and not ok", name, c.Name)
		}
	}
	for _, must := range []string{
		"agent", "ready", "leases", "clocks", "tables", "balance", "members", "seeds", "messages", "settings",
		"losses", "fences", "log", "redis",
	} {
		if !slices.ContainsFunc(checks, func(c Check) bool { return c.Name == must }) {
			t.Errorf("%s: nothing is said of %s", name, must)
		}
	}
}

// The advice for Redis depends on the error of the Redis client. The check always names the address, and says not to
// restart agents.
func TestRedisAdvice(t *testing.T) {
	for problem, do := range map[string]string{
		`redis: heartbeat of "a|1": connect to [redis.test:6379]: WRONGPASS invalid username-password pair or user is disabled.`:      "password",
		`redis: heartbeat of "a|1": NOAUTH HELLO must be called with the client already authenticated`:                                "password",
		`redis: heartbeat of "a|1": NOPERM User u has no permissions to run the 'evalsha' command`:                                    "access list",
		`redis: heartbeat of "a|1": READONLY You can't write against a read only replica.`:                                            "replica",
		`redis: heartbeat of "a|1": MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.`:                 "replica",
		`redis: heartbeat of "a|1": OOM command not allowed when used memory > 'maxmemory'.`:                                          "more memory",
		`redis: heartbeat of "a|1": LOADING Redis is loading the dataset in memory`:                                                   "wait",
		`redis: heartbeat of "a|1": MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.`: "disk",
		`redis: heartbeat of "a|1": NOREPLICAS Not enough good replicas to write.`:                                                    "replicas",
		"ERR max number of clients reached": "maxclients",
		"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?": "which has none",
		"tls: failed to verify certificate: x509: certificate is valid for b.test, not redis.test":                                     "certificate",
		"EOF": "proxy",
		"EOF; found at redis.test:6379: a port with TLS: use rediss:// in place of redis://": "what the finding says",
		"read tcp 10.0.0.1:1->10.0.0.2:6379: read: connection reset by peer":                 "proxy",
		"connection refused":                                        "runs, and listens",
		"no route to host":                                          "firewalls",
		"network is unreachable":                                    "firewalls",
		"dial tcp 10.0.0.1:6379: i/o timeout":                       "firewalls",
		"dial tcp: lookup redis.test on 10.0.0.53:53: no such host": "DNS",
		"dial tcp: lookup redis.test on 10.0.0.53:53: read udp 10.0.0.1:1->10.0.0.53:53: i/o timeout": "DNS",
		"not within 150ms": "what makes Redis slow",
		"":                 "whether Redis runs",
	} {
		l := healthyLook()
		l.Stats.Rooms.StoreDoubt, l.Stats.Rooms.Store, l.Stats.Rooms.StoreProblem = true, "redis.test:6379/0", problem
		checks := Examination{Before: healthyLook(), After: l, Over: time.Second}.Diagnose().Checks
		c := checks[slices.IndexFunc(checks, func(c Check) bool { return c.Name == "redis" })]
		if !strings.Contains(c.Do, do) || !strings.Contains(c.Do, "Do not restart agents") ||
			!strings.Contains(c.Finding, ") at redis.test:6379/0") || !strings.Contains(c.Finding, strings.TrimPrefix(problem, "redis: heartbeat of \"a|1\": ")) {
			t.Errorf("%q: %+v; want the advice %q", problem, c, do)
		}
	}
}

// If no other node sends heartbeats to the store, this node probably uses a different store than the others. If only
// one other node sends none, the advice is about that node.
func TestSilentAdvice(t *testing.T) {
	l := healthyLook()
	for _, m := range l.Members.Members {
		if m.ID != l.Members.Self {
			l.Stats.Rooms.Silent = append(l.Stats.Rooms.Silent, m.ID)
		}
	}
	if do := (Examination{After: l}).silentAdvice(); !strings.Contains(do, "this node may be") {
		t.Errorf("all are silent: %q", do)
	}
	l.Stats.Rooms.Silent = l.Stats.Rooms.Silent[1:]
	if do := (Examination{After: l}).silentAdvice(); strings.Contains(do, "this node may be") || !strings.Contains(do, "restart those nodes") {
		t.Errorf("one is silent: %q", do)
	}
}

// TestCounters: each counter alone causes a warning if it grew between the two looks.
func TestCounters(t *testing.T) {
	set := func(s *report.Stats, name string, n uint64) {
		for _, part := range []any{&s.Counts, s.Rooms} { // set the counter by its name in JSON
			if err := json.Unmarshal(fmt.Appendf(nil, "{%q:%d}", name, n), part); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range counters {
		e := Examination{Before: healthyLook(), After: healthyLook(), Over: 2 * time.Second}
		set(&e.Before.Stats, c.name, 5)
		set(&e.After.Stats, c.name, 5)
		expect(t, c.name+" of old", e, nil)
		set(&e.After.Stats, c.name, 7)
		expect(t, c.name, e, []string{c.check + ": warn: " + c.name + ": 2 more within 2s, 7 since start"})
		set(&e.After.Stats, c.name, 3) // it restarted between the looks
		expect(t, c.name+" anew", e, nil)
	}
}

// TestVerdict: each verdict can be encoded as text and decoded, and decoding an unknown verdict fails.
func TestVerdict(t *testing.T) {
	for _, want := range []Verdict{OK, Warn, Fail} {
		var got Verdict
		if text, err := want.MarshalText(); err != nil || got.UnmarshalText(text) != nil || got != want {
			t.Errorf("%v is read as %v, %v", want, got, err)
		}
	}
	if err := new(Verdict).UnmarshalText([]byte("dire")); err == nil {
		t.Error("dire is a verdict")
	}
}

// refused makes an agent have just refused a node.
func refused(refusal string) func(*Look) {
	return func(l *Look) {
		l.History.Now = time.Now()
		l.Stats.Counts.LatestRefused, l.Stats.Counts.LatestRefusal = l.History.Now, refusal
	}
}

// The advice about a refused node names the value of this cluster. An isolated node waits for the lost nodes.
func TestAdvice(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(l *Look)
		says    string
		saysNot string
	}{
		"partitions":      {refused("cluster: setting partitions must be the same on all nodes, but it is 64 here and 128 on node-d#1"), "start node-d again with --partitions 64, as in this cluster", "#1"},
		"another setting": {refused("cluster: setting strategy must be the same on all nodes, but it is rendezvous here and zones on node-d#1"), "start node-d again with strategy rendezvous, as in this cluster", "--strategy"},
		"a hostile value": {refused("cluster: setting partitions must be the same on all nodes, but it is 64 here and 1 here and rm -rf on x on node-d#1"), "start node-d again with --partitions 64, as in this cluster", "rm -rf"},
		"another release": {refused("cluster: setting wire must be the same on all nodes, but it is 1-1 here and 2-3 on node-d#1"), "run the same release of roost on node-d", "wire"},
		"isolated, with lost nodes": {func(l *Look) {
			held(cluster.CauseIsolated, "it sees 3")(l)
			lose(1, 2)(l)
		}, "start the lost nodes again", "survivors"},
		"isolated by a majority": {func(l *Look) {
			held(cluster.CauseIsolated, "it sees 3")(l)
			l.Stats.Settings.Split = "majority"
		}, "restart all survivors at once", "start the lost nodes again"},
		"overloaded": {func(l *Look) {
			l.Members.Members[0].Capacity, l.Members.Members[0].Load = 200, 220
			l.Members.Members[1].Capacity, l.Members.Members[1].Load = 200, 110
			l.Members.Members[2].Capacity, l.Members.Members[2].Load = 200, 150
			l.Stats.Rooms.Hosted = 2
		}, "start a node, or raise --capacity if the machines can carry more: the rooms of node-a cost 110 units on average, and fit nowhere (node-b has the most capacity left: 90 units)", "ask roost doctor"},
		"overloaded with small rooms": {func(l *Look) {
			l.Members.Members[0].Capacity, l.Members.Members[0].Load = 200, 220
			l.Members.Members[1].Capacity, l.Members.Members[1].Load = 200, 110
			l.Stats.Rooms.Hosted = 22
		}, "A room of node-a costs 10 units on average, and node-", "start a node"},
		"another is overloaded": {func(l *Look) {
			l.Members.Members[1].Capacity, l.Members.Members[1].Load = 200, 220
		}, "ask roost doctor at the overloaded node", "on average"},
	} {
		l := healthyLook()
		tt.change(&l)
		do := ""
		for _, c := range (Examination{Before: l, After: l, Over: time.Second}).Diagnose().Checks {
			do += c.Do + "\n"
		}
		if !strings.Contains(do, tt.says) || strings.Contains(do, tt.saysNot) {
			t.Errorf("%s: the advice is %q", name, do)
		}
	}
}

// The advice depends on why members were lost.
func TestLostFix(t *testing.T) {
	for _, c := range []struct {
		reasons   []lease.Reason
		log, host bool // what the advice mentions
	}{
		{[]lease.Reason{lease.Crashed, lease.Departed}, true, false},
		{[]lease.Reason{lease.Expired}, false, true},
		{[]lease.Reason{lease.Expired, lease.Crashed}, true, true},
	} {
		l := healthyLook()
		for i, r := range c.reasons {
			l.Members.Lost = append(l.Members.Lost, report.Lost{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("lost-", i))}, Reason: r})
		}
		checks := Examination{Before: healthyLook(), After: l, Over: time.Second}.Diagnose().Checks
		if do := checks[0].Do; strings.Contains(do, "supervisor") != c.log || strings.Contains(do, "host runs") != c.host {
			t.Errorf("%v: %q", c.reasons, do)
		}
	}
}

// Each state of a lost member's gossip port has its own finding and its own advice.
func TestPorts(t *testing.T) {
	e := Examination{Before: healthyLook(), After: healthyLook(), Over: time.Second, Ports: map[lease.NodeID]Port{
		"silent": PortSilent, "refused": PortRefused, "gone": PortUnreachable, "runs": PortAnswers, "left": PortRefused,
	}}
	for _, id := range []lease.NodeID{"silent", "refused", "gone", "runs", "unknown", "left"} {
		l := report.Lost{Profile: lease.Profile{ID: id}, Reason: lease.Expired}
		if id == "left" {
			l.Reason = lease.Departed
		}
		e.After.Members.Lost = append(e.After.Members.Lost, l)
	}
	expect(t, "ports", e, []string{
		"members: warn: lost, and paused: silent expired", "members: warn: lost, and ended: refused expired",
		"members: warn: lost, and out of reach: gone expired", "members: warn: lost, and running: runs expired",
		"members: warn: lost: unknown expired",
	})
	do := make(map[string]bool)
	for _, c := range e.Diagnose().Checks {
		if c.Status == Warn {
			do[c.Do] = true
		}
	}
	if len(do) != 5 {
		t.Errorf("the same advice for different ports: %v", do)
	}
}
