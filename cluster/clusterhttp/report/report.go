// Package report has what an agent reports about itself and its cluster, as JSON of the HTTP API. These are
// the responses that package doctor checks. Package clusterhttp has the same types under the same names, and
// all other types of the API.
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

// Member is a live node.
type Member struct {
	lease.Profile

	State         lease.State `json:"state"`
	AgeMS         int64       `json:"age_ms,omitempty"` // of its lease, at least 1; 0 = this node has never met it
	Load          int64       `json:"load"`
	NoLoad        bool        `json:"no_load,omitempty"` // it has not reported a load
	ClockOffsetMS int64       `json:"clock_offset_ms"`   // its wall clock minus this node's
	InSync        bool        `json:"in_sync"`           // has the same table as this node

	// Cordoned is set if an active member shows as draining because it is cordoned.
	Cordoned *Cordon `json:"cordoned,omitempty"`

	// FlappingMS is how much longer the member drains because it came and went too often. 0 = it is not
	// flapping.
	FlappingMS int64 `json:"flapping_ms,omitempty"`

	// DrainsMS is how long this node has seen the member drain, for any reason except a cordon. 0 = it does
	// not drain.
	DrainsMS int64 `json:"drains_ms,omitempty"`

	// HTTP is the URL of the member's own HTTP API, only in responses of /v1/members. It is missing if others
	// cannot reach the API.
	HTTP string `json:"http,omitempty"`

	// Meta is what the member's application announces, in base64, only in responses of /v1/members.
	Meta string `json:"meta,omitempty"`

	// Keys has fingerprints of the member's gossip keys, at most four, only in responses of /v1/members:
	// first of the key that it sends with, then of other keys that it accepts. It is missing if the member
	// has no key.
	Keys []string `json:"keys,omitempty"`
}

// Cordon keeps a node from owning anything, in the view of all members, until it ends.
type Cordon struct {
	ID     lease.NodeID `json:"id"`
	ForMS  int64        `json:"for_ms"` // until its end
	Reason string       `json:"reason"` // for people
}

// Members is the response to /v1/members.
type Members struct {
	Self      lease.NodeID     `json:"self"`
	Members   []Member         `json:"members"`
	Version   uint64           `json:"version"`
	Digest    placement.Digest `json:"digest"`
	Converged bool             `json:"converged"`
	Diverged  int              `json:"diverged"` // members that run another table

	// Stale says that the agent joins again after its lease expired, or is stalled, so Members are the last
	// known ones.
	Stale bool `json:"stale,omitempty"`

	// Cordons are the active cordons, including those of nodes that are not members at present. Spared says
	// that they have no effect, because otherwise no member could own anything.
	Cordons []Cordon `json:"cordons,omitempty"`
	Spared  bool     `json:"spared,omitempty"`

	// Ahead has nodes whose heartbeats this node rejects, because their clocks are too far ahead.
	Ahead []Ahead `json:"ahead,omitempty"`

	// StreamsAlone has the gossip addresses, by id, of nodes that try to join and only reach this node over
	// TCP, because UDP packets do not get through both ways.
	StreamsAlone map[lease.NodeID]string `json:"streams_alone,omitempty"`

	// Lost has the members that went within the last 30 minutes and have not come back: at most 256, latest
	// first, and only those that this node has seen go since its start.
	Lost []Lost `json:"lost,omitempty"`
}

// Ahead is a node whose clock is too far ahead of the cluster's.
type Ahead struct {
	ID   lease.NodeID `json:"id"`
	ByMS int64        `json:"by_ms"`
}

// Lost is a member that is no longer live, with what was last known of it.
type Lost struct {
	lease.Profile

	Reason     lease.Reason `json:"reason"` // left, crashed or expired
	AgoMS      int64        `json:"ago_ms"`
	Partitions int          `json:"partitions"`     // partitions that it owned then
	HTTP       string       `json:"http,omitempty"` // URL of its HTTP API, if others could reach it
}

// History is the response to /v1/history: what this node has seen since its start, oldest first. See
// cluster.History.
type History struct {
	Self    lease.NodeID `json:"self"`
	Now     time.Time    `json:"now"` // by this node's clock, like all times here
	Events  []Event      `json:"events"`
	Samples []Sample     `json:"samples"` // every 10 s for half an hour
}

