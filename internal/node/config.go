package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Config is what a node is started with. Every field but RampUp and StartDraining
// must be set; cluster.Config documents them and has their defaults.
type Config struct {
	Self       lease.Record // the first record of this node
	Settings   uint32       // hash of the settings that all nodes share
	Partitions int
	Strategy   placement.Strategy

	HeartbeatInterval time.Duration
	LeaseTTL          time.Duration
	MaxSkew           time.Duration
	QuietWindow       time.Duration
	StartupGrace      time.Duration
	GossipInterval    time.Duration
	GossipNodes       int
	PacketBytes       int // size limit of one packet

	RampUp        time.Duration
	StartDraining bool
}
