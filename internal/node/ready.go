package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Config configures a node. Every field must be set, except those in the last group. The corresponding fields
// of cluster.Config have documentation and defaults.
type Config struct {
	Self       lease.Record // the first record of this node
	Settings   uint32       // hash of the settings that all nodes share
	Partitions int
	Strategy   placement.Strategy

	HeartbeatInterval time.Duration
	LeaseTTL          time.Duration
	MaxSkew           time.Duration
	Debounce          time.Duration
	StartupGrace      time.Duration
	RejoinInterval    time.Duration
	GossipInterval    time.Duration
	GossipNodes       int
	PacketBytes       int // size limit of one packet

	Seeds              []string // addresses
	SeedNames          []string // names that have to be looked up
	Bootstrap          bool
	SlowStart          time.Duration
	AutoWeight         bool          // the weight follows the load
	MinMembers         int           // fewest live members with which the node owns anything
	SplitForget        time.Duration // how long a silent member counts as a voter; 0 = all sides of a split continue
	StartDraining      bool
	DisableFlapDamping bool          // a flapping node keeps its partitions
	Checked            bool          // the shell checks the node's application: see Checked
	Handoff            time.Duration // maximum wait for other nodes before a partition runs; 0 = no handoff

	// Share returns an existing record that is equal to its argument, if there is one, so that the nodes of a
	// simulation can share records. Default: each node has its own records.
	Share func(*lease.Record) *lease.Record

	// Compute replaces placement.Compute with a function that returns the same results, so that the nodes of
	// a simulation can share tables. Default: placement.Compute.
	Compute func(placement.Input) (*placement.Table, error)
}

// Ready is the work that the shell must carry out, in the order of the fields.
type Ready struct {
	// Show reports that the result of [Node.View] has changed.
	Show bool

	// State is the newest state, which the shell must publish to watchers. nil means that it has not changed.
	State *events.State

	// Stop lists the partitions that State releases and whose runs the shell must wait for. The shell must
	// report each partition with [Node.Returned], even if it has no run.
	Stop []placement.Partition

	Packets   []Packet
	Exchanges []Exchange
	Lookups   []Lookup
	Log       []Event

	// Locate contains addresses of other nodes that may not be able to reach this node. The shell must check
	// the addresses of this host, and report with [Node.Located] which of them the other nodes can reach. nil
	// means that no check is needed.
	Locate []string

	// Watch lists the nodes to which the shell must keep streams open from now on. nil means that the list
	// has not changed. If a stream ends that the shell did not close, the shell must report it with
	// [Node.StreamEnded].
	Watch []Watch

	// Cluster is the new identity of the cluster. nil means that it has not changed.
	Cluster lease.ClusterID

	// Hopeless is the reason why seeds permanently refuse this node or cannot reach it. If Hopeless is set,
	// the node has never been a member and has ended.
	Hopeless error

	// Duplicate is the record of a later process with the id of this node. If Duplicate is set, this node has
	// ended.
	Duplicate *lease.Record

	Next time.Time // when to call Ready again at the latest; zero = the node has ended
}

// Packet is a message and its destination address. Sending may fail. Report a successful send with
// [Node.Sent].
type Packet struct {
	To    string
	Bytes []byte

	lease     *OwnLease // lease that this packet extends; nil = none
	heartbeat time.Time // when the heartbeat in the packet began
}

// Exchange is a full exchange with an address. Report with [Node.Exchanged] when the exchange has finished.
type Exchange struct {
	Addr string

	target *target // target of a join; nil = for an assignment
}

// Lookup is a seed name to resolve. Report the addresses with [Node.Resolved].
type Lookup struct {
	Name    string
	Timeout time.Duration

	target *target
}

// Event is a log line: a fixed message and alternating keys and values.
type Event struct {
	Level   Level
	Message string
	Attrs   []any
}

// Level is the severity of an Event, with the values of log/slog.
type Level int

// The levels.
const (
	Debug Level = -4
	Info  Level = 0
	Warn  Level = 4
	Error Level = 8
)

func (n *Node) log(level Level, message string, attrs ...any) {
	n.out.Log = append(n.out.Log, Event{level, message, attrs})
}

// limiter limits how often a log line is repeated.
type limiter struct{ last time.Time }

// allow reports whether the line may be written now. If so, it records the time.
func (l *limiter) allow(now time.Time, every time.Duration) bool {
	if !l.last.IsZero() && now.Sub(l.last) < every {
		return false
	}
	l.last = now
	return true
}