// Event is an entry of a History. Missing fields are zero or do not belong to the kind: see
// cluster.EventKind.
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

// Sample is the state at one moment.
type Sample struct {
	At      time.Time `json:"at"`
	Members int       `json:"members"` // live
	Owned   int       `json:"owned"`   // partitions of this node
	Moved   int       `json:"moved"`   // partitions that changed their owner, anywhere, since the previous sample
	Load    int64     `json:"load"`    // load that this node reports
}

// Partitions is the response to /v1/partitions: the table as a document, and its balance. The method Table
// returns the table.
type Partitions struct {
	placement.Export
	Counts   map[lease.NodeID]int `json:"counts"`
	Balance  Balance              `json:"balance"`
	Diverged int                  `json:"diverged"`        // members that run another table
	Stale    bool                 `json:"stale,omitempty"` // the agent is isolated, fenced or stalled, so this is its last table
}

// Balance says how evenly partitions are spread; see placement.Balance.
type Balance struct {
	MaxMean float64 `json:"max_mean"`
	CV      float64 `json:"cv"`
	Advice  string  `json:"advice,omitempty"`
}

// Stats is the response to /v1/stats: the counters of this agent since its start, and its settings.
type Stats struct {
	Self  lease.NodeID `json:"self"`
	State string       `json:"state"`           // left, joining, the cause of the first hold, active, isolated (settling after that) or settling
	Holds []Hold       `json:"holds,omitempty"` // why this node owns nothing, in the order in which to solve the causes
	Waits string       `json:"waits,omitempty"` // why it is still joining: a seed does not answer, or UDP packets do not arrive

	// Unreachable is why other nodes cannot reach this one at its advertised address, if it knows a reason.
	Unreachable string `json:"unreachable,omitempty"`

	Settings Settings             `json:"settings"`
	Counts   cluster.Stats        `json:"counts"`
	Readers  []events.ReaderStats `json:"readers"`         // readers of events, by how they read
	Rooms    *affinity.Stats      `json:"rooms,omitempty"` // if rooms are pinned here

	// Rejected has the latest sources whose gossip this node rejects, latest first: for each reason at most
	// four over UDP and four over TCP.
	Rejected []Rejection `json:"rejected,omitempty"`

	// Evacuation is the current or latest evacuation of this node's rooms. It is nil if there was none.
	Evacuation *affinity.Evacuation `json:"evacuation,omitempty"`

	// Sources is set if the process can reload its settings while it runs, like roost agent.
	Sources *Sources `json:"sources,omitempty"`
}

// Sources is the state of the files and variables from which a running process reloads its settings.
type Sources struct {
	Problem   string   `json:"problem,omitempty"`    // why the last reload failed, so that the old settings are still in use
	ProblemMS int64    `json:"problem_ms,omitempty"` // for how long reloading has failed
	Restart   []string `json:"restart,omitempty"`    // changed settings that need a restart to take effect

	// KeyFile is the file of the gossip keys, if other keys are in use because POST /v1/keys has changed them
	// but could not write the file.
	KeyFile string `json:"key_file,omitempty"`
}

// Rejection is what a node rejected from one source.
type Rejection struct {
	Reason  string `json:"reason"`            // wrong_key, wrong_cluster or not_allowed
	Over    string `json:"over"`              // tcp or udp; the source may be forged with udp
	From    string `json:"from"`              // ip:port over udp, ip over tcp
	Cluster string `json:"cluster,omitempty"` // for wrong_cluster: the name in the packet, from an unauthenticated sender
	Count   uint64 `json:"count"`
	AgoMS   int64  `json:"ago_ms"` // the latest
}

// Settings are the settings that are needed to understand an agent's counters.
type Settings struct {
	Cluster     string   `json:"cluster"`
	Partitions  int      `json:"partitions"`
	Strategy    string   `json:"strategy"`
	HeartbeatMS int64    `json:"heartbeat_ms"`
	TTLMS       int64    `json:"ttl_ms"`
	MaxSkewMS   int64    `json:"max_skew_ms"`
	MinMembers  int      `json:"min_members"` // fewest live members with which it owns anything
	Split       string   `json:"split"`       // who owns in a split: continue or majority
	Addr        string   `json:"addr"`        // its gossip address
	Join        []string `json:"join"`        // its seeds, as configured
}
