package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// counter is a figure of an agent that should not grow.
type counter struct {
	check, name string
	of          func(clusterhttp.Stats) uint64 // has Rooms
	means, do   string
}

// counters are in the order of their checks.
func counters() []counter { return slices.Concat(messageCounters(), nodeCounters(), roomCounters()) }

func messageCounters() []counter {
	return []counter{
		{
			"messages", "inbox_dropped", func(s clusterhttp.Stats) uint64 { return s.Counts.InboxDropped },
			"messages arrive faster than the agent can process them", "see whether its machine is starved of CPU",
		},
		{
			"messages", "guard_dropped", func(s clusterhttp.Stats) uint64 { return s.Counts.GuardDropped },
			"packets that no node of this cluster sends reach the gossip port", "find the sender; a firewall and --key-file keep others out",
		},
		{
			"messages", "decode_errors", func(s clusterhttp.Stats) uint64 { return s.Counts.DecodeErrors },
			"messages are damaged, or come from another program", "look for other programs that use this port, and for a broken network",
		},
		{
			"messages", "version_errors", func(s clusterhttp.Stats) uint64 { return s.Counts.VersionErrors },
			"a node runs a version of roost with another wire format", "run one version on all nodes",
		},
		{
			"messages", "from_past", func(s clusterhttp.Stats) uint64 { return s.Counts.FromPast },
			"messages of long ago arrive and are dropped", "see whether a machine was suspended; otherwise another host sends recorded packets again: close the gossip port to it",
		},
		{
			"messages", "from_future", func(s clusterhttp.Stats) uint64 { return s.Counts.FromFuture },
			"messages of a cluster with another history arrive and are dropped", "two clusters that began apart and meet agree by themselves; otherwise give clusters names of their own (--cluster)",
		},
		{
			"messages", "send_errors", func(s clusterhttp.Stats) uint64 { return s.Counts.SendErrors },
			"this machine cannot send to some members", "look for missing routes, a local firewall, and full socket buffers",
		},
		{
			"messages", "stale_dropped", func(s clusterhttp.Stats) uint64 { return s.Counts.StaleDropped },
			"this process was paused for a while", "see whether its machine is starved of CPU, or the VM is paused",
		},
		{
			"messages", "records_refused", func(s clusterhttp.Stats) uint64 { return s.Counts.RecordsRefused },
			"more nodes announce themselves than a cluster can have", "find the program that starts nodes with ever new ids",
		},
		{
			"settings", "nodes_refused", func(s clusterhttp.Stats) uint64 { return s.Counts.NodesRefused },
			"a node with other settings tries to join", "this agent's log names the setting and both values",
		},
		{
			"settings", "settings_refused", func(s clusterhttp.Stats) uint64 { return s.Counts.SettingsRefused },
			"messages of a node with other settings arrive and are dropped", "this agent's log names the setting and both values",
		},
	}
}

func nodeCounters() []counter {
	return []counter{
		{
			"losses", "expired", func(s clusterhttp.Stats) uint64 { return s.Counts.Expired + s.Counts.Crashed },
			"leases have ended: nodes crashed, were paused or were cut off", "roost watch shows which nodes leave and join; see their machines and logs",
		},
		{
			"losses", "skew_rejected", func(s clusterhttp.Stats) uint64 { return s.Counts.SkewRejected },
			"the clock of some node is so far ahead that its heartbeats are rejected", "the log of that node says \"fenced\"; have NTP set its clock",
		},
		{
			"fences", "fences", func(s clusterhttp.Stats) uint64 { return s.Counts.Fences },
			"this node has given up all it owned: its process was paused or its clock is wrong", "its log has the reason after \"fenced\"",
		},
		{
			"fences", "reincarnations", func(s clusterhttp.Stats) uint64 { return s.Counts.Reincarnations },
			"another record of this node circulates: of an earlier incarnation, or of a second process under its id",
			"see whether a second process has the same --id; after a restart with a clock that was set back it is harmless",
		},
		{
			"log", "log_dropped", func(s clusterhttp.Stats) uint64 { return s.Counts.LogDropped },
			"lines of this agent's log are lost: its standard error is not read, or the disk is full", "see what reads the log, and the space where it is stored; the agent does not wait for it",
		},
	}
}

func roomCounters() []counter {
	return []counter{
		{
			"redis", "store_errors", func(s clusterhttp.Stats) uint64 { return s.Rooms.StoreErrors },
			"Redis fails or is late", "see its latency, its memory and the network to it",
		},
		{
			"redis", "conflicts", func(s clusterhttp.Stats) uint64 { return s.Rooms.Conflicts },
			"two nodes hosted one room: joins were answered without Redis, or it lost data", "clients of those rooms are being moved; see that Redis does not evict (maxmemory-policy noeviction)",
		},
		{
			"redis", "degraded", func(s clusterhttp.Stats) uint64 { return s.Rooms.Degraded },
			"rooms are resolved without Redis, from the pin cache and by the hash", "see why Redis does not answer",
		},
	}
}

// counted warns of each counter that grew between the looks, and mentions counters that
// grew before.
func (e Examination) counted() (checks []Check) {
	was, is := e.Before.Stats, e.After.Stats
	for _, s := range []*clusterhttp.Stats{&was, &is} {
		s.Rooms = cmp.Or(s.Rooms, new(affinity.Stats))
	}
	all := counters()
	for len(all) > 0 {
		name := all[0].check
		var grown []Check
		var names, ever []string
		for ; len(all) > 0 && all[0].check == name; all = all[1:] {
			c := all[0]
			before, after := c.of(was), c.of(is)
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
