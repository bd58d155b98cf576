package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// counter is a figure of an agent that should stand still.
type counter struct {
	check, name string
	of          func(clusterhttp.Stats) uint64
	means, do   string
}

type (
	stats     = clusterhttp.Stats
	roomStats = affinity.Stats
)

// counters are in the order of the checks.
func counters() []counter {
	return slices.Concat(messageCounters(), nodeCounters(), roomCounters())
}

func messageCounters() []counter {
	return []counter{
		{
			"messages", "inbox_dropped", func(s stats) uint64 { return s.Counts.InboxDropped },
			"news comes faster than the agent can take it in", "see whether its machine is starved of CPU",
		},
		{
			"messages", "guard_dropped", func(s stats) uint64 { return s.Counts.GuardDropped },
			"somebody sends packets to the gossip port that no node of this cluster sends", "find out who reaches the port; a firewall and --key-file keep others out",
		},
		{
			"messages", "decode_errors", func(s stats) uint64 { return s.Counts.DecodeErrors },
			"messages are damaged, or come from another program", "look for other programs that use this port, and for a broken network",
		},
		{
			"messages", "version_errors", func(s stats) uint64 { return s.Counts.VersionErrors },
			"a node runs a version of roost with another wire format", "run one version on all nodes",
		},
		{
			"messages", "send_errors", func(s stats) uint64 { return s.Counts.SendErrors },
			"this machine cannot send to some members", "look for missing routes, a local firewall, and full socket buffers",
		},
		{
			"messages", "stale_dropped", func(s stats) uint64 { return s.Counts.StaleDropped },
			"this process stood still for a while", "see whether its machine is starved of CPU, or the VM is paused",
		},
		{
			"messages", "records_refused", func(s stats) uint64 { return s.Counts.RecordsRefused },
			"more nodes announce themselves than a cluster can have", "find out who starts nodes with ever new ids",
		},
		{
			"settings", "nodes_refused", func(s stats) uint64 { return s.Counts.NodesRefused },
			"a node with other settings tries to join", "this agent's log names the setting and both values",
		},
		{
			"settings", "settings_refused", func(s stats) uint64 { return s.Counts.SettingsRefused },
			"a node with other settings is heard, and not listened to", "this agent's log names the setting and both values",
		},
	}
}

func nodeCounters() []counter {
	return []counter{
		{
			"losses", "expired", func(s stats) uint64 { return s.Counts.Expired },
			"leases have run out: nodes crashed, stood still or were cut off", "roost watch tells which come and go; see their machines and logs",
		},
		{
			"losses", "skew_rejected", func(s stats) uint64 { return s.Counts.SkewRejected },
			"the clock of some node is so far ahead that its heartbeats are rejected", "the log of that node says \"fenced\"; have NTP set its clock",
		},
		{
			"fences", "fences", func(s stats) uint64 { return s.Counts.Fences },
			"this node has given up all it owned, since its process stood still or its clock is wrong", "its log has the reason behind \"fenced\"",
		},
		{
			"fences", "reincarnations", func(s stats) uint64 { return s.Counts.Reincarnations },
			"somebody spreads other news of this node than it does itself: an earlier life of it, or a second process under its id",
			"see whether a second process has the same --id; after a restart with a clock that was set back it is harmless",
		},
	}
}

func roomCounters() []counter {
	ofRooms := func(get func(r *roomStats) uint64) func(stats) uint64 {
		return func(s stats) uint64 {
			if s.Rooms == nil {
				return 0
			}
			return get(s.Rooms)
		}
	}
	return []counter{
		{
			"redis", "store_errors", ofRooms(func(r *roomStats) uint64 { return r.StoreErrors }),
			"Redis fails or is late", "see its latency, its memory and the network to it",
		},
		{
			"redis", "conflicts", ofRooms(func(r *roomStats) uint64 { return r.Conflicts }),
			"two nodes hosted one room: joins were answered without Redis, or it lost data", "clients of those rooms are being moved; see that Redis does not evict (maxmemory-policy noeviction)",
		},
		{
			"redis", "degraded", ofRooms(func(r *roomStats) uint64 { return r.Degraded }),
			"rooms are resolved without Redis, by what is known and by the hash", "see why Redis does not answer",
		},
	}
}

// counted judges the counters: what grew between the looks warns, each by itself;
// what grew before is mentioned.
func (e examination) counted() []check {
	var order []string
	names := make(map[string][]string)
	grown := make(map[string][]check)
	ever := make(map[string][]string)
	for _, c := range counters() {
		if !slices.Contains(order, c.check) {
			order = append(order, c.check)
		}
		names[c.check] = append(names[c.check], c.name)
		before, after := c.of(e.before.stats), c.of(e.after.stats)
		switch {
		case after > before:
			grown[c.check] = append(grown[c.check], check{
				c.check, warned, fmt.Sprintf("%s: %d more within %v, %d since the agent started", c.name, after-before, e.over, after), c.means, c.do,
			})
		case after > 0:
			ever[c.check] = append(ever[c.check], fmt.Sprintf("%s %d", c.name, after))
		}
	}
	var checks []check
	for _, name := range order {
		switch {
		case len(grown[name]) > 0:
			checks = append(checks, grown[name]...)
		case len(ever[name]) > 0:
			checks = append(checks, check{Name: name, Finding: fmt.Sprintf("none within %v; since the agent started: %s", e.over, strings.Join(ever[name], ", "))})
		case name == "redis" && e.after.stats.Rooms == nil:
			checks = append(checks, check{Name: name, Finding: "not used: the agent pins no rooms"})
		default:
			checks = append(checks, check{Name: name, Finding: "none since the agent started: " + strings.Join(names[name], ", ")})
		}
	}
	return checks
}
