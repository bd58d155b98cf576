package affinity

import (
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

const (
	maxEvents = 200
	maxNodes  = 20               // nodes with events of their own at the same time, for each kind and reason
	maxGap    = 30 * time.Second // between two rooms of an event
	maxLasted = 10 * time.Minute // of an event about rooms
)

// These are the kinds of events in the history of a Resolver. Each comment lists the fields that an event of
// this kind sets, besides At and Kind. Events with Rooms also set Lasted.
//
// EventRoomsMoved: Member is the node on which the rooms were, and Reason is the Reason of their Moved.
const (
	EventStoreAway    cluster.EventKind = "store-away"    // the store does not answer: Why
	EventStoreBack    cluster.EventKind = "store-back"    // the store answers again: Lasted is how long it did not
	EventDataLost     cluster.EventKind = "data-lost"     // the store has lost pins of rooms hosted here: Lasted
	EventPinsRestored cluster.EventKind = "pins-restored" // this node has written such pins again: Rooms
	EventConflict     cluster.EventKind = "conflict"      // two nodes hosted the rooms, and this node lost them: Rooms, Member that keeps them
	EventRoomsMoved   cluster.EventKind = "rooms-moved"   // rooms have moved: Rooms, Member, Reason
)

// history contains the last maxEvents events. The zero value is ready to use.
type history struct {
	mu     sync.Mutex
	events []cluster.Event
}

// History returns what this instance has seen of the store and of rooms since Start: the last 200 events, oldest first.
// The History of the agent has the events of members and partitions.
//
// An event covers all rooms of a node that move for the same reason without a pause of 30 s, for at most 10 minutes.
// Rooms is the number of these rooms, At is the time of the first room, and Lasted is the time until the last room. If
// rooms of more than 20 nodes move for the same reason, the rooms of the other nodes share an event without a Member.
//
// EventRoomsMoved counts the moves in Moves, except for conflicts. Each instance knows only the rooms that it has moved
// or cached, so instances can see different numbers.
func (r *Resolver) History() []cluster.Event {
	r.history.mu.Lock()
	defer r.history.mu.Unlock()
	return slices.Clone(r.history.events)
}

// add appends an event.
func (h *history) add(e cluster.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.append(e)
}

func (h *history) append(e cluster.Event) {
	e.At = time.Now()
	if h.events = append(h.events, e); len(h.events) > maxEvents {
		h.events = slices.Delete(h.events, 0, len(h.events)-maxEvents)
	}
}

// rooms adds rooms to the current event of a node and a reason, or begins a new event.
func (h *history) rooms(kind cluster.EventKind, member lease.NodeID, reason string, rooms int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, others := h.present(kind, member, reason)
	if e == nil && others >= maxNodes {
		member = ""
		e, _ = h.present(kind, member, reason)
	}
	if e == nil {
		h.append(cluster.Event{Kind: kind, Member: member, Reason: reason, Rooms: rooms})
		return
	}
	e.Rooms += rooms
	e.Lasted = time.Since(e.At)
}

// present returns the event to which more rooms of a node belong, or nil, and the number of current events of other
// nodes. The caller must hold the lock.
func (h *history) present(kind cluster.EventKind, member lease.NodeID, reason string) (found *cluster.Event, others int) {
	for i := range h.events {
		e := &h.events[i]
		age := time.Since(e.At)
		switch {
		case e.Kind != kind || e.Reason != reason || age-e.Lasted >= maxGap || age >= maxLasted:
		case e.Member == member:
			found = e
		default:
			others++
		}
	}
	return found, others
}

// moved adds the rooms that have moved. It skips conflicts, which have their own events.
func (h *history) moved(list []Moved) {
	for _, m := range list {
		if m.Reason != hostedTwice {
			h.rooms(EventRoomsMoved, m.From.Node, m.Reason, 1)
		}
	}
}
