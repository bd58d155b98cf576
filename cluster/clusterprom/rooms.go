package clusterprom

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
)

// evacuation returns the current evacuation or, if there is none, the latest one.
func (v *view) evacuation() affinity.Evacuation {
	if v.rooms.Evacuation == nil {
		return affinity.Evacuation{Over: true}
	}
	return *v.rooms.Evacuation
}

func roomFamilies() []family {
	return slices.Concat(joinFamilies(), hostingFamilies(), storeFamilies())
}

func joinFamilies() []family {
	return []family{
		counters("rooms_resolved_total", "Resolved rooms, by the source of the assignment.", "source", func(v *view) map[string]uint64 {
			r := &v.rooms
			return map[string]uint64{
				"cached": r.Cached, "pinned": r.Pinned, "hash": r.Hash, "override": r.Override, "degraded": r.Degraded,
			}
		}),
		histogram("rooms_resolve_duration_seconds",
			"Duration of resolve calls that the pin cache could not answer, including failed calls.",
			func(v *view) (uint64, time.Duration, map[time.Duration]uint64) {
				return v.rooms.Asked, v.rooms.AskedTime, v.rooms.AskedWithin
			}),
		gauge("rooms_headroom",
			"Units of load that new rooms can add to this node before it reaches the soft ceiling. "+
				"0 if the node takes no new rooms, has no capacity or reports no load.",
			func(v *view) float64 { return float64(v.rooms.Headroom) }),
		counters("rooms_without_headroom_total",
			"Joins for which no node had headroom, by result: the room was placed above the soft ceiling (placed), "+
				"or refused because of the hard ceiling (refused).",
			"result", func(v *view) map[string]uint64 {
				return map[string]uint64{"placed": v.rooms.Crowded, "refused": v.rooms.NoCapacity}
			}),
	}
}

func hostingFamilies() []family {
	return []family{
		gauge("rooms_hosted", "Rooms that this node hosts.", func(v *view) float64 { return float64(v.rooms.Hosted) }),
		gauge("rooms_known", "Rooms in the pin cache of this node.", func(v *view) float64 { return float64(v.rooms.Known) }),
		counter("rooms_failed_over_total", "Rooms of dead nodes that this node moved to live nodes.",
			func(v *view) uint64 { return v.rooms.FailedOver }),
		durations("rooms_failover_duration_seconds", "Duration of passes that moved rooms of dead nodes.", func(v *view) (uint64, time.Duration) {
			return v.rooms.Failovers, v.rooms.FailoverTime
		}),
		counter("rooms_conflicts_total",
			"Rooms that this node released because two nodes hosted them after an outage of the store.",
			func(v *view) uint64 { return v.rooms.Conflicts }),
		counter("rooms_repinned_total",
			"Rooms on this node that were pinned again because the store had lost their pins.",
			func(v *view) uint64 { return v.rooms.Repinned }),
		gauges("rooms_evacuation",
			"Rooms in the latest evacuation of this node, by state: moved to another node, ended during the evacuation, left on this node, or failed to move. Failed rooms are also counted as left.",
			"state",
			func(v *view) map[string]uint64 {
				e := v.evacuation()
				return map[string]uint64{"left": uint64(e.Left), "moved": uint64(e.Moved), "ended": uint64(e.Ended), "failed": uint64(e.Failed)}
			}),
		gauge("rooms_evacuating", "1 while an evacuation moves the rooms of this node to other nodes, 0 otherwise.", func(v *view) float64 {
			if v.evacuation().Over {
				return 0
			}
			return 1
		}),
		gauge("rooms_nodes_cut_off",
			"Nodes with pinned rooms that send heartbeats to the store, but that gossip has not reached for longer than the TTL of a lease.",
			func(v *view) float64 { return float64(len(v.rooms.CutOff)) }),
		gauge("rooms_nodes_silent",
			"Live nodes that have sent no heartbeats to the store of this node for longer than the TTL of a lease. They get no new rooms.",
			func(v *view) float64 { return float64(len(v.rooms.Silent)) }),
		counter("rooms_unplaced_total", "First joins refused because StrictCeiling is set and the store did not respond.", func(v *view) uint64 { return v.rooms.Unplaced }),
		counter("rooms_outgrown_total", "Joins refused because the room has outgrown this node and LimitGrowth is set.",
			func(v *view) uint64 { return v.rooms.Outgrown }),
		counter("rooms_rebalanced_total", "Rooms that this node moved to other nodes because it was overloaded.",
			func(v *view) uint64 { return v.rooms.Rebalanced }),
		gauge("rooms_reserved_units", "Units of load reserved ahead for rooms on this node.",
			func(v *view) float64 { return float64(v.rooms.Ahead) }),
		gauge("rooms_excess_units", "Units of load that this node wants to move to other nodes because it is overloaded, 0 if it is not.",
			func(v *view) float64 { return float64(v.rooms.Excess) }),
		counter("rooms_relays_total", "Requests for additional nodes for a room that is too large for one node.",
			func(v *view) uint64 { return v.rooms.Relays }),
	}
}

func storeFamilies() []family {
	return []family{
		gauge("store_up", "1 if the store of pins has responded recently and its circuit breaker lets calls pass, 0 otherwise.", func(v *view) float64 {
			if v.rooms.StoreDoubt {
				return 0
			}
			return 1
		}),
		gauge("store_round_trip_seconds", "Time that the store takes to respond to a heartbeat. The value is the shortest of the latest three round trips.",
			func(v *view) float64 { return v.rooms.StoreRoundTrip.Seconds() }),
		gauge("store_budget_seconds", "How long a join waits for the store. roost_store_round_trip_seconds must remain below a third of this value.",
			func(v *view) float64 { return v.rooms.StoreBudget.Seconds() }),
		gauges("store_breaker", "1 for the current state of the store's circuit breaker, 0 for all other states. While the breaker is open, no join waits for the store.", "state",
			func(v *view) map[string]uint64 {
				all := map[string]uint64{"closed": 0, "half-open": 0, "open": 0}
				all[v.rooms.Breaker] = 1
				return all
			}),
		counter("store_errors_total", "Calls to the store that failed or were skipped.", func(v *view) uint64 { return v.rooms.StoreErrors }),
		histogram("store_call_duration_seconds",
			"Duration of calls to the store that a join waits for, including failed calls.",
			func(v *view) (uint64, time.Duration, map[time.Duration]uint64) {
				return v.rooms.StoreCalls, v.rooms.StoreTime, v.rooms.StoreWithin
			}),
	}
}
