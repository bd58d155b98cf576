package cluster

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Member is what a snapshot contains about one live node. Don't modify a Member, because all readers share
// it.
type Member struct {
	lease.Profile

	State lease.State // also Draining while the member is cordoned, flapping or unhealthy
	Load  int64       // units of load in the member's latest heartbeat; lease.NoLoad if it reports no load
	Meta  string      // Config.Meta of the member; changes only with a new incarnation

	ClockOffset time.Duration // the member's wall clock minus this node's, including the network delay
	TableDigest uint32        // fingerprint of the member's table (see InSync); 0 if it has no table yet

	// FlappingUntil is when the member stops draining after it crashed or was lost too often, according to
	// this node's clock. FlappingUntil is zero if the member is not flapping. See Config.DisableFlapDamping.
	FlappingUntil time.Time

	// Drains is when this node first saw that the member drains, for any reason except a cordon. Drains is
	// zero if the member does not drain.
	Drains time.Time

	// Unhealthy is true while the member drains because its application is unhealthy; see Config.Health.
	Unhealthy bool

	// Renewed is when the member sent its latest heartbeat, according to this node's clock. Renewed is zero for
	// a node that this node has never met, for example if a room is pinned to such a node.
	Renewed time.Time

	keys     string // fingerprints of the gossip keys
	http     uint32 // as in a lease.Record
	cordoned bool   // the member would be active without its cordon
}

// Age returns how old the member's lease is, by the monotonic clock. Age returns math.MaxInt64 if Renewed is
// zero.
func (m *Member) Age() time.Duration {
	if m.Renewed.IsZero() {
		return math.MaxInt64
	}
	return time.Since(m.Renewed)
}

// Has reports whether m has a label with this value. The zone is also the value of the label "zone", unless m
// has a label with that name.
func (m *Member) Has(label, value string) bool {
	if got, ok := m.Labels[label]; ok {
		return got == value
	}
	return label == "zone" && m.Zone == value
}

func memberOf(v *lease.View, m *lease.Member, clockOffset time.Duration) Member {
	member := Member{
		Profile:     m.Profile,
		State:       m.State,
		Load:        m.Load,
		Meta:        m.Meta,
		ClockOffset: m.Clock,
		TableDigest: m.Table,
		keys:        m.Keys,
		http:        m.HTTP,
		Renewed:     m.Renewed.Add(-clockOffset),
		Unhealthy:   m.Unhealthy && m.State == lease.Draining,
		cordoned:    m.Cordoned,
	}
	if m.FlappingUntil > 0 {
		member.FlappingUntil = v.Local(m.FlappingUntil).Add(-clockOffset)
	}
	return member
}

