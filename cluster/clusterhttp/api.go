package clusterhttp

import (
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The JSON of the API. Fields are added, never removed or renamed. Package report has what an agent
// reports of itself and of its cluster, so that package doctor can check it.

type (
	// Member is one live node.
	Member = report.Member
	// Cordon says that a node owns nothing, in the view of all members, until it ends.
	Cordon = report.Cordon
	// Members answers /v1/members.
	Members = report.Members
	// Lost is a member that is not live any more.
	Lost = report.Lost
	// History answers /v1/history.
	History = report.History
	// Event is one fact of a History.
	Event = report.Event
	// Sample is the state of one moment.
	Sample = report.Sample
	// Partitions answers /v1/partitions.
	Partitions = report.Partitions
	// Balance says how evenly partitions are spread.
	Balance = report.Balance
	// Stats answers /v1/stats.
	Stats = report.Stats
	// Hold is a reason for which a node owns nothing.
	Hold = report.Hold
	// Settings are the settings that a reader of counters needs.
	Settings = report.Settings
	// Rejection is report.Rejection.
	Rejection = report.Rejection
	// Sources is what became of the files from which a process reads its settings.
	Sources = report.Sources
)

// Cordoned answers POST /v1/cordon. Converged reports whether every live member has agreed;
// if false, the cordon, or its end, is still spreading.
type Cordoned struct {
	Cordon
	Converged bool `json:"converged"`
}

// Keys answers POST /v1/keys. A key is stated by its fingerprint alone.
type Keys struct {
	Self    lease.NodeID `json:"self"`
	Keys    []string     `json:"keys"`              // first the one that the node sends with, then the other accepted ones
	Unsaved string       `json:"unsaved,omitempty"` // why a restart of the application undoes the change; for people
}

// Placed answers /v1/place.
type Placed struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owner     Member              `json:"owner"`
	Stale     bool                `json:"stale,omitempty"` // the agent is isolated, fenced or stalled: the owner is that of its last table
	Version   uint64              `json:"version"`
	Digest    placement.Digest    `json:"digest"`
}

// Ranked answers /v1/owners.
type Ranked struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owners    []Member            `json:"owners"`
	Why       string              `json:"why"`             // the first is the owner; for people
	Stale     bool                `json:"stale,omitempty"` // the agent is isolated, fenced or stalled: the owners are those of its last table
}

// Owned answers /v1/owned.
type Owned struct {
	Self       lease.NodeID          `json:"self"`
	Partitions []placement.Partition `json:"partitions"`
	Waiting    []placement.Partition `json:"waiting"` // with handoff: its own by the table, which it does not run yet
}

// Changed answers the POST calls that change this node. Converged reports whether
// every live member has agreed; if false, the change is still spreading.
type Changed struct {
	Self      lease.NodeID `json:"self"`
	State     lease.State  `json:"state"`
	Weight    uint32       `json:"weight"`
	Load      int64        `json:"load"`
	Converged bool         `json:"converged"`

	// Evacuation is set by a drain if the rooms of this node move, or have moved.
	Evacuation *affinity.Evacuation `json:"evacuation,omitempty"`
}

// RoomAssignment is the node of a room.
type RoomAssignment struct {
	Room      string              `json:"room"`
	Partition placement.Partition `json:"partition"`

	// Node is the node of the room. If this agent does not see it live, only ID,
	// Incarnation and State are set, and State is left.
	Node Member `json:"node,omitzero"`

	Incarnation uint64          `json:"incarnation,string"` // of the node, by the room's pin
	Source      affinity.Source `json:"source,omitzero"`    // of the assignment: cached, pinned, hash, override, degraded
	Reason      string          `json:"reason"`             // for people
	Epoch       uint64          `json:"epoch"`              // grows with each move of the room; 0 if unknown

	// Hosted reports that this agent keeps the pin alive, on condition of another
	// resolve within TouchWithinS seconds.
	Hosted       bool  `json:"hosted"`
	TouchWithinS int64 `json:"touch_within_s,omitzero"`
}

// RoomDetail answers GET /v1/rooms/{room}. If the room is not pinned, the assignment
// is the choice that resolve would make now, without a Node if none can take it.
type RoomDetail struct {
	RoomAssignment
	Pinned     bool            `json:"pinned"`
	Candidates []RoomCandidate `json:"candidates"` // every live member, best for the room's partition first
}

// RoomCandidate is a member as the agent that places a room sees it. Amounts are units
// of load.
type RoomCandidate struct {
	ID         lease.NodeID `json:"id"`
	Load       int64        `json:"load"`       // its last report
	Reserved   int64        `json:"reserved"`   // for new rooms, and not in its load yet
	Ceiling    int64        `json:"ceiling"`    // of the load with which it gets new rooms
	Capacity   int64        `json:"capacity"`   // 0: unknown
	Preference int          `json:"preference"` // of prefer, from 1 on; 0: excluded
	Taken      bool         `json:"taken"`      // the room is or goes here
	Why        string       `json:"why"`        // the reason for Taken; for people
}

// RoomRelays answers GET /v1/rooms/{room}/relays. Relays are the best further nodes for a
// room that is too large for its own: those with headroom for the demand first.
type RoomRelays struct {
	Room   string   `json:"room"`
	Relays []Member `json:"relays"` // fewer than requested if no more nodes take rooms
}

// Rooms answers GET /v1/rooms.
type Rooms struct {
	Rooms     []PinnedRoom `json:"rooms"` // by name
	Truncated bool         `json:"truncated"`
}

// PinnedRoom is one room of Rooms.
type PinnedRoom struct {
	Room        string              `json:"room"`
	Partition   placement.Partition `json:"partition"`
	Node        lease.NodeID        `json:"node"`
	Incarnation uint64              `json:"incarnation,string"`
	Epoch       uint64              `json:"epoch"`
	Size        int                 `json:"size"` // participants, at the last refresh of the pin
}

// ReleasedRoom answers DELETE /v1/rooms/{room}.
type ReleasedRoom struct {
	Room string `json:"room"`
}
