package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Stats counts what a node did since New. It has the fields of cluster.CoreStats, which documents them, in the same
// order: one is converted to the other.
type Stats struct {
	lease.Stats

	DecodeErrors      uint64
	VersionErrors     uint64
	StaleDropped      uint64
	OtherCluster      uint64
	FromSelf          uint64
	ViewChanges       uint64
	TableChanges      uint64
	AssignmentFetches uint64
	Fences            uint64
	NodesRefused      uint64
	HealthFailures    uint64
	HandoffOverruns   uint64
	Divergences       uint64
	DivergedTime      time.Duration
}