// Snapshot is everything that a node knows at one point in time. A Snapshot is immutable.
type Snapshot struct {
	Self    *Member
	Members []*Member        // live members including this node, sorted by ID; see Fenced
	Table   *placement.Table // nil until the node is ready and after it is closed; see Stale
	State   *events.State    // the partitions that the node owns; nil until the node is ready
	Stats   Stats

	// Crashed lists incarnations whose processes were confirmed to have ended within about the last TTL.
	// These processes have ended, so the members are not just unreachable.
	Crashed []lease.Incarnation

	// Left lists incarnations that called [Agent.Leave]. The incarnations remain in the list for a minute or
	// ten LeaseTTLs, whichever is longer. A node that joined after an incarnation left does not list it.
	Left []lease.Incarnation

	// Ahead lists the nodes whose clocks are more than Config.MaxSkew ahead of the cluster's, and how far
	// each clock is ahead. This node rejects heartbeats from nodes in Ahead, so they are not members or will
	// soon stop being members.
	Ahead map[lease.NodeID]time.Duration

	// StreamsAlone lists nodes that try to join, with their advertised addresses. A node in StreamsAlone can
	// reach this node via TCP, but UDP packets do not arrive in both directions. StreamsAlone does not
	// include nodes that own partitions on another side of a split.
	StreamsAlone map[lease.NodeID]string

	// Phase is the current phase of this node.
	Phase Phase

	// Fenced is true if this node's own lease expired, because the process was paused or could not send. A
	// fenced node owns nothing until it has joined again and computed a table, usually within a second. Until
	// then, Table and Members keep their last known values. While the node is fenced, Members omits members
	// that are known to have left or crashed.
	Fenced bool

	// Waits is why the node is still joining after StartupGrace: a seed accepts connections but does not
	// answer, or members answer over TCP but not over UDP. Otherwise Waits is nil.
	Waits error

	// Unreachable is why other nodes cannot reach this one at its advertised address, for example because the
	// host has lost the address. The node checks its address while other nodes do not answer. Unreachable is
	// nil if no reason is known.
	Unreachable error

	// Holds lists the reasons why this node owns nothing, in the order in which to solve them. Holds is nil
	// if the node has no hold. A node that is joining or settling, or that has weight 0, also owns nothing.
	Holds []Hold

	// Cordons lists the active cordons, sorted by ID, including cordons of nodes that are not members now. An
	// active member is shown as Draining while it is cordoned. Spared is true if cordons have no effect
	// because otherwise no member could own anything.
	Cordons []Cordon
	Spared  bool

	why        error // error of lookups of a key that has no owner
	lease      *node.OwnLease
	owners     []*Member // by index into Table.Nodes()
	parting    []*Member // members of State that are no longer live or were replaced, sorted by ID
	lost       []Lost    // latest first
	digest     uint32    // digest of the agent's table, as in heartbeats
	divergence int
	runsLeft   int                   // number of partitions that this node still runs although the table assigns them to others
	overdue    []placement.Partition // partitions that this node still runs Config.Handoff after it canceled their runs

	// runners maps a partition to the member that still runs it, if the table assigns the partition to
	// another member.
	runners map[placement.Partition]*Member
}

// Member returns the live member with this ID, and false if no live member has it. The lookup costs O(log
// members).
func (s *Snapshot) Member(id lease.NodeID) (*Member, bool) {
	i, ok := slices.BinarySearchFunc(s.Members, id, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil, false
	}
	return s.Members[i], true
}

// Version counts the changes that this node has seen. The version is 0 until the node is ready.
func (s *Snapshot) Version() uint64 {
	if s.State == nil {
		return 0
	}
	return s.State.Version
}

// Digest identifies the table: nodes with equal digests agree on every owner.
func (s *Snapshot) Digest() placement.Digest { return s.Table.Digest() }

// Diverged returns how many live members had another table than this node, according to their latest
// heartbeats. Settling members do not count.
func (s *Snapshot) Diverged() int { return s.divergence }

// InSync reports whether m had the same table as this node, computed from the same input, according to its
// latest heartbeat.
func (s *Snapshot) InSync(m *Member) bool {
	return s.Table != nil && m.TableDigest == s.digest
}

// Stale reports whether Table may be outdated because this node is isolated or fenced. Lookups then use the
// last table, which may name this node as the owner of partitions that it no longer owns. IsOwner is always
// right.
func (s *Snapshot) Stale() bool { return s.Fenced || s.Phase == PhaseIsolated }

// Converged reports whether this node is ready, is not isolated or fenced, and has the same table as all live
// members.
func (s *Snapshot) Converged() bool {
	return s.Table != nil && s.divergence == 0 && !s.Stale()
}

// Place returns the owner of key. Place returns ErrNotReady, ErrNoMembers or ErrClosed in the same cases as
// [Agent.Place].
func (s *Snapshot) Place(key string) (*Member, error) {
	if m, ok := s.OwnerOf(placement.Of(key, s.Table.Partitions())); ok {
		return m, nil
	}
	return nil, s.why
}

// OwnerOf returns the owner of p, and false if p has no owner. During a handoff, the owner is the member that
// still runs p, as far as this node knows. After the handoff, the owner is the member that the table names.
func (s *Snapshot) OwnerOf(p placement.Partition) (*Member, bool) {
	if len(s.runners) > 0 {
		if m := s.runners[p]; m != nil {
			return m, true
		}
	}
	return s.NextOwnerOf(p)
}

