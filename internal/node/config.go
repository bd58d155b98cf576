package node

import (
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Config is what a node is started with. Every field must be set, except in the last
// group; cluster.Config documents them and has their defaults.
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
	RejoinInterval    time.Duration
	GossipInterval    time.Duration
	GossipNodes       int
	PacketBytes       int // size limit of one packet

	Seeds         []string // addresses
	SeedNames     []string // have to be looked up
	Bootstrap     bool
	RampUp        time.Duration
	MinMembers    int           // live members without which the node owns nothing
	SplitForget   time.Duration // how long a member that fell silent votes; 0 = all sides of a split continue
	StartDraining bool
	Undamped      bool          // a node that comes and goes is not held back
	Checked       bool          // the shell checks the node's program: see Checked
	Handover      time.Duration // bound of waiting for other nodes before a partition runs; 0 = no hand-over

	// Share returns a record to keep in place of an equal one. A simulation has its nodes
	// share records. Default: each node has its own.
	Share func(*lease.Record) *lease.Record
}
