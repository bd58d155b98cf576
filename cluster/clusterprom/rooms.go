package clusterprom

import "time"

func roomFamilies() []family {
	return []family{
		counters("rooms_resolved_total", "Answers to where a room lives, by what they rest on.", "source", func(v *view) map[string]uint64 {
			r := &v.rooms
			return map[string]uint64{
				"cached": r.Cached, "pinned": r.Pinned, "hash": r.Hash, "override": r.Override, "degraded": r.Degraded,
			}
		}),
		gauge("rooms_hosted", "Rooms that are hosted on this node.", func(v *view) float64 { return float64(v.rooms.Hosted) }),
		gauge("rooms_known", "Rooms whose home this node remembers.", func(v *view) float64 { return float64(v.rooms.Known) }),
		counter("rooms_rehomed_total", "Rooms of nodes that are gone to which this node gave a new home.", func(v *view) uint64 { return v.rooms.Rehomed }),
		durations("rooms_rehome_duration_seconds", "Time that passes took which gave rooms new homes.", func(v *view) (uint64, time.Duration) {
			return v.rooms.Rehomings, v.rooms.RehomeTime
		}),
		counter("rooms_conflicts_total", "Rooms that two nodes hosted while the store was away, and this one gave up.", func(v *view) uint64 { return v.rooms.Conflicts }),
		counter("rooms_repinned_total", "Rooms hosted on this node whose pins the store had lost, and which were pinned again.", func(v *view) uint64 { return v.rooms.Repinned }),
		gauge("store_up", "1 if the store of pins has answered lately and is asked.", func(v *view) float64 {
			if v.rooms.StoreDoubt {
				return 0
			}
			return 1
		}),
		gauges("store_breaker", "1 for the state of the circuit breaker before the store: while it is open, nobody waits for the store.", "state",
			func(v *view) map[string]uint64 {
				all := map[string]uint64{"closed": 0, "half-open": 0, "open": 0}
				all[v.rooms.Breaker] = 1
				return all
			}),
		counter("store_errors_total", "Calls of the store that failed, or were not even tried.", func(v *view) uint64 { return v.rooms.StoreErrors }),
		durations("store_call_duration_seconds", "Time that calls of the store took which a join waits for, in vain or not.", func(v *view) (uint64, time.Duration) {
			return v.rooms.StoreCalls, v.rooms.StoreTime
		}),
	}
}