// NextOwnerOf returns the member that the table names for p, and false if the table names no member. The
// named member is the owner or, during a handoff, the member that will take over p.
func (s *Snapshot) NextOwnerOf(p placement.Partition) (*Member, bool) {
	if i := s.Table.OwnerIndex(p); i >= 0 {
		return s.owners[i], true
	}
	return nil, false
}

// Runners returns, during handoffs, the members that still run a partition which the table assigns to another
// member. The map is shared and must not be modified. The map is usually nil.
func (s *Snapshot) Runners() map[placement.Partition]*Member { return s.runners }

// Owners returns the n best members for key, all different. The first is the owner that the table names.
func (s *Snapshot) Owners(key string, n int) []*Member {
	var few [3]int // avoids an allocation for the usual n
	ranked := s.Table.AppendRank(few[:0], placement.Of(key, s.Table.Partitions()), n)
	members := make([]*Member, len(ranked))
	for at, i := range ranked {
		members[at] = s.owners[i]
	}
	return members
}

// OwnersNear returns the same members as Owners, but lists the members in zone first. Use OwnersNear for
// readers that can read any of n replicas.
func (s *Snapshot) OwnersNear(key string, n int, zone string) []*Member {
	return s.candidates(s.Table.RankNear(placement.Of(key, s.Table.Partitions()), n, zone))
}

// Subset returns n members for a tenant. See placement.Table.Subset.
func (s *Snapshot) Subset(tenant string, n int) []*Member {
	return s.candidates(s.Table.Subset(tenant, n))
}

