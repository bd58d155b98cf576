package cluster

import "github.com/roost-cluster/roost/internal/node"

// Phase is where an agent is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲            ▲          │
//	   │            └──────────┤ its clock is ahead of the cluster's
//	   └───────────────────────┘ its own lease expired
//
// Draining is not a phase: it is a command that holds in all phases.
type Phase uint8

// The phases.
const (
	PhaseJoining  = Phase(node.Joining)  // no seed has answered yet
	PhaseSettling = Phase(node.Settling) // a member that owns nothing yet
	PhaseActive   = Phase(node.Active)   // takes part in placement, draining or not
	PhaseOver     = Phase(node.Over)     // left or closed
)

// String returns "joining", "settling", "active" or "over".
func (p Phase) String() string { return node.Phase(p).String() }
