package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/lease"
)

const (
	maxEvents   = 200
	maxSamples  = 180 // half an hour
	sampleEvery = 10 * time.Second
	maxAtOnce   = 20 // of events with the same kind and reason in one change
)

// EventKind is what an Event is about.
type EventKind string

// The kinds, with the fields that each sets besides At, Kind and Member.
//
// EventReady: the node takes part in placement, after its start, a fence or an isolation. If it is this node,
// the event has Members, and the number of Partitions in the table.
//
// EventReturned: a lost member is back, or a member has another Incarnation. In the second case, Reason is
// why the earlier incarnation ended.
const (
	EventStarted    EventKind = "started"    // this agent: Incarnation
	EventReady      EventKind = "ready"      // the node takes part in placement
	EventFenced     EventKind = "fenced"     // the node gave up its partitions by itself; for this node: Why, Partitions
	EventIsolated   EventKind = "isolated"   // this node owns nothing: Reason, Why, Partitions
	EventStopped    EventKind = "stopped"    // this agent: Reason "left" or "closed"
	EventJoined     EventKind = "joined"     // a new member: Incarnation, Addr
	EventReturned   EventKind = "returned"   // a member is back, or was replaced: Incarnation, Addr, Reason
	EventLost       EventKind = "lost"       // a member is no longer live: Incarnation, Reason, Partitions
	EventDraining   EventKind = "draining"   // the node begins to drain: Reason; for this node: Why
	EventUndrained  EventKind = "undrained"  // the node drains no longer
	EventCordoned   EventKind = "cordoned"   // the node owns nothing, for all members: Why
	EventUncordoned EventKind = "uncordoned" // its cordon ended
	EventWeight     EventKind = "weight"     // the node has another weight: Weight, OldWeight
	EventMoved      EventKind = "moved"      // the table changed: Moved, and how many of them this node Gained and Lost
)

// Event is one entry of a History. Fields that its kind does not set are zero.
type Event struct {
	At          time.Time // by this node's clock
	Kind        EventKind
	Member      lease.NodeID // "" = the event is about the table or several members
	Incarnation uint64
	Addr        string // where a member that joined or returned gossips
	Reason      string // of a loss: a lease.Reason; of EventIsolated and EventDraining: a Cause, if it is known
	Why         string // for people
	Members     int    // live members, or the members that the event is about
	Partitions  int    // that the node or nodes owned

	Moved, Gained, Lost int // partitions
	Weight, OldWeight   uint32
}

// Sample is the state at one moment. Moved counts from the previous sample.
type Sample struct {
	At      time.Time
	Members int   // live; 1 during a fence
	Owned   int   // partitions that this node owns
	Moved   int   // partitions that have another owner now, anywhere in the cluster
	Load    int64 // units that this node reports; 0 if it reports none
}

// History is what a node has seen since its start, oldest first: the last 200 events, and samples of the last
// half hour, one every 10 s. There are no samples of times in which the process was paused.
//
// Events are the differences between two snapshots. Events of the same difference have the same time and this
// order: members, this node, partitions. More than 20 events with the same kind and reason, such as 500
// members that crashed together, become one event, so that they don't displace all older events. It has no
// Member, but the number of them in Members and the sum of their Partitions.
type History struct {
	Events  []Event
	Samples []Sample
}

// History returns what this node has seen. It takes no lock and copies nothing. The slices are shared and
// must not be modified. It also works after the end of the agent.
func (a *Agent) History() History { return *a.history.Load() }

// history is the part of the loop that remembers. It only appends behind the ends of the slices that it has
// published, so readers need no lock.
type history struct {
	public *atomic.Pointer[History]
	all    History
	moved  int // since the last sample

	ready  bool                      // whether this node is ready
	fenced map[lease.NodeID]struct{} // other nodes that are fenced
}

// sample adds a sample if it is due, and returns when the next one is due.
func (h *history) sample(now time.Time, s *Snapshot, load int64) (due time.Time) {
	if n := len(h.all.Samples); n > 0 {
		if due = h.all.Samples[n-1].At.Add(sampleEvery); now.Before(due) {
			return due
		}
	}
	live := len(s.Members)
	if s.Fenced { // the other members are only the last known ones
		live = 1
	}
	f := Sample{At: now, Members: live, Owned: s.owned(), Moved: h.moved, Load: max(0, load)}
	h.all.Samples, h.moved = newest(append(h.all.Samples, f), maxSamples), 0
	h.publish()
	return now.Add(sampleEvery)
}

// add appends the events of one difference.
func (h *history) add(events []Event) {
	h.all.Events = newest(append(h.all.Events, summarised(events)...), maxEvents)
	h.publish()
}

func (h *history) publish() {
	h.public.Store(&History{slices.Clip(h.all.Events), slices.Clip(h.all.Samples)})
}

func newest[T any](list []T, most int) []T { return list[max(0, len(list)-most):] }

// summarised merges more than maxAtOnce events of one kind and reason.
func summarised(events []Event) []Event {
	if len(events) <= maxAtOnce {
		return events
	}
	type group struct {
		kind   EventKind
		reason string
	}
	sums := make(map[group]*Event)
	for _, e := range events {
		of := group{e.Kind, e.Reason}
		if sums[of] == nil {
			sums[of] = &Event{At: e.At, Kind: e.Kind, Reason: e.Reason}
		}
		sums[of].Members++
		sums[of].Partitions += e.Partitions
	}
	var kept []Event
	for _, e := range events {
		of := group{e.Kind, e.Reason}
		switch sum := sums[of]; {
		case sum == nil: // already merged
		case sum.Members > maxAtOnce:
			kept = append(kept, *sum)
			sums[of] = nil
		default:
			kept = append(kept, e)
		}
	}
	return kept
}
