package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Stats counts events of a node since New. cluster.CoreStats documents the fields. Both types must have the
// same fields in the same order, because Stats is converted to CoreStats.
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