// candidates returns the members with these IDs, which must be candidates of the table.
func (s *Snapshot) candidates(ids []lease.NodeID) []*Member {
	members := make([]*Member, len(ids))
	for at, id := range ids {
		i, _ := slices.BinarySearchFunc(s.owners, id, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
		members[at] = s.owners[i]
	}
	return members
}

func (s *Snapshot) owns(p placement.Partition) bool { return s.State != nil && s.State.Owns(p) }

// weighs reports whether the table has this node with weight w. weighs also returns true if no table will
// ever have that weight, because the node is not a candidate or its weight has changed again.
func (s *Snapshot) weighs(w uint32) bool {
	return s.Self.Weight != w || s.Phase != PhaseActive || s.Self.State != lease.Active || s.placed(s.Self.ID) == w
}

// placed returns the weight of a node in the table, or 0 if the node is not a candidate.
func (s *Snapshot) placed(id lease.NodeID) uint32 {
	nodes := s.Table.Nodes()
	i, ok := slices.BinarySearchFunc(nodes, id, func(n placement.Node, id lease.NodeID) int { return cmp.Compare(n.ID, id) })
	if !ok {
		return 0
	}
	return nodes[i].Weight
}

// Stats counts what an agent has done since its start. The tags are the names in JSON, and clusterprom
// exports the counters as metrics.
type Stats struct {
	CoreStats

	PacketsSent     uint64 `json:"packets_sent"`
	PacketsReceived uint64 `json:"packets_received"`
	BytesSent       uint64 `json:"bytes_sent"`
	BytesReceived   uint64 `json:"bytes_received"`
	SendErrors      uint64 `json:"send_errors"`
	InboxDropped    uint64 `json:"inbox_dropped"` // messages dropped because they arrived faster than the loop could apply them
	GuardDropped    uint64 `json:"guard_dropped"` // packets and connections dropped because they are not from an agent
	WrongKey        uint64 `json:"wrong_key"`     // packets and connections that no key of this node decrypts; see [Agent.Rejections]
	WrongCluster    uint64 `json:"wrong_cluster"` // packets and connections that name another cluster or none
	NotAllowed      uint64 `json:"not_allowed"`   // packets and connections from a source outside Config.GossipAllow
	Requests        uint64 `json:"requests"`      // calls to [Agent.Arrived]
	Misrouted       uint64 `json:"misrouted"`     // requests, as counted by Requests, for keys that this node does not own
	Sealed          uint64 `json:"sealed"`        // messages encrypted with the current gossip key; see SealedWith
	LogDropped      uint64 `json:"log_dropped"`   // log lines lost because the handler failed or was too slow

	// Watched is the number of members that this node watches via a TCP stream, so that it notices immediately when
	// their processes end. Watchers is the number of streams via which other nodes watch this one. If Watchers is 0,
	// other nodes notice the end of this node only when its lease expires. Both are current values. Both values are
	// usually at most four, and higher during a change.
	Watched  int `json:"watched"`
	Watchers int `json:"watchers"`

	// SealedWith is the fingerprint of the key that the node encrypts with, or "" without a key: see
	// [KeyFingerprint]. Sealed counts the messages since the start of this process, separately for each key.
	// All nodes together may encrypt at most 2^32 messages with one key.
	SealedWith string `json:"sealed_with,omitempty"`

	// LatestRefusal is why this node last refused a node with other settings, with both values, and
	// LatestRefused is when. Both are zero if this node has refused none.
	LatestRefusal string    `json:"latest_refusal,omitempty"`
	LatestRefused time.Time `json:"latest_refused,omitzero"`
}

// CoreStats counts what the core of an agent has done, without its sockets.
type CoreStats struct {
	lease.Stats

	DecodeErrors      uint64 `json:"decode_errors"`  // malformed messages
	VersionErrors     uint64 `json:"version_errors"` // messages with an unknown wire version
	StaleDropped      uint64 `json:"stale_dropped"`  // messages dropped because they waited while this process was paused
	OtherCluster      uint64 `json:"other_cluster"`  // messages of another cluster with the same name and settings
	FromSelf          uint64 `json:"from_self"`      // own messages that came back because another node advertises an address of this node
	ViewChanges       uint64 `json:"view_changes"`   // changes of the set of live members
	TableChanges      uint64 `json:"table_changes"`
	AssignmentFetches uint64 `json:"assignment_fetches"` // full exchanges because another node had a different assignment
	Fences            uint64 `json:"fences"`             // how often this node released everything by itself
	NodesRefused      uint64 `json:"nodes_refused"`      // nodes refused because their settings differ
	HealthFailures    uint64 `json:"health_failures"`    // failed checks of the application and missed reports
	HandoffOverruns   uint64 `json:"handoff_overruns"`   // partitions that this node started after Config.Handoff without an answer from the old owner

	// Divergences counts how often this node started to see members with another table. DivergedTime is the
	// total time during which it saw such members, including the current divergence. Each change of the table
	// causes a short divergence. Raise an alert if [Snapshot.Diverged] remains above 0, or if DivergedTime
	// grows by more than a small share of the elapsed time.
	Divergences  uint64        `json:"divergences"`
	DivergedTime time.Duration `json:"diverged_ns"`
}

// Phase is the phase of an agent's life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲         │  ▲         ▲ │
//	   │         │  └─────────│─┤ its clock is ahead of the cluster's
//	   │         └▶ isolated ─┘ │
//	   │               ▲────────┤ too few members, a minority, or a suspected duplicate
//	   └────────────────────────┘ its own lease expired
//
// A [Hold] is not a phase. A node with a hold owns nothing in any phase, and an active node with a hold is
// shown as draining. The holds duplicate and isolated make the node isolated, and the hold clock_ahead keeps
// it in the settling phase.
type Phase uint8

// These are the phases of an agent.
const (
	PhaseJoining  = Phase(node.Joining)  // no seed has answered yet
	PhaseSettling = Phase(node.Settling) // the node is a member that owns nothing yet
	PhaseIsolated = Phase(node.Isolated) // the node owns nothing because of the hold isolated or duplicate, or it settles after such a hold
	PhaseActive   = Phase(node.Active)   // the node takes part in placement, except while it has a hold
	PhaseOver     = Phase(node.Over)     // the node has left or was closed
)

// String returns "joining", "settling", "isolated", "active" or "over".
func (p Phase) String() string { return node.Phase(p).String() }
