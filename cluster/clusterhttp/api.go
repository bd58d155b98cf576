package clusterhttp

import (
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// These types define the JSON of the API. Fields are added, never removed or renamed. Package report defines
// the types that package doctor checks, so that doctor does not have to import this package.

type (
	// Member is a live node.
	Member = report.Member
	// Cordon keeps a node from owning anything until the cordon ends. All members honor it.
	Cordon = report.Cordon
	// Members is the response to /v1/members.
	Members = report.Members
	// Lost is a member that is no longer live.
	Lost = report.Lost
	// History is the response to /v1/history.
	History = report.History
	// Event is an entry of a History.
	Event = report.Event
	// Sample has numbers about a node and its view at one moment.
	Sample = report.Sample
	// Partitions is the response to /v1/partitions.
	Partitions = report.Partitions
	// Balance describes how evenly partitions are spread over the nodes.
	Balance = report.Balance
	// Stats is the response to /v1/stats.
	Stats = report.Stats
	// Hold is a reason why a node owns nothing.
	Hold = report.Hold
	// Settings are the settings that a reader needs to understand an agent's counters.
	Settings = report.Settings
	// Rejection is gossip that a node rejected from one source.
	Rejection = report.Rejection
	// Sources is the state of the files from which a process reads its settings.
	Sources = report.Sources
)

// Cordoned is the response to POST and DELETE /v1/cordon. Converged reports whether every live member has
// agreed. If Converged is false, the change is still spreading.
type Cordoned struct {
	Cordon
	Converged bool `json:"converged"`
}

// Keys is the response to POST /v1/keys. The response contains only fingerprints, never keys.
type Keys struct {
	Self    lease.NodeID `json:"self"`
	Keys    []string     `json:"keys"`              // first the key that the node sends with, then its other accepted keys
	Unsaved string       `json:"unsaved,omitempty"` // why a restart of the application would undo the change; for people
}

// Placed is the response to /v1/place.
type Placed struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owner     Member              `json:"owner"`
	Stale     bool                `json:"stale,omitempty"` // the agent is isolated, fenced or stalled, so the owner is from its last table
	Version   uint64              `json:"version"`
	Digest    placement.Digest    `json:"digest"`
}

// Ranked is the response to /v1/owners.
type Ranked struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owners    []Member            `json:"owners"`
	Why       string              `json:"why"`             // why the first node is the owner; for people
	Stale     bool                `json:"stale,omitempty"` // the agent is isolated, fenced or stalled, so the owners are from its last table
}

// Owned is the response to /v1/owned.
type Owned struct {
	Self       lease.NodeID          `json:"self"`
	Partitions []placement.Partition `json:"partitions"`
	Waiting    []placement.Partition `json:"waiting"` // with handoff: partitions that the table assigns to this node, but that it does not run yet
}

// Changed is the response to the POST calls that change this node. Converged reports whether every live
// member has agreed. If Converged is false, the change is still spreading.
type Changed struct {
	Self      lease.NodeID `json:"self"`
	State     lease.State  `json:"state"`
	Weight    uint32       `json:"weight"`
	Load      int64        `json:"load"`
	Converged bool         `json:"converged"`

	// Evacuation describes the latest evacuation of this node's rooms. It is nil if there was no evacuation.
	Evacuation *affinity.Evacuation `json:"evacuation,omitempty"`
}

// RoomAssignment is the response to calls that return the node of a room.
type RoomAssignment struct {
	Room      string              `json:"room"`
	Partition placement.Partition `json:"partition"`

	// Node is the node of the room. If the node is not live in this agent's view, only ID, Incarnation and
	// State are set, and State is left.
	Node Member `json:"node,omitzero"`

	Incarnation uint64          `json:"incarnation,string"` // the node's incarnation in the room's pin
	Source      affinity.Source `json:"source,omitzero"`    // cached, pinned, hash, override or degraded
	Reason      string          `json:"reason"`             // for people
	Epoch       uint64          `json:"epoch"`              // grows with each move of the room; 0 if unknown

	// Hosted is true if this agent keeps the pin alive. The caller must call resolve again within TouchWithinS seconds.
	Hosted       bool  `json:"hosted"`
	TouchWithinS int64 `json:"touch_within_s,omitzero"`
}

// RoomDetail is the response to GET /v1/rooms/{room}. If the room is not pinned, the assignment is the choice
// that resolve would make now. Node is empty if no node can take the room.
type RoomDetail struct {
	RoomAssignment
	Pinned     bool            `json:"pinned"`
	Candidates []RoomCandidate `json:"candidates"` // every live member, best for the room's partition first
}

// RoomCandidate is a member that an agent considers when it places a room. Amounts are units of load.
type RoomCandidate struct {
	ID         lease.NodeID `json:"id"`
	Load       int64        `json:"load"`       // the load that the node last reported
	Reserved   int64        `json:"reserved"`   // units for new rooms that are not in Load yet
	Ceiling    int64        `json:"ceiling"`    // load up to which the node gets new rooms
	Capacity   int64        `json:"capacity"`   // 0: unknown
	Preference int          `json:"preference"` // position in prefer, from 1; 0: excluded
	Taken      bool         `json:"taken"`      // the room is on this node, or would be placed on it
	Why        string       `json:"why"`        // reason for Taken, for people
}

// RoomRelays is the response to GET /v1/rooms/{room}/relays. Relays are the best additional nodes for a room
// that is too large for its own node. Nodes with headroom for the demand come first.
type RoomRelays struct {
	Room   string   `json:"room"`
	Relays []Member `json:"relays"` // fewer than requested if not enough nodes accept rooms
}

// Rooms is the response to GET /v1/rooms.
type Rooms struct {
	Rooms     []PinnedRoom `json:"rooms"` // sorted by name
	Truncated bool         `json:"truncated"`

	// StoreProblem is set if the store does not answer this agent's other calls, or refuses them. Rooms may then lack
	// rooms.
	StoreProblem string `json:"store_problem,omitempty"`
}

// PinnedRoom is an entry of Rooms.
type PinnedRoom struct {
	Room        string              `json:"room"`
	Partition   placement.Partition `json:"partition"`
	Node        lease.NodeID        `json:"node"`
	Incarnation uint64              `json:"incarnation,string"`
	Epoch       uint64              `json:"epoch"`
	Size        int                 `json:"size"` // number of participants at the last refresh of the pin
}

// Reservations is the response to GET /v1/reservations.
type Reservations struct {
	Reservations []affinity.Reservation `json:"reservations"` // sorted by room
}

// CancelledReservation is the response to DELETE /v1/rooms/{room}/reservation.
type CancelledReservation struct {
	Room string `json:"room"`
}

// ReleasedRoom is the response to DELETE /v1/rooms/{room}.
type ReleasedRoom struct {
	Room string `json:"room"`
}
