package node

import (
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// View is what a node knows at one moment. It is immutable.
type View struct {
	Phase Phase
	Ended bool
	Live  *lease.View
	Table *placement.Table // nil before the first table, while joining and after the end
	State *events.State    // nil before the first table
	Drift int              // live members that run another table; settling ones do not count
	Lease *OwnLease
	Stats Stats
}

// Stats counts what a node did since New.
type Stats struct {
	lease.Stats
	DecodeErrors      uint64
	VersionErrors     uint64
	StaleDropped      uint64
	ViewChanges       uint64
	TableChanges      uint64
	AssignmentFetches uint64
	Fences            uint64
	NodesRefused      uint64
	Drifts            uint64
	DriftTime         time.Duration
}

// View returns what this node knows, and counts drift.
func (n *Node) View(now time.Time) View {
	n.heard = false
	v := View{Phase: n.life.phase, Ended: n.ended, Live: n.set.View(), Table: n.table, State: n.state, Lease: n.lease}
	if n.ended || n.life.phase == Joining {
		v.Table = nil // at the end, or from before a pause
	}
	v.Drift = n.driftIn(v.Live)
	n.drift.count(now, v.Table != nil, v.Drift)
	v.Stats = n.stats
	v.Stats.Stats = n.set.Stats()
	v.Stats.Drifts, v.Stats.DriftTime = n.drift.times, n.drift.total
	return v
}

// driftIn returns how many members run another table than this node. A settling
// member has none yet.
func (n *Node) driftIn(v *lease.View) (drift int) {
	own := TableDigest(n.table)
	for i := range v.Members {
		if m := &v.Members[i]; m.ID != n.self && m.Table != own && m.State != lease.Settling {
			drift++
		}
	}
	return drift
}
