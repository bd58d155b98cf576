package cluster

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// Hold is a reason for which this node owns nothing. The node stays a member, and owns partitions again when
// it has no hold.
type Hold struct {
	Cause  Cause
	Until  time.Time // when it ends, by this node's clock; zero = when its cause ends
	Reason string    // what has happened, for people
}

// Cause is the kind of a [Hold].
type Cause string

// The causes, in the order of Snapshot.Holds. An earlier cause may be the reason for a later one.
const (
	CauseDuplicate  = Cause(node.CauseDuplicate)  // a later process with the node's id may be running
	CauseClockAhead = Cause(node.CauseClockAhead) // its clock is more than Config.MaxSkew ahead: others reject its heartbeats
	CauseIsolated   = Cause(node.CauseIsolated)   // it sees fewer members than Config.MinMembers, or is in the minority of a split (Config.Split)
	CauseUnhealthy  = Cause(node.CauseUnhealthy)  // its application is unhealthy, by Config.Health or by its reports
	CauseFlapping   = Cause(node.CauseFlapping)   // it came and went too often: see Config.DisableFlapDamping
	CauseCordoned   = Cause(node.CauseCordoned)   // it is cordoned by Agent.Cordon at any member; not while Snapshot.Spared
	CauseDraining   = Cause(node.CauseDraining)   // it drains after Agent.Drain, Agent.DrainAt or Config.StartDraining
)

// holdsOf converts the holds of the core. Their times become those of the host's clock.
func holdsOf(core []node.Hold, clockOffset time.Duration) (all []Hold) {
	for _, h := range core {
		if !h.Until.IsZero() {
			h.Until = h.Until.Add(-clockOffset)
		}
		all = append(all, Hold{Cause: Cause(h.Cause), Until: h.Until, Reason: h.Reason})
	}
	return all
}

// Held returns the first hold with one of these causes, and false if there is none.
func (s *Snapshot) Held(causes ...Cause) (Hold, bool) {
	i := slices.IndexFunc(s.Holds, func(h Hold) bool { return slices.Contains(causes, h.Cause) })
	if i < 0 {
		return Hold{}, false
	}
	return s.Holds[i], true
}
