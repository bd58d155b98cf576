package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// counter is a figure of an agent that should not grow.
type counter struct {
	check, name string
	of          func(clusterhttp.Stats) uint64
	means, do   string
}

// node is a counter of the agent.
func node(get func(c cluster.Stats) uint64) func(clusterhttp.Stats) uint64 {
	return func(s clusterhttp.Stats) uint64 { return get(s.Counts) }
}

// rooms is a counter of its rooms.
func rooms(get func(r *affinity.Stats) uint64) func(clusterhttp.Stats) uint64 {
	return func(s clusterhttp.Stats) uint64 {
		if s.Rooms == nil {
			return 0
		}
		return get(s.Rooms)
	}
}

// counters are in the order of their checks.
func counters() []counter { return slices.Concat(messageCounters(), nodeCounters(), roomCounters()) }

func messageCounters() []counter {
	return []counter{
		{
			"messages", "inbox_dropped", node(func(c cluster.Stats) uint64 { return c.InboxDropped }),
			"messages arrive faster than the agent can process them", "see whether its machine is starved of CPU",
		},
		{
			"messages", "guard_dropped", node(func(c cluster.Stats) uint64 { return c.GuardDropped }),
			"packets that no node of this cluster sends reach the gossip port", "find the sender; a firewall and --key-file keep others out",
		},
		{
			"messages", "decode_errors", node(func(c cluster.Stats) uint64 { return c.DecodeErrors }),
			"messages are damaged, or come from another program", "look for other programs that use this port, and for a broken network",
		},
		{
			"messages", "version_errors", node(func(c cluster.Stats) uint64 { return c.VersionErrors }),
			"a node runs a version of roost with another wire format", "run one version on all nodes",
		},
		{
			"messages", "send_errors", node(func(c cluster.Stats) uint64 { return c.SendErrors }),
			"this machine cannot send to some members", "look for missing routes, a local firewall, and full socket buffers",
		},
		{
			"messages", "stale_dropped", node(func(c cluster.Stats) uint64 { return c.StaleDropped }),
			"this process was paused for a while", "see whether its machine is starved of CPU, or the VM is paused",
		},
		{
			"messages", "records_refused", node(func(c cluster.Stats) uint64 { return c.RecordsRefused }),
			"more nodes announce themselves than a cluster can have", "find the program that starts nodes with ever new ids",
		},
		{
			"settings", "nodes_refused", node(func(c cluster.Stats) uint64 { return c.NodesRefused }),
			"a node with other settings tries to join", "this agent's log names the setting and both values",
		},
		{
			"settings", "settings_refused", node(func(c cluster.Stats) uint64 { return c.SettingsRefused }),
			"messages of a node with other settings arrive and are dropped", "this agent's log names the setting and both values",
		},
	}
}

func nodeCounters() []counter {
	return []counter{
		{
			"losses", "expired", node(func(c cluster.Stats) uint64 { return c.Expired }),
			"leases have expired: nodes crashed, were paused or were cut off", "roost watch shows which nodes leave and join; see their machines and logs",
		},
		{
			"losses", "skew_rejected", node(func(c cluster.Stats) uint64 { return c.SkewRejected }),
			"the clock of some node is so far ahead that its heartbeats are rejected", "the log of that node says \"fenced\"; have NTP set its clock",
		},
		{
			"fences", "fences", node(func(c cluster.Stats) uint64 { return c.Fences }),
			"this node has given up all it owned: its process was paused or its clock is wrong", "its log has the reason after \"fenced\"",
		},
		{
			"fences", "reincarnations", node(func(c cluster.Stats) uint64 { return c.Reincarnations }),
			"another record of this node circulates: of an earlier incarnation, or of a second process under its id",
			"see whether a second process has the same --id; after a restart with a clock that was set back it is harmless",
		},
	}
}

func roomCounters() []counter {
	return []counter{
		{
			"redis", "store_errors", rooms(func(r *affinity.Stats) uint64 { return r.StoreErrors }),
			"Redis fails or is late", "see its latency, its memory and the network to it",
		},
		{
			"redis", "conflicts", rooms(func(r *affinity.Stats) uint64 { return r.Conflicts }),
			"two nodes hosted one room: joins were answered without Redis, or it lost data", "clients of those rooms are being moved; see that Redis does not evict (maxmemory-policy noeviction)",
		},
		{
			"redis", "degraded", rooms(func(r *affinity.Stats) uint64 { return r.Degraded }),
			"rooms are resolved without Redis, from the pin cache and by the hash", "see why Redis does not answer",
		},
	}
}

// counted warns of each counter that grew between the looks, and mentions counters that
// grew before.
func (e Examination) counted() (checks []Check) {
	all := counters()
	for len(all) > 0 {
		name := all[0].check
		var grown []Check
		var names, ever []string
		for ; len(all) > 0 && all[0].check == name; all = all[1:] {
			c := all[0]
			before, after := c.of(e.Before.Stats), c.of(e.After.Stats)
			names = append(names, c.name)
			if after > before {
				found := fmt.Sprintf("%s: %d more within %v, %d since start", c.name, after-before, e.Over, after)
				grown = append(grown, Check{name, Warn, found, c.means, c.do})
			} else if after > 0 {
				ever = append(ever, fmt.Sprintf("%s %d", c.name, after))
			}
		}
		found := "no errors since start: " + strings.Join(names, ", ")
		switch {
		case len(ever) > 0:
			found = fmt.Sprintf("none within %v; since start: %s", e.Over, strings.Join(ever, ", "))
		case name == "redis" && e.After.Stats.Rooms == nil:
			found = "not used: the agent pins no rooms"
		}
		if len(grown) == 0 {
			grown = []Check{{Name: name, Finding: found}}
		}
		checks = append(checks, grown...)
	}
	return checks
}
