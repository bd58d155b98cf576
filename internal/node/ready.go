package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
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
	Debounce          time.Duration
	StartupGrace      time.Duration
	RejoinInterval    time.Duration
	GossipInterval    time.Duration
	GossipNodes       int
	PacketBytes       int // size limit of one packet

	Seeds              []string // addresses
	SeedNames          []string // have to be looked up
	Bootstrap          bool
	SlowStart          time.Duration
	MinMembers         int           // live members without which the node owns nothing
	SplitForget        time.Duration // how long a member that fell silent votes; 0 = all sides of a split continue
	StartDraining      bool
	DisableFlapDamping bool          // a node that comes and goes keeps its partitions
	Checked            bool          // the shell checks the node's application: see Checked
	Handoff            time.Duration // bound of waiting for other nodes before a partition runs; 0 = no handoff

	// Share returns a record to keep in place of an equal one. A simulation has its nodes
	// share records. Default: each node has its own.
	Share func(*lease.Record) *lease.Record

	// Compute is placement.Compute, or has the same results: the nodes of a simulation share
	// tables, too. Default: placement.Compute.
	Compute func(placement.Input) (*placement.Table, error)
}

// Ready is what the shell has to carry out, in the order of the fields.
type Ready struct {
	// Show says that the result of [Node.View] has changed.
	Show bool

	// State is the newest state, to be published to watchers; nil = unchanged.
	State *events.State

	// Stop has the partitions that State releases and whose runs the shell waits for:
	// report each by [Node.Returned], also if it has no run.
	Stop []placement.Partition

	Packets   []Packet
	Exchanges []Exchange
	Lookups   []Lookup
	Log       []Event

	// Locate has addresses of others that may not reach this node: look at the addresses of this host, and report by
	// [Node.Located] at which of them they do. nil = there is no need to.
	Locate []string

	// Watch has the nodes to which the shell holds streams from now on; nil = unchanged.
	// Report an end that was not the shell's by [Node.StreamEnded].
	Watch []Watch

	// Cluster is the identity of the cluster from now on; nil = unchanged.
	Cluster lease.ClusterID

	// Hopeless is why seeds refuse this node for good, or do not reach it, which has never been a member.
	// The node has ended itself.
	Hopeless error

	// Duplicate is the record of a later process under the id of this node. The node
	// has ended itself.
	Duplicate *lease.Record

	Next time.Time // when to call Ready again at the latest; zero = the node has ended
}

// Packet is one message for one address. Sending may fail; report success by
// [Node.Sent].
type Packet struct {
	To    string
	Bytes []byte

	lease     *OwnLease // that this packet renews; nil = none
	heartbeat time.Time // when the heartbeat in it began
}

// Exchange is a full exchange with an address. Report its end by [Node.Exchanged].
type Exchange struct {
	Addr string

	target *target // to join; nil = for an assignment
}

// Lookup is the name of seeds, whose addresses are wanted. Report them by
// [Node.Resolved].
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

// limiter bounds how often one log line repeats.
type limiter struct{ last time.Time }

// allow reports whether the line may be written now, and notes that it is.
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
	Diverged int              // live members that run another table; settling ones do not count
	Lease    *OwnLease
	Stats    Stats

	// Runners has the members that run a partition which the table gives to another one:
	// lookups name them. RunsLeft counts the partitions that run here, or are winding down
	// here, and that the table gives to others. Overdue are the partitions among them whose runs
	// were stopped, and have not returned within the bound.
	Runners  map[placement.Partition]lease.NodeID
	RunsLeft int
	Overdue  []placement.Partition

	// Holds is why the node owns nothing: see Hold. What has to be solved first comes first. A node that has left has none.
	Holds []Hold

	// Waits is why the node goes on joining after the grace; nil = there is no such reason.
	Waits error

	// Unreachable is why others do not reach this node at its advertised address; nil = it is not known.
	Unreachable error

	// StreamsAlone has the advertised addresses of nodes that try to join, by their states, which come over
	// streams: packets do not get through between them and this node both ways.
	StreamsAlone map[lease.NodeID]string

	// Fenced is why the node was fenced the last time; "" = never.
	Fenced string

	// Stale says that Table is from before that fence: the node joins again, and Live is incomplete. Gone then has the
	// nodes of which it knows that they are not live any more, and why.
	Stale bool
	Gone  map[lease.Incarnation]lease.Reason
}

// Handle returns the handle of this node, which answers watchers.
func (n *Node) Handle() lease.Handle { return n.set.Handle() }

// View returns what this node knows: O(nodes).
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

// Members yields the records of the live members, by id: O(nodes), without a View.
func (n *Node) Members(yield func(*lease.Record) bool) { n.set.Members(yield) }

// OldestLease returns the age of the oldest lease of another node: O(nodes), without a
// View.
func (n *Node) OldestLease(now time.Time) time.Duration { return n.set.OldestAge(now) }

// outdated reports whether the table is from before a fence, and so are the members that go with it. A node
// that has joined again, and is isolated, knows the members of the present.
func (t *tables) outdated() bool { return t.stale && !t.ended && t.life.phase != Isolated }

// waitsFor returns why a joining node does not go on alone; nil = there is no such reason.
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

// divergence counts how often, and for how long, a node with a table saw members with
// another one.
type divergence struct {
	members int       // that differ, as of the last count
	since   time.Time // until then divergence is counted; zero = there is none
	times   uint64
	total   time.Duration
}

// count notes how many members differ now. Without a table the node knows nothing
// about the time since the last count.
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
