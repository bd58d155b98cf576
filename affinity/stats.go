package affinity

import (
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Stats counts what a Resolver did since it was started.
type Stats struct {
	Cached      uint64 `json:"cached"` // assignments by source
	Pinned      uint64 `json:"pinned"`
	Hash        uint64 `json:"hash"`
	Override    uint64 `json:"override"`
	Degraded    uint64 `json:"degraded"`
	Rehomed     uint64 `json:"rehomed"`      // rooms of dead nodes that this instance gave a new home
	Conflicts   uint64 `json:"conflicts"`    // rooms that two nodes hosted, and this one gave up
	StoreErrors uint64 `json:"store_errors"` // calls of the store that failed, or were not even tried
	Repinned    uint64 `json:"repinned"`     // rooms that are hosted here whose pins the store had lost
	Requests    uint64 `json:"requests"`     // calls of Host: a participant has come here
	Misrouted   uint64 `json:"misrouted"`    // those of them whose room lives elsewhere

	StoreCalls uint64        `json:"store_calls"` // that somebody waited for, and how long they did
	StoreTime  time.Duration `json:"store_ns"`
	Rehomings  uint64        `json:"rehomings"` // passes that gave rooms of dead nodes new homes
	RehomeTime time.Duration `json:"rehome_ns"` // that those took
	Breaker    string        `json:"breaker"`   // closed, half-open or open; see StoreDoubt

	Hosted     int   `json:"hosted"`      // rooms that are hosted here now
	Known      int64 `json:"known"`       // rooms that are remembered here now
	StoreDoubt bool  `json:"store_doubt"` // the store has not answered lately
}

type counters struct {
	sources     [Degraded + 1]atomic.Uint64
	rehomed     atomic.Uint64
	conflicts   atomic.Uint64
	storeErrors atomic.Uint64
	repinned    atomic.Uint64
	requests    atomic.Uint64
	misrouted   atomic.Uint64
	storeCalls  atomic.Uint64
	storeTime   atomic.Int64
	rehomings   atomic.Uint64
	rehomeTime  atomic.Int64
}

func (c *counters) add(s Source) { c.sources[s].Add(1) }

// Stats returns the counters.
func (r *Resolver) Stats() Stats {
	r.mu.Lock()
	hosted := len(r.hosted)
	r.mu.Unlock()
	breaker := r.breaker.State()
	return Stats{
		Cached: r.counts.sources[Cached].Load(), Pinned: r.counts.sources[Pinned].Load(),
		Hash: r.counts.sources[Hash].Load(), Override: r.counts.sources[Override].Load(),
		Degraded: r.counts.sources[Degraded].Load(), Rehomed: r.counts.rehomed.Load(),
		Conflicts: r.counts.conflicts.Load(), StoreErrors: r.counts.storeErrors.Load(),
		Repinned: r.counts.repinned.Load(),
		Requests: r.counts.requests.Load(), Misrouted: r.counts.misrouted.Load(),
		StoreCalls: r.counts.storeCalls.Load(), StoreTime: time.Duration(r.counts.storeTime.Load()),
		Rehomings: r.counts.rehomings.Load(), RehomeTime: time.Duration(r.counts.rehomeTime.Load()),
		Breaker: breaker.String(),
		Hosted:  hosted, Known: r.known.count.Load(), StoreDoubt: r.away.Load() || breaker == gobreaker.StateOpen,
	}
}
