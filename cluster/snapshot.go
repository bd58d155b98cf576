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

// Member is what a snapshot knows of one live node. All readers share one Member,
// which must not be modified.
type Member struct {
	lease.Profile

	State lease.State // Draining also while the member is cordoned, flapping or unhealthy
	Load  int64       // units of load in its latest heartbeat; lease.NoLoad if it reports none
	Meta  string      // of its application, any bytes; it changes only with a new incarnation

	ClockOffset time.Duration // its wall clock minus ours, network delay included
	TableDigest uint32        // identifies its table, see InSync; 0 = no table yet

	// FlappingUntil is until when the member drains, by this node's clock, because it came and went
	// too often; see Config.DisableFlapDamping. Zero: it is not flapping.
	FlappingUntil time.Time

	// Drains is since when this node sees the member drain, for any reason but a cordon; zero: it does not.
	Drains time.Time

	keys     string // fingerprints
	http     uint32 // as in a record
	renewed  time.Time
	cordoned bool // it would be active
}

// Age returns how old the member's lease is, by the monotonic clock: math.MaxInt64 for a node that this one has
// never met, as in a room that is pinned to such a node.
func (m *Member) Age() time.Duration {
	if m.renewed.IsZero() {
		return math.MaxInt64
	}
	return time.Since(m.renewed)
}

// Has reports whether m has a label with that value. Its zone counts as the label "zone", unless it has such a label.
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
		renewed:     m.Renewed.Add(-clockOffset),
		cordoned:    m.Cordoned,
	}
	if m.FlappingUntil > 0 {
		member.FlappingUntil = v.Local(m.FlappingUntil).Add(-clockOffset)
	}
	return member
}

// Snapshot is the knowledge of a node at one moment. It is immutable.
type Snapshot struct {
	Self    *Member
	Members []*Member        // live, sorted by id, this node among them; see Fenced
	Table   *placement.Table // nil until the node is ready, and once it is closed; see Stale
	State   *events.State    // the partitions that the node owns; nil until the node is ready
	Stats   Stats

	// Crashed are incarnations whose processes have ended within the last TTL or so, by
	// confirmation: their members are gone, and not merely out of reach.
	Crashed []lease.Incarnation

	// Left are incarnations that have left in order, by their own word ([Agent.Leave]), for a minute, or for
	// ten LeaseTTLs if those are longer. A node that was not a member at the time does not know of it.
	Left []lease.Incarnation

	// Ahead has the nodes whose heartbeats this node rejects, since their clocks are more than Config.MaxSkew
	// ahead of the cluster's. They are no members, or will be none soon.
	Ahead map[lease.NodeID]time.Duration

	// StreamsAlone has the advertised addresses of nodes that try to join, by their states, which TCP
	// connections bring: UDP packets do not get through between them and this node both ways. Nodes that own
	// on another side of a split are not among them.
	StreamsAlone map[lease.NodeID]string

	// Phase is where this node is in its life.
	Phase Phase

	// Fenced says that this node's own lease expired, because the process was paused or could not send. It
	// owns nothing until it has joined again and computed a table, usually within a second. Until then Table
	// and Members are what it knew before, without the members of which it hears that they have left or
	// crashed.
	Fenced bool

	// Waits is why the node goes on joining after StartupGrace: a seed accepts connections
	// but does not answer, or members answer over TCP but not over UDP. nil = there is no
	// such reason.
	Waits error

	// Unreachable is why other nodes cannot reach this one at its advertised address, such as that the host
	// has lost the address; nil = it is not known. The node looks while others do not answer it.
	Unreachable error

	// Holds is why this node owns nothing, in the order in which the causes are to be solved; nil = there is no
	// such reason. A node that is joining, settling or of weight 0 owns nothing, either.
	Holds []Hold

	// Cordons are the ones in force, by id, also of nodes that are not members at present.
	// An active member shows as Draining while it is cordoned. Spared says that cordons
	// have no effect: no other member could own anything.
	Cordons []Cordon
	Spared  bool

	why        error // for a key without owner
	lease      *node.OwnLease
	owners     []*Member // by index into Table.Nodes()
	parting    []*Member // of State, and not live any more; by id
	lost       []Lost    // the latest first
	digest     uint32    // of the agent's table, as heartbeats carry it
	divergence int
	runsLeft   int                   // partitions that run here and that the table gives to others
	overdue    []placement.Partition // of them, whose runs were told to end, and have not within Config.Handoff

	// runners has the members that run a partition which the table gives to another one.
	runners map[placement.Partition]*Member
}

