package affinity

import (
	"fmt"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Assignment describes where a room lives.
type Assignment struct {
	Room              string
	Partition         placement.Partition
	lease.Incarnation        // the node where the room lives
	Epoch             uint64 // grows with each move of the room, for fencing; 0 if degraded
	Source            Source
	Reason            string // for people

	// Member is the room's node as last known here. After that node has left or died, Member remains
	// available for a PinTTL with State Left, because it can take a while until the room gets a new node.
	// Member is only nil if Node is empty. If this node has never met the room's node, Member only has the ID
	// and the incarnation.
	Member *cluster.Member
}

// String returns where the room lives and the reason.
func (a Assignment) String() string {
	return fmt.Sprintf("%q on %s (epoch %d, %s): %s", a.Room, a.Incarnation, a.Epoch, a.Source, a.Reason)
}

// Directive returns what to send to a client of the room. Its Addr is the APIAddr of the node. If this node
// has never met that node, Addr is empty, and the client must ask again.
func (a Assignment) Directive() reconnect.Directive {
	return reconnect.Directive{Room: a.Room, To: a.Node, Addr: apiAddr(a.Member), Reason: a.Reason, Epoch: a.Epoch}
}

// apiAddr returns where clients reach the application of a node; m may be nil.
func apiAddr(m *cluster.Member) string {
	if m == nil {
		return ""
	}
	return m.APIAddr
}

// Source is the origin of an assignment.
type Source uint8

// The sources, in the order in which Resolve tries them.
const (
	Cached   Source = iota + 1 // from a cached pin, without a round trip
	Pinned                     // from a pin in the store
	Hash                       // pinned now, to the owner of the room's partition
	Override                   // pinned now, to another node that has headroom
	Degraded                   // the store did not answer: the best guess of this node
)

// String returns "cached", "pinned", "hash", "override" or "degraded".
func (s Source) String() string {
	switch s {
	case Cached:
		return "cached"
	case Pinned:
		return "pinned"
	case Hash:
		return "hash"
	case Override:
		return "override"
	case Degraded:
		return "degraded"
	}
	return fmt.Sprintf("source %d", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Source) UnmarshalText(b []byte) error {
	for source := Cached; source <= Degraded; source++ {
		if source.String() == string(b) {
			*s = source
			return nil
		}
	}
	return fmt.Errorf("affinity: no source %.20q", b)
}

// met contains the members that this node has recently met, because pins may name a member after it is gone.
type met struct {
	mu      sync.Mutex
	members map[lease.NodeID]metMember
}

type metMember struct {
	*cluster.Member
	last time.Time
	gone bool
}

// note adds the current members, and removes members that have been gone for longer than keep.
func (m *met) note(s *cluster.Snapshot, now time.Time, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.members == nil {
		m.members = make(map[lease.NodeID]metMember)
	}
	for _, member := range s.Members {
		m.members[member.ID] = metMember{Member: member, last: now}
	}
	for id, member := range m.members {
		switch since := now.Sub(member.last); {
		case since > keep:
			delete(m.members, id)
		case since > 0 && !member.gone: // a copy, because the members of a snapshot share one allocation
			last := *member.Member
			m.members[id] = metMember{&last, member.last, true}
		}
	}
}

// member returns the node of an incarnation. If the node is gone, member returns the node as last known, with
// State Left.
func (m *met) member(s *cluster.Snapshot, at lease.Incarnation) *cluster.Member {
	if member, ok := s.Member(at.Node); ok {
		return member
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if gone, ok := m.members[at.Node]; ok {
		known := *gone.Member
		known.State = lease.Left
		return &known
	}
	return &cluster.Member{Profile: lease.Profile{ID: at.Node, Incarnation: at.Number}, State: lease.Left}
}

// assign returns an assignment with its partition and member filled in.
func (r *Resolver) assign(s *cluster.Snapshot, room string, pin pinstore.Pin, source Source, reason string) Assignment {
	return Assignment{
		Room: room, Partition: placement.Of(room, s.Table.Partitions()), Incarnation: pin.Incarnation, Epoch: pin.Epoch,
		Source: source, Reason: reason, Member: r.met.member(s, pin.Incarnation),
	}
}
