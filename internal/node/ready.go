package node

import (
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

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

	// Watch has the nodes to which the shell holds streams from now on; nil = unchanged.
	// Report an end that was not the shell's by [Node.StreamEnded].
	Watch []Watch

	// Hopeless is why seeds refuse this node for good, which has never been a member.
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

	lease *OwnLease // that this packet renews; nil = none
	beat  time.Time // when the heartbeat in it began
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

// send adds a packet to the next Ready.
func (n *Node) send(p Packet) {
	if p.To != "" {
		n.out.Packets = append(n.out.Packets, p)
	}
}
