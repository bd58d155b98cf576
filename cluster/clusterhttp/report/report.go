// Package report has the JSON types with which an agent describes itself and its cluster. Use them to decode
// responses of the HTTP API without package clusterhttp:
//
//	var stats report.Stats
//	err := json.Unmarshal(body, &stats) // the body of GET /v1/stats
//	for _, hold := range stats.Holds {
//		fmt.Println(hold.Explain().Finding)
//	}
//
// # Guarantees
//
// Fields are added, never removed or renamed. Digests are strings of 16 hexadecimal digits, because JavaScript
// numbers cannot hold 64 bits.
//
// # Limits
//
// The package has only the types that package doctor checks. Package clusterhttp has all types of the API,
// including these types under the same names.
package report

import (
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Member is a live node as one agent sees it.
type Member struct {
	lease.Profile

	State         lease.State `json:"state"`
	AgeMS         int64       `json:"age_ms,omitempty"` // age of the member's lease, at least 1; 0 = this node has never met the member
	Load          int64       `json:"load"`
	NoLoad        bool        `json:"no_load,omitempty"` // the member has not reported a load
	ClockOffsetMS int64       `json:"clock_offset_ms"`   // the member's wall clock minus this node's
	InSync        bool        `json:"in_sync"`           // the member has the same table as this node

	// Cordoned is set if State is draining only because the member is cordoned.
	Cordoned *Cordon `json:"cordoned,omitempty"`

	// FlappingMS is how much longer the member drains because it joined and failed too often. 0 means that the member
	// is not flapping.
	FlappingMS int64 `json:"flapping_ms,omitempty"`

	// DrainsMS is how long this node has seen the member drain, for any reason except a cordon. 0 means that the member
	// is not draining.
	DrainsMS int64 `json:"drains_ms,omitempty"`

	// Unhealthy is set while the member drains because its application is unhealthy.
	Unhealthy bool `json:"unhealthy,omitempty"`

	// HTTP is the URL of the member's own HTTP API. Only /v1/members has this field. The field is omitted if
	// other nodes cannot reach the API.
	HTTP string `json:"http,omitempty"`

	// Meta is the data that the member's application announces, in base64. Only /v1/members has this field.
	Meta string `json:"meta,omitempty"`

	// Keys has the fingerprints of the member's gossip keys, at most four. The first is the key that the
	// member sends with, and the others are keys that it also accepts. Only /v1/members has this field. The
	// field is omitted if the member has no key.
	Keys []string `json:"keys,omitempty"`
}

// Condition returns the member's state in one word. In place of draining, it returns why the member drains, if that is
// known: "cordoned", "unhealthy" or "flapping".
func (m Member) Condition() string {
	if m.State == lease.Draining {
		switch {
		case m.Cordoned != nil:
			return "cordoned"
		case m.Unhealthy:
			return "unhealthy"
		case m.FlappingMS > 0:
			return "flapping"
		}
	}
	return m.State.String()
}

// Cordon keeps a node from owning anything until the cordon ends. All members honor it.
type Cordon struct {
	ID     lease.NodeID `json:"id"`
	ForMS  int64        `json:"for_ms"` // time until the cordon ends
	Reason string       `json:"reason"` // for people
}

// Members is the response to /v1/members.
type Members struct {
	Self      lease.NodeID     `json:"self"`
	Members   []Member         `json:"members"`
	Version   uint64           `json:"version"`
	Digest    placement.Digest `json:"digest"`
	Converged bool             `json:"converged"`
	Diverged  int              `json:"diverged"` // members with another table than this node

	// Stale is true if Members are the last known members, because the agent is stalled or joins again after its lease
	// expired.
	Stale bool `json:"stale,omitempty"`

	// Cordons are the active cordons, including cordons of nodes that are currently not members. Spared is true if the
	// cordons have no effect, because otherwise no member could own anything.
	Cordons []Cordon `json:"cordons,omitempty"`
	Spared  bool     `json:"spared,omitempty"`

	// Ahead lists the nodes whose heartbeats this node rejects because their clocks are too far ahead.
	Ahead []Ahead `json:"ahead,omitempty"`

	// StreamsAlone has the gossip addresses, by id, of nodes that try to join but reach this node only over
	// TCP. UDP packets between the two nodes are lost in at least one direction.
	StreamsAlone map[lease.NodeID]string `json:"streams_alone,omitempty"`

	// Lost lists the members that left or failed within the last 30 minutes and have not returned. The list
	// has at most 256 members, latest first. Members that were lost before this node started are not
	// included.
	Lost []Lost `json:"lost,omitempty"`
}

// Ahead is a node whose clock is too far ahead of the cluster's clock.
type Ahead struct {
	ID   lease.NodeID `json:"id"`
	ByMS int64        `json:"by_ms"`
}

// Lost is a member that is no longer live, with the last known data about it.
type Lost struct {
	lease.Profile

	Reason     lease.Reason `json:"reason"` // left, crashed or expired
	AgoMS      int64        `json:"ago_ms"`
	Partitions int          `json:"partitions"`     // number of partitions that the member owned at that time
	HTTP       string       `json:"http,omitempty"` // URL of the member's HTTP API, if other nodes could reach the API
}

// History is the response to /v1/history. Events and Samples are what this node has recorded since its start,
// oldest first. See cluster.History, and the History of an affinity.Resolver.
type History struct {
	Self    lease.NodeID `json:"self"`
	Now     time.Time    `json:"now"` // by this node's clock, like all times in a History
	Events  []Event      `json:"events"`
	Samples []Sample     `json:"samples"` // one every 10 s for the last half hour
}

// Event is an entry of a History. Fields that are zero or that the kind does not use are omitted. See
// cluster.EventKind and affinity.EventRoomsMoved.
type Event struct {
	At          time.Time         `json:"at"`
	Kind        cluster.EventKind `json:"kind"`
	Member      lease.NodeID      `json:"member,omitempty"`
	Incarnation uint64            `json:"incarnation,omitempty,string"`
	Addr        string            `json:"addr,omitempty"`     // gossip address of a member that joined or returned
	OldAddr     string            `json:"old_addr,omitempty"` // gossip address of the incarnation that a member replaced, if it differs from addr
	Reason      string            `json:"reason,omitempty"`
	Why         string            `json:"why,omitempty"` // for people
	Members     int               `json:"members,omitempty"`
	Partitions  int               `json:"partitions,omitempty"`
	Moved       int               `json:"moved,omitempty"`
	Gained      int               `json:"gained,omitempty"`
	Lost        int               `json:"lost,omitempty"`
	Weight      uint32            `json:"weight,omitempty"`
	OldWeight   uint32            `json:"old_weight,omitempty"`
	Rooms       int               `json:"rooms,omitempty"`
	Lasted      time.Duration     `json:"lasted_ns,omitempty"` // from at to the last room, or how long an outage lasted
}

// Sample has numbers about this node and its view at one moment.
type Sample struct {
	At      time.Time `json:"at"`
	Members int       `json:"members"` // number of live members
	Owned   int       `json:"owned"`   // partitions of this node
	Moved   int       `json:"moved"`   // partitions of the whole cluster that changed owner since the previous sample
	Load    int64     `json:"load"`    // load that this node reports
}

// Partitions is the response to /v1/partitions. The response has the table in a form that can be stored, and
// the table's balance. The method Table returns the table.
type Partitions struct {
	placement.Export
	Counts   map[lease.NodeID]int `json:"counts"`
	Balance  Balance              `json:"balance"`
	Diverged int                  `json:"diverged"`        // members with another table than this node
	Stale    bool                 `json:"stale,omitempty"` // this is the agent's last table, because the agent is isolated, fenced or stalled
}

// Balance describes how evenly partitions are spread over the nodes. See placement.Balance.
type Balance struct {
	MaxMean float64 `json:"max_mean"`
	CV      float64 `json:"cv"`
	Advice  string  `json:"advice,omitempty"`
}

// Stats is the response to /v1/stats. The response has the settings of this agent, and its counters since its
// start.
type Stats struct {
	Self  lease.NodeID `json:"self"`
	State string       `json:"state"`           // left, joining, the cause of the first hold, active, isolated (also while settling after isolation) or settling
	Holds []Hold       `json:"holds,omitempty"` // why this node owns nothing; solve the causes in this order
	Waits string       `json:"waits,omitempty"` // why this node is still joining: a seed does not respond, or UDP packets do not arrive

	UptimeMS int64 `json:"uptime_ms"` // for how long this agent has served its API

	// Unreachable is the reason why other nodes cannot reach this node at its advertised address. Unreachable
	// is empty if this node has found no such reason.
	Unreachable string `json:"unreachable,omitempty"`

	// Resources is set if the agent has resources besides its capacity. The tightest resource decides the
	// node's load, unless the load in units is greater. See cluster.Config.Resources.
	Resources []cluster.Resource `json:"resources,omitempty"`

	Settings Settings             `json:"settings"`
	Scopes   []Scope              `json:"scopes,omitempty"` // the scopes of this agent, in the order of their creation
	Counts   cluster.Stats        `json:"counts"`
	Readers  []events.ReaderStats `json:"readers"`         // lag of the readers of events, by the method with which they read
	Rooms    *affinity.Stats      `json:"rooms,omitempty"` // set if this agent pins rooms

	// Rejected lists the sources whose gossip this node has rejected, latest first. For each reason, the list
	// has at most four sources over UDP and four over TCP.
	Rejected []Rejection `json:"rejected,omitempty"`

	// Evacuation is the current or latest evacuation of this node's rooms. Evacuation is nil if this node has
	// not evacuated rooms.
	Evacuation *affinity.Evacuation `json:"evacuation,omitempty"`

	// Sources is set if the process can reload its settings while it runs, as roost agent can.
	Sources *Sources `json:"sources,omitempty"`
}

// Scope is a scope of an agent. Agents with the same members and the same function for the scope have the same
// table, and so the same digest.
type Scope struct {
	Name   string           `json:"name"`
	Digest placement.Digest `json:"digest"`
}

// Sources is the state of the files and environment variables from which a running process reloads its
// settings.
type Sources struct {
	Problem   string   `json:"problem,omitempty"`    // why the last reload failed; the old settings are still in use
	ProblemMS int64    `json:"problem_ms,omitempty"` // for how long reloading has failed
	Restart   []string `json:"restart,omitempty"`    // changed settings that need a restart to take effect

	// KeyFile is the path of the file with the gossip keys. KeyFile is set only if POST /v1/keys changed the
	// keys but could not write the file, so that the keys in use differ from the file.
	KeyFile string `json:"key_file,omitempty"`
}

// Rejection describes the gossip that a node rejected from one source.
type Rejection struct {
	Reason  string `json:"reason"`            // wrong_key, wrong_cluster or not_allowed
	Over    string `json:"over"`              // tcp or udp; a source over udp can be forged
	From    string `json:"from"`              // ip:port over udp, ip over tcp
	Cluster string `json:"cluster,omitempty"` // for wrong_cluster: the cluster name in the packet; the sender is not authenticated
	Count   uint64 `json:"count"`
	AgoMS   int64  `json:"ago_ms"` // time since the latest rejection
}

// Settings are the settings that a reader needs to understand an agent's counters.
type Settings struct {
	Cluster     string   `json:"cluster"`
	Partitions  int      `json:"partitions"`
	Strategy    string   `json:"strategy"`
	HeartbeatMS int64    `json:"heartbeat_ms"`
	TTLMS       int64    `json:"ttl_ms"`
	MaxSkewMS   int64    `json:"max_skew_ms"`
	MinMembers  int      `json:"min_members"` // with fewer live members, the node owns nothing
	Split       string   `json:"split"`       // which side of a split owns partitions: continue (each side) or majority
	Addr        string   `json:"addr"`        // the node's gossip address
	Join        []string `json:"join"`        // the node's seeds, as configured
}
