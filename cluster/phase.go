package cluster

import "github.com/roost-cluster/roost/internal/node"

// Phase is where an agent is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲         │  ▲         ▲ │
//	   │         │  └─────────│─┤ its clock is ahead of the cluster's
//	   │         └▶ isolated ─┘ │
//	   │               ▲────────┤ too few members, a minority, or a later life
//	   └────────────────────────┘ its own lease expired
//
// Draining is not a phase: it is a command that holds in all phases. A node also drains
// while it is unhealthy or it is flapping (Member.FlappingUntil), and counts as draining for all
// members while it is cordoned.
type Phase uint8

// The phases.
const (
	PhaseJoining  = Phase(node.Joining)  // no seed has answered yet
	PhaseSettling = Phase(node.Settling) // a member that owns nothing yet
	PhaseIsolated = Phase(node.Isolated) // owns nothing: Snapshot.Isolated says why
	PhaseActive   = Phase(node.Active)   // takes part in placement, draining or not
	PhaseOver     = Phase(node.Over)     // left or closed
)

// String returns "joining", "settling", "isolated", "active" or "over".
func (p Phase) String() string { return node.Phase(p).String() }
