package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Config configures a node. Every field must be set, except in the last group. cluster.Config documents them
// and has their defaults.
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
	MinMembers         int           // fewest live members with which the node owns anything
	SplitForget        time.Duration // how long a silent member counts as a voter; 0 = all sides of a split continue
	StartDraining      bool
	DisableFlapDamping bool          // a node that comes and goes keeps its partitions
	Checked            bool          // the shell checks the node's application: see Checked
	Handoff            time.Duration // maximum wait for other nodes before a partition runs; 0 = no handoff

	// Share returns a record to keep instead of an equal one, so that the nodes of a simulation can share
	// records. Default: each node has its own.
	Share func(*lease.Record) *lease.Record

	// Compute is placement.Compute, or a function with the same results, so that the nodes of a simulation
	// can share tables. Default: placement.Compute.
	Compute func(placement.Input) (*placement.Table, error)
}

// Ready is what the shell must carry out, in the order of the fields.
type Ready struct {
	// Show says that the result of [Node.View] has changed.
	Show bool

	// State is the newest state, which the shell must publish to watchers; nil = unchanged.
	State *events.State

	// Stop has the partitions that State releases and whose runs the shell must wait for. Report each with
	// [Node.Returned], even if it has no run.
	Stop []placement.Partition

	Packets   []Packet
	Exchanges []Exchange
	Lookups   []Lookup
	Log       []Event

	// Locate has addresses of others that may not reach this node. Check the addresses of this host, and
	// report with [Node.Located] at which of them the others reach it. nil = there is no need to.
	Locate []string

	// Watch has the nodes to which the shell must hold streams from now on; nil = unchanged. If a stream ends
	// that the shell did not close, report it with [Node.StreamEnded].
	Watch []Watch

	// Cluster is the identity of the cluster from now on; nil = unchanged.
	Cluster lease.ClusterID

	// Hopeless is why seeds permanently refuse this node, or cannot reach it. The node has never been a
	// member and has ended itself.
	Hopeless error

	// Duplicate is the record of a later process under the id of this node. The node
	// has ended itself.
	Duplicate *lease.Record

	Next time.Time // when to call Ready again at the latest; zero = the node has ended
}

// Packet is a message for an address. Sending may fail. Report success with [Node.Sent].
type Packet struct {
	To    string
	Bytes []byte

	lease     *OwnLease // lease that this packet renews; nil = none
	heartbeat time.Time // when the heartbeat in it began
}

// Exchange is a full exchange with an address. Report its end with [Node.Exchanged].
type Exchange struct {
	Addr string

	target *target // target of a join; nil = for an assignment
}

// Lookup is a name of seeds to look up. Report the addresses with [Node.Resolved].
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

// allow reports whether the line may be written now, and if so, notes that it is.
func (l *limiter) allow(now time.Time, every time.Duration) bool {
	if !l.last.IsZero() && now.Sub(l.last) < every {
		return false
	}
	l.last = now
	return true
}

// View is what a node knows at one moment. It is immutable.
type View struct {
	Phase    Phase
	Ended    bool
	Live     *lease.View
	Table    *placement.Table // nil before the first table and after the end
	State    *events.State    // nil before the first table
	Diverged int              // live members that have another table; settling members do not count
	Lease    *OwnLease
	Stats    Stats

	// Runners has the members that run a partition which the table gives to another member. Lookups return
	// them. RunsLeft counts the partitions that run or wind down here although the table gives them to
	// others. Overdue are those of them whose runs were stopped and have not returned in time.
	Runners  map[placement.Partition]lease.NodeID
	RunsLeft int
	Overdue  []placement.Partition

	// Holds is why the node owns nothing, in the order in which to solve the causes: see Hold. A node that
	// has left has none.
	Holds []Hold

	// Waits is why the node is still joining after the grace. It is nil if there is no such reason.
	Waits error

	// Unreachable is why others do not reach this node at its advertised address. It is nil if no reason is
	// known.
	Unreachable error

	// StreamsAlone has the advertised addresses of nodes that try to join and whose states come over streams,
	// but between which and this node packets do not get through both ways.
	StreamsAlone map[lease.NodeID]string

	// Fenced is why the node was last fenced; "" = never.
	Fenced string

	// Stale says that Table is from before that fence, because the node is joining again, and that Live is
	// incomplete. Gone then has the nodes that are known to be no longer live, and why.
	Stale bool
	Gone  map[lease.Incarnation]lease.Reason
}

// Handle returns the handle of this node, which answers watchers.
func (n *Node) Handle() lease.Handle { return n.set.Handle() }

// View returns what this node knows. It costs O(nodes).
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

// Members yields the records of the live members, sorted by id. It costs O(nodes) and needs no View.
func (n *Node) Members(yield func(*lease.Record) bool) { n.set.Members(yield) }

// OldestLease returns the age of the oldest lease of another node. It costs O(nodes) and needs no View.
func (n *Node) OldestLease(now time.Time) time.Duration { return n.set.OldestAge(now) }

// outdated reports whether the table and its members are from before a fence. A node that has joined again
// but is isolated knows the present members.
func (t *tables) outdated() bool { return t.stale && !t.ended && t.life.phase != Isolated }

// waitsFor returns why a joining node does not continue alone, or nil.
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

// divergence counts how often and for how long a node with a table saw members with another table.
type divergence struct {
	members int       // number of members that differed at the last count
	since   time.Time // time up to which divergence is counted; zero = there is none
	times   uint64
	total   time.Duration
}

// count notes how many members differ now. Without a table, the node does not know about the time since the
// last count.
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
