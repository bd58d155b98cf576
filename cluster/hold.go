package cluster

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// Hold is a reason why this node owns nothing. The node remains a member, and owns partitions again when it
// has no hold.
type Hold struct {
	Cause  Cause
	Until  time.Time // when the hold ends, according to this node's clock; zero if it ends with its cause
	Reason string    // what has happened, in words for people
}

// Cause is the kind of a [Hold].
type Cause string

// These are the causes, in the order of Snapshot.Holds. An earlier cause can be the reason for a later cause.
const (
	CauseDuplicate  = Cause(node.CauseDuplicate)  // a later process with the same node ID may be running
	CauseClockAhead = Cause(node.CauseClockAhead) // the node's clock is more than Config.MaxSkew ahead, so other nodes reject its heartbeats
	CauseIsolated   = Cause(node.CauseIsolated)   // the node sees fewer members than Config.MinMembers, or is in the minority of a split (Config.Split)
	CauseUnhealthy  = Cause(node.CauseUnhealthy)  // the application is unhealthy, according to Config.Health or to its reports
	CauseFlapping   = Cause(node.CauseFlapping)   // the node crashed or was lost too often: see Config.DisableFlapDamping
	CauseCordoned   = Cause(node.CauseCordoned)   // Agent.Cordon was called for the node on any member; not while Snapshot.Spared
	CauseDraining   = Cause(node.CauseDraining)   // the node drains after Agent.Drain, Agent.DrainAt or Config.StartDraining
)

// holdsOf converts the holds of the core, and converts their times to the host's clock.
func holdsOf(core []node.Hold, clockOffset time.Duration) (all []Hold) {
	for _, h := range core {
		if !h.Until.IsZero() {
			h.Until = h.Until.Add(-clockOffset)
		}
		all = append(all, Hold{Cause: Cause(h.Cause), Until: h.Until, Reason: h.Reason})
	}
	return all
}

// Held returns the first hold with one of these causes, and false if the node has no such hold.
func (s *Snapshot) Held(causes ...Cause) (Hold, bool) {
	i := slices.IndexFunc(s.Holds, func(h Hold) bool { return slices.Contains(causes, h.Cause) })
	if i < 0 {
		return Hold{}, false
	}
	return s.Holds[i], true
}