// Member returns the live member of that id, and false if there is none: O(log members).
func (s *Snapshot) Member(id lease.NodeID) (*Member, bool) {
	i, ok := slices.BinarySearchFunc(s.Members, id, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
	if !ok {
		return nil, false
	}
	return s.Members[i], true
}

// Version counts the changes that this node has seen; 0 before it is ready.
func (s *Snapshot) Version() uint64 {
	if s.State == nil {
		return 0
	}
	return s.State.Version
}

// Digest identifies the table: nodes with equal digests agree on every owner.
func (s *Snapshot) Digest() placement.Digest { return s.Table.Digest() }

// Diverged returns how many live members run another table than this node, by their
// latest heartbeats. Settling members do not count.
func (s *Snapshot) Diverged() int { return s.divergence }

// InSync reports whether m runs the same table as this node, for the same reasons,
// by its latest heartbeat.
func (s *Snapshot) InSync(m *Member) bool {
	return s.Table != nil && m.TableDigest == s.digest
}

// Stale reports whether Table may be out of date, because this node is isolated or fenced: lookups answer by
// its last table, which may give this node partitions that it does not own. IsOwner is right in any case.
func (s *Snapshot) Stale() bool { return s.Fenced || s.Phase == PhaseIsolated }

// Converged reports whether this node is ready, is neither isolated nor fenced, and all live members run
// its table.
func (s *Snapshot) Converged() bool {
	return s.Table != nil && s.divergence == 0 && !s.Stale()
}

// Place returns the owner of key. It fails with ErrNotReady, ErrNoMembers or
// ErrClosed.
func (s *Snapshot) Place(key string) (*Member, error) {
	if m, ok := s.OwnerOf(placement.Of(key, s.Table.Partitions())); ok {
		return m, nil
	}
	return nil, s.why
}

// OwnerOf returns the owner of p, and false if it has none. With handoff, the owner is the
// member that runs p, as far as this node knows, until the member of the table does.
func (s *Snapshot) OwnerOf(p placement.Partition) (*Member, bool) {
	if len(s.runners) > 0 {
		if m := s.runners[p]; m != nil {
			return m, true
		}
	}
	return s.NextOwnerOf(p)
}

// NextOwnerOf returns the member that the table names for p, and false if there is none. It
// is the owner, or with handoff the member that takes p over.
func (s *Snapshot) NextOwnerOf(p placement.Partition) (*Member, bool) {
	if i := s.Table.OwnerIndex(p); i >= 0 {
		return s.owners[i], true
	}
	return nil, false
}

// Runners returns the members that run a partition which the table gives to another one, with
// handoff. The map is shared and must not be modified; it is nil most of the time.
func (s *Snapshot) Runners() map[placement.Partition]*Member { return s.runners }

// Owners returns the n best nodes for key, distinct, the owner by the table first.
func (s *Snapshot) Owners(key string, n int) []*Member {
	var few [3]int // the usual number, without an allocation
	ranked := s.Table.AppendRank(few[:0], placement.Of(key, s.Table.Partitions()), n)
	members := make([]*Member, len(ranked))
	for at, i := range ranked {
		members[at] = s.owners[i]
	}
	return members
}

// OwnersNear returns the members of Owners, those of a zone first: for readers that take any of n replicas.
func (s *Snapshot) OwnersNear(key string, n int, zone string) []*Member {
	return s.candidates(s.Table.RankNear(placement.Of(key, s.Table.Partitions()), n, zone))
}

// Subset returns the n members of a tenant; see placement.Table.Subset.
func (s *Snapshot) Subset(tenant string, n int) []*Member {
	return s.candidates(s.Table.Subset(tenant, n))
}

// candidates returns candidates of the table.
func (s *Snapshot) candidates(ids []lease.NodeID) []*Member {
	members := make([]*Member, len(ids))
	for at, id := range ids {
		i, _ := slices.BinarySearchFunc(s.owners, id, func(m *Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
		members[at] = s.owners[i]
	}
	return members
}

func (s *Snapshot) owns(p placement.Partition) bool { return s.State != nil && s.State.Owns(p) }

// weighs reports whether the table has this node with weight w. It is also true where
// no table will: the node is no candidate, or its weight was changed again.
func (s *Snapshot) weighs(w uint32) bool {
	return s.Self.Weight != w || s.Phase != PhaseActive || s.Self.State != lease.Active || s.placed(s.Self.ID) == w
}

// placed returns the weight of a node in the table; 0 if it is no candidate.
func (s *Snapshot) placed(id lease.NodeID) uint32 {
	nodes := s.Table.Nodes()
	i, ok := slices.BinarySearchFunc(nodes, id, func(n placement.Node, id lease.NodeID) int { return cmp.Compare(n.ID, id) })
	if !ok {
		return 0
	}
	return nodes[i].Weight
}

// Stats counts what an agent did since it was started. Each counter is described here, with its name in JSON;
// clusterprom has its metric.
type Stats struct {
	CoreStats

	PacketsSent     uint64 `json:"packets_sent"`
	PacketsReceived uint64 `json:"packets_received"`
	BytesSent       uint64 `json:"bytes_sent"`
	BytesReceived   uint64 `json:"bytes_received"`
	SendErrors      uint64 `json:"send_errors"`
	InboxDropped    uint64 `json:"inbox_dropped"` // messages that arrived faster than they were applied
	GuardDropped    uint64 `json:"guard_dropped"` // packets and connections that no agent sends
	WrongKey        uint64 `json:"wrong_key"`     // packets and connections that no key of this node opens; see [Agent.Rejections]
	WrongCluster    uint64 `json:"wrong_cluster"` // of another cluster's name, or of none
	NotAllowed      uint64 `json:"not_allowed"`   // of a source outside Config.GossipAllow
	Requests        uint64 `json:"requests"`      // calls of [Agent.Arrived]
	Misrouted       uint64 `json:"misrouted"`     // of these, requests for keys of other nodes
	Sealed          uint64 `json:"sealed"`        // messages sealed with the gossip key in use, see SealedWith
	LogDropped      uint64 `json:"log_dropped"`   // log lines that were not written: the handler fails, or is too slow

	// Watched is the number of members whose end this node would learn of at once, by a
	// TCP stream to each. Watchers is the number of streams by which others would learn
	// of the end of this node: 0 means that they wait for its lease. Both are of the
	// moment, with up to four each, and more during a change.
	Watched  int `json:"watched"`
	Watchers int `json:"watchers"`

	// SealedWith is the fingerprint of the key that seals, "" without one: see [KeyFingerprint]. Sealed
	// counts since the start of this process, for each key by itself. All nodes together may seal 2^32
	// messages with one key.
	SealedWith string `json:"sealed_with,omitempty"`
}

// CoreStats counts what the core of an agent did, without its sockets.
type CoreStats struct {
	lease.Stats

	DecodeErrors      uint64 `json:"decode_errors"`  // malformed messages
	VersionErrors     uint64 `json:"version_errors"` // messages of an unknown wire version
	StaleDropped      uint64 `json:"stale_dropped"`  // messages queued while this process was paused
	OtherCluster      uint64 `json:"other_cluster"`  // messages of another cluster with the same name and settings
	FromSelf          uint64 `json:"from_self"`      // own messages that came back: others advertise an address that leads here
	ViewChanges       uint64 `json:"view_changes"`   // of the live set
	TableChanges      uint64 `json:"table_changes"`
	AssignmentFetches uint64 `json:"assignment_fetches"` // exchanges because another node's assignment differed
	Fences            uint64 `json:"fences"`             // times this node released everything by itself
	NodesRefused      uint64 `json:"nodes_refused"`      // with other settings
	HealthFailures    uint64 `json:"health_failures"`    // failed checks of the application, and late reports
	HandoffOverruns   uint64 `json:"handoff_overruns"`   // partitions that this node ran without the answer of another one, after Config.Handoff

	// Divergences counts how often this node, having a table, began to see members with
	// another one. DivergedTime is the total time in which it saw some, up to now. Each
	// change of the table brings a moment of divergence. An alarm is due when
	// [Snapshot.Diverged] stays above 0, or DivergedTime grows by more than a small share
	// of the time.
	Divergences  uint64        `json:"divergences"`
	DivergedTime time.Duration `json:"diverged_ns"`
}

// Phase is where an agent is in its life:
//
//	joining ──▶ settling ──▶ active ──▶ over
//	   ▲         │  ▲         ▲ │
//	   │         │  └─────────│─┤ its clock is ahead of the cluster's
//	   │         └▶ isolated ─┘ │
//	   │               ▲────────┤ too few members, a minority, or a suspected duplicate
//	   └────────────────────────┘ its own lease expired
//
// A [Hold] is not a phase. A node with a hold owns nothing in any phase, and an active node then shows as draining. The
// holds duplicate and isolated make it isolated, and the hold clock_ahead keeps it settling.
type Phase uint8

// The phases.
const (
	PhaseJoining  = Phase(node.Joining)  // no seed has answered yet
	PhaseSettling = Phase(node.Settling) // a member that owns nothing yet
	PhaseIsolated = Phase(node.Isolated) // owns nothing by the hold isolated or duplicate, or settles after that
	PhaseActive   = Phase(node.Active)   // takes part in placement, except while it has a hold
	PhaseOver     = Phase(node.Over)     // left or closed
)

// String returns "joining", "settling", "isolated", "active" or "over".
func (p Phase) String() string { return node.Phase(p).String() }
