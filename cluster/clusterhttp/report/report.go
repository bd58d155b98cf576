// Package report has what an agent reports of itself and of its cluster, as JSON of the HTTP API:
// the answers from which package doctor draws its conclusions. Package clusterhttp has the same types
// under the same names, and all others of the API.
//
// Digests are 16 hexadecimal digits, because JavaScript numbers cannot hold 64 bits. Fields are
// added, never removed or renamed.
package report

import (
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Member is one live node.
type Member struct {
	lease.Profile

	State         lease.State `json:"state"`
	AgeMS         int64       `json:"age_ms,omitempty"` // of its lease, at least 1; 0 = this node has never met it
	Load          int64       `json:"load"`
	NoLoad        bool        `json:"no_load,omitempty"` // it has reported none
	ClockOffsetMS int64       `json:"clock_offset_ms"`   // its wall clock minus this node's
	InSync        bool        `json:"in_sync"`           // runs the same table as this node

	// Cordoned is why an active member shows as draining: it is cordoned.
	Cordoned *Cordon `json:"cordoned,omitempty"`

	// FlappingMS is for how long it still drains because it came and went too often; 0 = it is
	// not flapping.
	FlappingMS int64 `json:"flapping_ms,omitempty"`

	// DrainsMS is for how long this node has seen it drain, for any reason but a cordon; 0 = it does not.
	DrainsMS int64 `json:"drains_ms,omitempty"`

	// HTTP is the URL of its own HTTP API, in answers of /v1/members alone; none if it states none that others reach.
	HTTP string `json:"http,omitempty"`

	// Meta is what its application says, in base64, in answers of /v1/members alone.
	Meta string `json:"meta,omitempty"`

	// Keys has fingerprints of its gossip keys, in answers of /v1/members alone: first of the key that it
	// sends with, then of those that it also accepts, at most four. None if it has no key, or is
	// of a release that does not state them.
	Keys []string `json:"keys,omitempty"`
}

// Cordon says that a node owns nothing, in the view of all members, until it ends.
type Cordon struct {
	ID     lease.NodeID `json:"id"`
	ForMS  int64        `json:"for_ms"` // until its end
	Reason string       `json:"reason"` // for people
}

// Members answers /v1/members.
type Members struct {
	Self      lease.NodeID     `json:"self"`
	Members   []Member         `json:"members"`
	Version   uint64           `json:"version"`
	Digest    placement.Digest `json:"digest"`
	Converged bool             `json:"converged"`
	Diverged  int              `json:"diverged"` // members that run another table

	// Stale says that the agent joins again after its lease expired, or is stalled: Members are the last ones
	// that it knew.
	Stale bool `json:"stale,omitempty"`

	// Cordons are the ones in force, also of nodes that are not members at present. Spared
	// says that they have no effect: no other member could own anything.
	Cordons []Cordon `json:"cordons,omitempty"`
	Spared  bool     `json:"spared,omitempty"`

	// Ahead has nodes with clocks that are too far ahead: this node rejects their heartbeats.
	Ahead []Ahead `json:"ahead,omitempty"`

	// StreamsAlone has the gossip addresses of nodes, by id, that try to join and reach this node by TCP
	// alone: UDP does not get through both ways.
	StreamsAlone map[lease.NodeID]string `json:"streams_alone,omitempty"`

	// Lost has the members that have gone within 30 minutes and did not come back, the latest
	// first, at most 256, as this node saw it since it was started.
	Lost []Lost `json:"lost,omitempty"`
}

// Ahead is a node with a clock that is too far ahead of the cluster's.
type Ahead struct {
	ID   lease.NodeID `json:"id"`
	ByMS int64        `json:"by_ms"`
}

// Lost is a member that is not live any more, with what was last known of it.
type Lost struct {
	lease.Profile

	Reason     lease.Reason `json:"reason"` // left, crashed or expired
	AgoMS      int64        `json:"ago_ms"`
	Partitions int          `json:"partitions"`     // that it owned then; others own these since
	HTTP       string       `json:"http,omitempty"` // where it served its HTTP API, if others reach that
}

// History answers /v1/history: what this node saw since it was started, oldest first; see
// cluster.History.
type History struct {
	Self    lease.NodeID `json:"self"`
	Now     time.Time    `json:"now"` // by this node's clock, as all times here
	Events  []Event      `json:"events"`
	Samples []Sample     `json:"samples"` // every 10 s for half an hour
}

// Event is one fact of a History. A field that is missing is zero, or not of this kind: see the
// kinds of cluster.EventKind.
type Event struct {
	At          time.Time         `json:"at"`
	Kind        cluster.EventKind `json:"kind"`
	Member      lease.NodeID      `json:"member,omitempty"`
	Incarnation uint64            `json:"incarnation,omitempty,string"`
	Addr        string            `json:"addr,omitempty"` // where a member that joined or returned gossips
	Reason      string            `json:"reason,omitempty"`
	Why         string            `json:"why,omitempty"` // for people
	Members     int               `json:"members,omitempty"`
	Partitions  int               `json:"partitions,omitempty"`
	Moved       int               `json:"moved,omitempty"`
	Gained      int               `json:"gained,omitempty"`
	Lost        int               `json:"lost,omitempty"`
	Weight      uint32            `json:"weight,omitempty"`
	OldWeight   uint32            `json:"old_weight,omitempty"`
}

// Sample is the state of one moment.
type Sample struct {
	At      time.Time `json:"at"`
	Members int       `json:"members"` // live
	Owned   int       `json:"owned"`   // partitions of this node
	Moved   int       `json:"moved"`   // partitions that changed their owner, anywhere, since the sample before
	Load    int64     `json:"load"`    // that this node reports
}

// Partitions answers /v1/partitions: the table as a document, and its balance. The
// method Table returns the table.
type Partitions struct {
	placement.Export
	Counts   map[lease.NodeID]int `json:"counts"`
	Balance  Balance              `json:"balance"`
	Diverged int                  `json:"diverged"`        // members that run another table
	Stale    bool                 `json:"stale,omitempty"` // the agent is isolated, fenced or stalled: this is its last table
}

// Balance says how evenly partitions are spread; see placement.Balance.
type Balance struct {
	MaxMean float64 `json:"max_mean"`
	CV      float64 `json:"cv"`
	Advice  string  `json:"advice,omitempty"`
}

// Stats answers /v1/stats: the counters of this agent since its start, and its
// settings.
type Stats struct {
	Self  lease.NodeID `json:"self"`
	State string       `json:"state"`           // left, joining, the cause of the first hold, active, isolated (settling after that) or settling
	Holds []Hold       `json:"holds,omitempty"` // why this node owns nothing: what has to be solved first comes first
	Waits string       `json:"waits,omitempty"` // why it goes on joining: a seed that does not answer, or no UDP

	// Unreachable is why other nodes cannot reach this one at its advertised address, as far as it knows.
	Unreachable string `json:"unreachable,omitempty"`

	Settings Settings             `json:"settings"`
	Counts   cluster.Stats        `json:"counts"`
	Readers  []events.ReaderStats `json:"readers"`         // of events, by how they read
	Rooms    *affinity.Stats      `json:"rooms,omitempty"` // if rooms are pinned here

	// Rejected has the latest sources whose gossip this node rejects, the latest one first: at most four for
	// each reason over UDP, and as many over TCP.
	Rejected []Rejection `json:"rejected,omitempty"`

	// Evacuation is set if the rooms of this node move to others, or have moved.
	Evacuation *affinity.Evacuation `json:"evacuation,omitempty"`

	// Sources is set if the process reads its settings again while it runs, as roost agent does.
	Sources *Sources `json:"sources,omitempty"`
}

// Sources is what became of the files and variables from which a running process reads its settings again.
type Sources struct {
	Problem   string   `json:"problem,omitempty"`    // why the last attempt failed: the settings in force are the former ones
	ProblemMS int64    `json:"problem_ms,omitempty"` // for how long
	Restart   []string `json:"restart,omitempty"`    // settings that have changed, and take effect with a restart

	// KeyFile is the file of the gossip keys, if other keys are in use: POST /v1/keys has changed them, and
	// could not write the file.
	KeyFile string `json:"key_file,omitempty"`
}

// Rejection is what a node rejected from one source.
type Rejection struct {
	Reason  string `json:"reason"`            // wrong_key, wrong_cluster or not_allowed
	Over    string `json:"over"`              // tcp or udp: anybody can forge the source of udp
	From    string `json:"from"`              // ip:port over udp, ip over tcp
	Cluster string `json:"cluster,omitempty"` // that it names, with wrong_cluster: by an unauthenticated sender
	Count   uint64 `json:"count"`
	AgoMS   int64  `json:"ago_ms"` // the latest
}

// Settings are the settings that a reader of an agent's counters needs.
type Settings struct {
	Cluster     string   `json:"cluster"`
	Partitions  int      `json:"partitions"`
	Strategy    string   `json:"strategy"`
	HeartbeatMS int64    `json:"heartbeat_ms"`
	TTLMS       int64    `json:"ttl_ms"`
	MaxSkewMS   int64    `json:"max_skew_ms"`
	MinMembers  int      `json:"min_members"` // live members without which it owns nothing
	Split       string   `json:"split"`       // who owns in a split: continue or majority
	Addr        string   `json:"addr"`        // of its gossip
	Join        []string `json:"join"`        // its seeds, as configured
}
