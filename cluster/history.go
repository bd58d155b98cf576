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
	maxAtOnce   = 20 // events with the same kind and reason in one change
)

// EventKind is the kind of an Event. Package affinity has further kinds, for the store and for rooms.
type EventKind string

// These are the kinds of events. Each comment lists the fields that an event of this kind sets, besides At,
// Kind and Member.
//
// EventReady: the node takes part in placement after its start, a fence or an isolation. If the event is
// about this node, Members is the number of members, and Partitions is the number of partitions that it owns
// in the table.
//
// EventReturned: a lost member has returned, or a member has another Incarnation. If the incarnation changed,
// Reason is why the earlier incarnation ended.
const (
	EventStarted    EventKind = "started"    // this agent started: Incarnation
	EventReady      EventKind = "ready"      // the node takes part in placement
	EventFenced     EventKind = "fenced"     // the node released its partitions by itself; for this node: Why, Partitions
	EventIsolated   EventKind = "isolated"   // this node owns nothing: Reason, Why, Partitions
	EventStopped    EventKind = "stopped"    // this agent stopped: Reason is "left" or "closed"
	EventJoined     EventKind = "joined"     // a new member: Incarnation, Addr
	EventReturned   EventKind = "returned"   // a member has returned or was replaced: Incarnation, Addr, Reason
	EventLost       EventKind = "lost"       // a member is no longer live: Incarnation, Reason, Partitions
	EventDraining   EventKind = "draining"   // the node started to drain: Reason; for this node: Why
	EventUndrained  EventKind = "undrained"  // the node stopped draining
	EventCordoned   EventKind = "cordoned"   // all members treat the node as cordoned, so it owns nothing: Why
	EventUncordoned EventKind = "uncordoned" // the node's cordon ended
	EventWeight     EventKind = "weight"     // the node has another weight: Weight, OldWeight
	EventMoved      EventKind = "moved"      // the table changed: Moved, and how many partitions this node Gained and Lost
)

// Event is an entry of a History. Fields that are not set by the kind of the event are zero.
type Event struct {
	At          time.Time // according to this node's clock
	Kind        EventKind
	Member      lease.NodeID // empty if the event is about the table or about several members
	Incarnation uint64
	Addr        string // gossip address of a member that joined or returned
	OldAddr     string // gossip address of the incarnation that a member replaced, if it differs from Addr
	Reason      string // a lease.Reason for a loss; a Cause, if known, for EventIsolated and EventDraining
	Why         string // an explanation for people
	Members     int    // number of live members, or of members that the event is about
	Partitions  int    // number of partitions that the node or nodes owned

	Moved, Gained, Lost int // numbers of partitions
	Weight, OldWeight   uint32

	// Only the kinds of package affinity set these fields.
	Rooms  int           // number of rooms
	Lasted time.Duration // time from At to the last room, or how long an outage lasted
}

// Sample is the state of the cluster at one time.
type Sample struct {
	At      time.Time
	Members int   // number of live members; 1 while this node is fenced
	Owned   int   // number of partitions that this node owns
	Moved   int   // number of partitions in the whole cluster that changed their owner since the previous sample
	Load    int64 // units of load that this node reports; 0 if it reports no load
}

// History is what a node has seen since its start, oldest first. A History contains the last 200 events, and
// samples of the last half hour, one every 10 s. There are no samples for times when the process was paused.
//
// Events are the differences between two snapshots. Events of the same difference have the same time, and are
// ordered: members first, then this node, then partitions. If more than 20 events have the same kind and
// reason, for example if 500 members crash together, History merges them into one event, so that they don't
// displace all older events. The merged event has no Member. In this event, Members is the number of members,
// and Partitions is the sum of their partitions.
type History struct {
	Events  []Event
	Samples []Sample
}

// History returns what this node has seen. History takes no lock and copies nothing. The slices are shared
// and must not be modified. You can also call History after the agent has stopped.
func (a *Agent) History() History { return *a.history.Load() }

// history is the part of the loop that stores events and samples. The loop only appends to the slices that it
// has published, so readers need no lock.
type history struct {
	public *atomic.Pointer[History]
	all    History
	moved  int // partitions moved since the last sample

	ready  bool                      // whether this node is ready
	fenced map[lease.NodeID]struct{} // other nodes that are fenced
}

// sample adds a sample if one is due, and returns when the next sample is due.
func (h *history) sample(now time.Time, s *Snapshot, load int64) (due time.Time) {
	if n := len(h.all.Samples); n > 0 {
		if due = h.all.Samples[n-1].At.Add(sampleEvery); now.Before(due) {
			return due
		}
	}
	live := len(s.Members)
	if s.Fenced { // a fenced node only knows the other members from before the fence
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

// summarised merges more than maxAtOnce events with the same kind and reason into one event.
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
