package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

// counters lists the counters of an agent that should not grow. The name is the name in JSON. The order is
// the order of the checks.
var counters = []struct{ check, name, means, do string }{ //nolint:gochecknoglobals // a table
	{"messages", "inbox_dropped", "messages arrive faster than the agent can process them", "check whether its machine lacks CPU"},
	{
		"messages", "guard_dropped", "packets that do not come from a node of this cluster reach the gossip port",
		"find the sender; a firewall and --key-file keep other senders out",
	},
	{
		"messages", "decode_errors", "messages are damaged, or come from another protocol",
		"look for other software that uses this port, or for a broken network",
	},
	{"messages", "version_errors", "a node runs a version of roost with another wire format", "run the same version on all nodes"},
	{
		"messages", "from_past", "very old messages arrive and are dropped",
		"check whether a machine was suspended; if not, another host replays recorded packets: close the gossip port to it",
	},
	{
		"messages", "from_future", "messages from a cluster with a different history arrive and are dropped",
		"if two clusters with one name started separately and are now connected, they merge by themselves; if they should stay separate, give each its own name (--cluster)",
	},
	{
		"messages", "other_cluster", "another cluster with the same name and settings sends messages to this node, which ignores them",
		"give each cluster its own name (--cluster)",
	},
	{
		"messages", "from_self",
		"packets to other members come back to this node: several nodes advertise the same address, which each host has, such as a bridge address",
		"set --advertise on each node to an address where the other nodes reach it",
	},
	{
		"messages", "send_errors", "this machine cannot send to some members",
		"look for missing routes, a local firewall, or full socket buffers",
	},
	{"messages", "stale_dropped", "this process was paused for a while", "check whether its machine lacks CPU, or the VM is paused"},
	{"messages", "records_refused", "more nodes announce themselves than a cluster can have", "find out what keeps starting nodes with new ids"},
	{"settings", "nodes_refused", "a node with different settings tries to join", "this agent's log names the setting and both values"},
	{
		"settings", "settings_refused", "messages from a node with different settings arrive and are dropped",
		"this agent's log names the setting and both values",
	},
	{
		"losses", "expired", "leases have expired: nodes crashed, were paused or were cut off",
		"find these nodes with roost watch, and look at their machines and logs",
	},
	{
		"losses", "skew_rejected", "a node's clock is so far ahead that its heartbeats are rejected",
		"the log of that node says \"fenced\"; set its clock with NTP",
	},
	{
		"fences", "fences", "this node gave up everything it owned: its process was paused or its clock is wrong",
		"its log gives the reason after \"fenced\"",
	},
	{
		"fences", "reincarnations", "other members send another record of this node: from an earlier incarnation, or from a second process with its id",
		"check whether a second process has the same --id; after a restart with a clock that was set back, this is harmless",
	},
	{
		"log", "log_dropped", "this agent's log loses lines: nobody reads its standard error, or the disk is full",
		"check what reads the log, and the free space where it is stored; the agent does not wait for the reader",
	},
	{"redis", "store_errors", "Redis fails or is slow", "check its latency, its memory and the network to it"},
	{
		"redis", "conflicts", "two nodes hosted the same room: nodes answered joins without Redis, or Redis lost data",
		"roost is moving the clients of those rooms; make sure that Redis does not evict keys (maxmemory-policy noeviction)",
	},
	{"redis", "degraded", "nodes resolve rooms without Redis, from the pin cache and by hash", "find out why Redis does not answer"},
}

// countersOf returns the counters of an agent by their JSON names.
func countersOf(s report.Stats) map[string]uint64 {
	all := make(map[string]uint64)
	for _, part := range []any{s.Counts, s.Rooms} {
		b, _ := json.Marshal(part)
		var fields map[string]any
		_ = json.Unmarshal(b, &fields)
		for name, v := range fields {
			if n, ok := v.(float64); ok {
				all[name] = uint64(n)
			}
		}
	}
	all["expired"] += all["crashed"]
	return all
}

// named reports whether another check already explains the growth of a counter.
func (e Examination) named(counter string, by uint64) bool {
	switch counter {
	case "expired":
		lost := e.Before.Members.Lost
		return by <= uint64(len(slices.DeleteFunc(slices.Clone(e.After.Members.Lost), func(l report.Lost) bool {
			return l.Reason == lease.Departed ||
				slices.ContainsFunc(lost, func(b report.Lost) bool { return b.ID == l.ID && b.Incarnation == l.Incarnation })
		})))
	case "skew_rejected":
		return len(e.After.Members.Ahead) > 0
	case "nodes_refused":
		return e.refused() != nil
	case "store_errors", "degraded":
		return e.After.Stats.Rooms != nil && e.After.Stats.Rooms.StoreDoubt
	}
	return false
}

// counted warns about each counter that grew between the looks, except if another check explains the growth.
// If a check has no warning, its finding mentions counters that grew earlier.
func (e Examination) counted() (checks []Check) {
	was, is := countersOf(e.Before.Stats), countersOf(e.After.Stats)
	for all := counters; len(all) > 0; {
		name := all[0].check
		var grown []Check
		var names, ever []string
		for ; len(all) > 0 && all[0].check == name; all = all[1:] {
			c := all[0]
			before, after := was[c.name], is[c.name]
			names = append(names, c.name)
			if after > before && !e.named(c.name, after-before) {
				found := fmt.Sprintf("%s: %d more within %v, %d since start", c.name, after-before, e.Over, after)
				grown = append(grown, Check{name, Warn, found, c.means, c.do})
			} else if after > 0 {
				ever = append(ever, fmt.Sprintf("%s %d", c.name, after))
			}
		}
		if len(grown) == 0 {
			grown = []Check{{Name: name, Finding: e.steady(name, names, ever)}}
		}
		checks = append(checks, grown...)
	}
	return checks
}

// steady returns the finding for a check if none of its counters causes a warning.
func (e Examination) steady(check string, names, ever []string) string {
	switch {
	case len(ever) > 0:
		return fmt.Sprintf("nothing else is new; since start: %s", strings.Join(ever, ", "))
	case check == "redis" && e.After.Stats.Rooms == nil:
		return "not used: the agent pins no rooms"
	}
	if few := 3; len(names) > few {
		return fmt.Sprintf("the %d counters of this check are 0", len(names))
	}
	return strings.Join(names, " and ") + ": 0 since start"
}