// View is a snapshot of what a node knows. It is immutable.
type View struct {
	Phase    Phase
	Ended    bool
	Live     *lease.View
	Table    *placement.Table // nil before the first table and after the end
	State    *events.State    // nil before the first table
	Diverged int              // live members that have another table; settling members do not count
	Lease    *OwnLease
	Stats    Stats

	// Runners maps each partition that runs on a different member than Table specifies to that member. Lookups return
	// that member. RunsLeft counts the partitions that are running or stopping here although Table assigns them to
	// other members. Overdue lists the partitions among these whose runs were stopped but have not returned in time.
	Runners  map[placement.Partition]lease.NodeID
	RunsLeft int
	Overdue  []placement.Partition

	// Holds lists why the node owns nothing, in the order in which the causes should be resolved: see Hold. A
	// node that has left has no holds.
	Holds []Hold

	// Waits is the reason why the node is still joining after the grace period. nil means that there is none.
	Waits error

	// Unreachable is the reason why other nodes cannot reach this node at its advertised address. nil means
	// that no reason is known.
	Unreachable error

	// StreamsAlone contains the advertised addresses of nodes that are trying to join. The states of these
	// nodes arrive over streams, but packets between them and this node are lost in at least one direction.
	StreamsAlone map[lease.NodeID]string

	// Fenced is the reason why the node was last fenced. "" means that it has never been fenced.
	Fenced string

	// Stale reports that Table is from before that fence, because the node is rejoining, and that Live is
	// incomplete. In this case, Gone contains the nodes that are known to be no longer live, and the reason
	// for each.
	Stale bool
	Gone  map[lease.Incarnation]lease.Reason
}

// Handle returns the handle of this node, with which the node replies to its watchers.
func (n *Node) Handle() lease.Handle { return n.set.Handle() }

// View returns the current knowledge of the node. It costs O(nodes).
func (n *Node) View() View {
	v := n.Glance()
	v.Live = n.set.View()
	if v.Phase != Over {
		v.Holds = n.cordons.hold(v.Live, n.life.holds).list()
	}
	if v.Stale {
		v.Gone = n.set.Ended()
	}
	if v.Phase != Joining { // otherwise packets do not reach this node
		v.StreamsAlone = n.waiting.streamsAlone(v.Live)
	}
	return v
}

// Glance returns a View without Live and Holds.
func (n *Node) Glance() View {
	v := View{
		Phase:       n.life.phase,
		Ended:       n.ended,
		Stale:       n.tables.outdated(),
		State:       n.tables.state,
		Unreachable: n.address.reason,
		Fenced:      n.tables.fenced,
		Diverged:    n.tables.divergence.members,
		Lease:       n.lease,
		Stats:       n.stats,
		Waits:       n.waitsFor(),
		Runners:     n.handing.otherRunners(),
		RunsLeft:    n.handing.state.Holds(),
		Overdue:     n.handing.overdueRuns(),
	}
	if !n.ended {
		v.Table = n.tables.table
	}
	v.Stats.Stats = n.set.Stats()
	v.Stats.Divergences, v.Stats.DivergedTime = n.tables.divergence.times, n.tables.divergence.total
	return v
}

// Members yields the records of the live members, sorted by id. It costs O(nodes), but does not need a View.
func (n *Node) Members(yield func(*lease.Record) bool) { n.set.Members(yield) }

// OldestLease returns the age of the oldest lease of another node. It costs O(nodes), but does not need a
// View.
func (n *Node) OldestLease(now time.Time) time.Duration { return n.set.OldestAge(now) }

// outdated reports whether the table and its members are from before a fence. An isolated node that has
// rejoined knows the current members, so its table is not considered outdated.
func (t *tables) outdated() bool { return t.stale && !t.ended && t.life.phase != Isolated }

// waitsFor returns why a joining node does not continue alone, or nil if there is no such reason.
func (n *Node) waitsFor() error {
	if err := n.reach.whyOneWay(); err != nil {
		return err
	}
	if n.life.phase == Joining && n.address.reason != nil {
		return fmt.Errorf("others do not reach it: %w", n.address.reason)
	}
	if i := slices.IndexFunc(n.join.targets, (*target).stuck); i >= 0 && n.life.phase == Joining {
		return fmt.Errorf("a seed accepts connections but does not answer: %w", n.join.targets[i].err)
	}
	return nil
}

// divergence counts how often and for how long this node, while it had a table, saw members with a different
// table.
type divergence struct {
	members int       // number of members that differed at the last count
	since   time.Time // time up to which divergence has been counted; zero = no divergence
	times   uint64
	total   time.Duration
}

// count records how many members have a different table now. If this node has no table, the time since the
// last call is not counted.
func (d *divergence) count(now time.Time, hasTable bool, members int) {
	d.members = members
	diverging, did := hasTable && members > 0, !d.since.IsZero()
	switch {
	case diverging && !did:
		d.times++
	case did && hasTable:
		d.total += now.Sub(d.since)
	}
	d.since = time.Time{}
	if diverging {
		d.since = now
	}
}
