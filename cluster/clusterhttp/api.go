package clusterhttp

import (
	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The JSON of the API. Digests are 16 hexadecimal digits, since JavaScript
// cannot hold 64-bit numbers; fields are only ever added.

// Member is one live node.
type Member struct {
	ID            lease.NodeID      `json:"id"`
	Addr          string            `json:"addr"`     // where it gossips
	APIAddr       string            `json:"api_addr"` // where its program is reached
	State         lease.State       `json:"state"`
	Zone          string            `json:"zone"`
	AgeMS         int64             `json:"age_ms"` // of its lease
	Weight        uint32            `json:"weight"`
	Load          int64             `json:"load"`
	Capacity      int64             `json:"capacity"`
	Labels        map[string]string `json:"labels,omitempty"`
	Incarnation   uint64            `json:"incarnation,string"`
	ClockOffsetMS int64             `json:"clock_offset_ms"` // its wall clock minus this node's
	InSync        bool              `json:"in_sync"`         // runs the same table as this node
}

// Placed answers /v1/place.
type Placed struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owner     Member              `json:"owner"`
	Version   uint64              `json:"version"`
	Digest    placement.Digest    `json:"digest"`
}

// Ranked answers /v1/owners.
type Ranked struct {
	Key       string              `json:"key"`
	Partition placement.Partition `json:"partition"`
	Owners    []Member            `json:"owners"`
	Why       string              `json:"why"` // the first is the owner; for people
}

// Members answers /v1/members.
type Members struct {
	Self      lease.NodeID     `json:"self"`
	Members   []Member         `json:"members"`
	Version   uint64           `json:"version"`
	Digest    placement.Digest `json:"digest"`
	Converged bool             `json:"converged"`
	Drift     int              `json:"drift"` // members that run another table
}

// Partitions answers /v1/partitions: the table as a document, and what is to be
// said of it. Its method Table returns the table.
type Partitions struct {
	placement.Export
	Counts  map[lease.NodeID]int `json:"counts"`
	Balance Balance              `json:"balance"`
	Drift   int                  `json:"drift"` // members that run another table
}

// Balance says how evenly partitions are spread; see placement.Balance.
type Balance struct {
	MaxMean float64 `json:"max_mean"`
	CV      float64 `json:"cv"`
	Advice  string  `json:"advice,omitempty"`
}

// Owned answers /v1/owned.
type Owned struct {
	Self       lease.NodeID          `json:"self"`
	Partitions []placement.Partition `json:"partitions"`
}

// Stats answers /v1/stats: what this agent has counted since it was started, and
// what it runs with.
type Stats struct {
	Self     lease.NodeID     `json:"self"`
	State    string           `json:"state"` // joining, settling, active, draining or left
	Settings Settings         `json:"settings"`
	Counts   cluster.Stats    `json:"counts"`
	Readers  []events.ReaderStats `json:"readers"`         // of events, by how they read
	Rooms    *affinity.Stats  `json:"rooms,omitempty"` // if rooms are pinned here
}

// Settings are those of an agent that others have to know to judge its figures.
type Settings struct {
	Cluster     string   `json:"cluster"`
	Partitions  int      `json:"partitions"`
	Strategy    string   `json:"strategy"`
	HeartbeatMS int64    `json:"heartbeat_ms"`
	TTLMS       int64    `json:"ttl_ms"`
	MaxSkewMS   int64    `json:"max_skew_ms"`
	Addr        string   `json:"addr"` // where it gossips
	Join        []string `json:"join"` // its seeds, as they were given
}

// Changed answers the POST calls that change this node. Converged tells whether
// every live member has agreed; if not, it goes on.
type Changed struct {
	Self      lease.NodeID `json:"self"`
	State     lease.State  `json:"state"`
	Weight    uint32       `json:"weight"`
	Load      int64        `json:"load"`
	Converged bool         `json:"converged"`
}

// RoomAssignment says where a room lives.
type RoomAssignment struct {
	Room      string              `json:"room"`
	Partition placement.Partition `json:"partition"`

	// Node is where it lives. If that is no live member here, only ID,
	// Incarnation and State, which is left, are set.
	Node Member `json:"node,omitzero"`

	Incarnation uint64          `json:"incarnation,string"` // of the node, by the room's pin
	Source      affinity.Source `json:"source,omitzero"`    // how this came about: cached, pinned, hash, override, degraded
	Reason      string          `json:"reason"`             // for people
	Epoch       uint64          `json:"epoch"`              // grows with each move of the room; 0 if that is not known

	// Hosted tells that this agent keeps the pin alive, if it is asked to resolve
	// the room again within so many seconds.
	Hosted       bool  `json:"hosted"`
	TouchWithinS int64 `json:"touch_within_s,omitzero"`
}

// RoomDetail answers GET /v1/rooms/{room}. If the room is not pinned, the
// assignment is what resolve would choose now, without a Node if there is none.
type RoomDetail struct {
	RoomAssignment
	Pinned     bool            `json:"pinned"`
	Candidates []RoomCandidate `json:"candidates"` // every live member, best for the room's partition first
}

// RoomCandidate is a member in the eyes of the agent that looks for a room's node.
// Amounts are units of load.
type RoomCandidate struct {
	ID       lease.NodeID `json:"id"`
	Load     int64        `json:"load"`     // as it last reported
	Reserved int64        `json:"reserved"` // given to it, and not in its load yet
	Ceiling  int64        `json:"ceiling"`  // up to which it is given new rooms
	Capacity int64        `json:"capacity"` // 0: not stated
	Taken    bool         `json:"taken"`    // this is the one
	Why      string       `json:"why"`      // it was taken, or was not; for people
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
	Size        int                 `json:"size"` // participants, as the pin was last refreshed with
}

// ReleasedRoom answers DELETE /v1/rooms/{room}.
type ReleasedRoom struct {
	Room string `json:"room"`
}
