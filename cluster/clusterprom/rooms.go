package clusterprom

import (
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
	return []family{
		counters("rooms_resolved_total", "Rooms resolved, by the source of the assignment.", "source", func(v *view) map[string]uint64 {
			r := &v.rooms
			return map[string]uint64{
				"cached": r.Cached, "pinned": r.Pinned, "hash": r.Hash, "override": r.Override, "degraded": r.Degraded,
			}
		}),
		histogram("rooms_resolve_duration_seconds",
			"Duration of resolve calls that were not answered from the pin cache, including failed ones.",
			func(v *view) (uint64, time.Duration, map[time.Duration]uint64) {
				return v.rooms.Asked, v.rooms.AskedTime, v.rooms.AskedWithin
			}),
		gauge("rooms_hosted", "Rooms that this node hosts.", func(v *view) float64 { return float64(v.rooms.Hosted) }),
		gauge("rooms_known", "Rooms in the pin cache of this node.", func(v *view) float64 { return float64(v.rooms.Known) }),
		counter("rooms_failed_over_total", "Rooms of dead nodes that this node moved to live nodes.",
			func(v *view) uint64 { return v.rooms.FailedOver }),
		durations("rooms_failover_duration_seconds", "Duration of passes that moved rooms of dead nodes.", func(v *view) (uint64, time.Duration) {
			return v.rooms.Failovers, v.rooms.FailoverTime
		}),
		counter("rooms_conflicts_total",
			"Rooms that two nodes hosted during an outage of the store, and this node released.",
			func(v *view) uint64 { return v.rooms.Conflicts }),
		counter("rooms_repinned_total",
			"Rooms hosted on this node that were pinned again after the store had lost their pins.",
			func(v *view) uint64 { return v.rooms.Repinned }),
		gauges("rooms_evacuation",
			"Rooms of the latest evacuation of this node: moved to other nodes, ended by themselves, or left; failed ones are left, too.",
			"state",
			func(v *view) map[string]uint64 {
				e := v.evacuation()
				return map[string]uint64{"left": uint64(e.Left), "moved": uint64(e.Moved), "ended": uint64(e.Ended), "failed": uint64(e.Failed)}
			}),
		gauge("rooms_evacuating", "1 while an evacuation moves the rooms of this node to others.", func(v *view) float64 {
			if v.evacuation().Over {
				return 0
			}
			return 1
		}),
		gauge("rooms_nodes_cut_off",
			"Nodes of pinned rooms that have had heartbeats in the store for longer than a lease while gossip did not reach them.",
			func(v *view) float64 { return float64(len(v.rooms.CutOff)) }),
		gauge("rooms_nodes_silent",
			"Live nodes that have sent no heartbeats to the store of this node for longer than a lease, and get no new rooms.",
			func(v *view) float64 { return float64(len(v.rooms.Silent)) }),
		counter("rooms_unplaced_total", "First joins refused because the store did not answer and StrictCeiling is set.", func(v *view) uint64 { return v.rooms.Unplaced }),
		counter("rooms_relays_total", "Questions for further nodes for rooms that are too large for one.",
			func(v *view) uint64 { return v.rooms.Relays }),
		gauge("store_up", "1 if the store of pins has responded recently and its circuit breaker lets calls pass.", func(v *view) float64 {
			if v.rooms.StoreDoubt {
				return 0
			}
			return 1
		}),
		gauge("store_round_trip_seconds", "How long the store takes to answer a heartbeat: the shortest of the latest three.",
			func(v *view) float64 { return v.rooms.StoreRoundTrip.Seconds() }),
		gauge("store_budget_seconds", "How long a join waits for the store. Above a third of it, the round trip is too long.",
			func(v *view) float64 { return v.rooms.StoreBudget.Seconds() }),
		gauges("store_breaker", "1 for the state of the store's circuit breaker: while it is open, no join waits for the store.", "state",
			func(v *view) map[string]uint64 {
				all := map[string]uint64{"closed": 0, "half-open": 0, "open": 0}
				all[v.rooms.Breaker] = 1
				return all
			}),
		counter("store_errors_total", "Calls of the store that failed or were skipped.", func(v *view) uint64 { return v.rooms.StoreErrors }),
		histogram("store_call_duration_seconds",
			"Duration of calls of the store that a join waits for, including failed calls.",
			func(v *view) (uint64, time.Duration, map[time.Duration]uint64) {
				return v.rooms.StoreCalls, v.rooms.StoreTime, v.rooms.StoreWithin
			}),
	}
}
