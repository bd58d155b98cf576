package auditor

import "time"

// Settings describe the fleet.
type Settings struct {
	TTL        time.Duration
	Partitions int
	MinMembers int           // a node that sees fewer members owns nothing
	Handoff    time.Duration // timeout; 0 = no handoff
	Hang       time.Duration // the longest time that a handler of the application takes to return
	Settle     time.Duration // how long the fleet may take to agree after the last fault
	Even       bool          // the strategy evens out the partitions over time, instead of by rendezvous
}

// Observation is what a harness did and saw at one moment. Times count from the start of the fleet.
type Observation struct {
	At        time.Duration
	Disturbed time.Duration // when the harness last did something
	Hosts     int
	Loss      float64    // share of all packets
	Cuts      []Cut      // links that drop everything
	Orders    []Order    // of operators, since the last observation
	Overlaps  []Overlap  // of handlers, since the last observation
	Processes []*Process // that have not ended, and those that have ended since the last observation
}

// Cut is a link between two nodes that drops everything in one direction.
type Cut struct{ From, To string }

// Order is an operator's order to cordon a node, or to end its cordons.
type Order struct {
	By, ID    string
	At, Until time.Duration // Until = At ends the cordons
	Knows     bool          // whether the node that got the order answers that the node is cordoned, immediately afterwards

	slept time.Duration // trouble.slept at the time of the order
}

// Overlap is the start of a handler of a partition while another process ran one.
type Overlap struct {
	Partition    int
	Begins, Runs int // the Run of each process
}

// Status is what the harness knows about a process.
type Status int

// The values of a Status.
const (
	Running   Status = iota
	Paused           // like SIGSTOP
	Suspended        // with its host, so that its clock stands still
	Left             // the process was told to leave at once
	Dead
)

// Process is one process of a node. The harness can use the same value in several observations, but must not modify
// what the fields refer to.
type Process struct {
	Run         int // unique
	ID          string
	Incarnation uint64 // latest; 0 = unknown
	Status      Status
	Seed        bool          // others join through its address
	Lossy       bool          // its host loses packets
	Clock       time.Duration // how far its wall clock is ahead

	Draining, Unhealthy bool // as operators and the application have ordered
	Weight              uint32

	Answer *Answer // nil = it does not answer; the same pointer = the same answer
	News   []Batch // for a watcher that reads always, since the last observation
	Late   *Batch  // for a watcher that reads seldom; nil = it did not read
	Runs   []int   // partitions whose handlers run, sorted
}

// Answer has parts of the answers of the HTTP API and of the metrics.
type Answer struct {
	State    string   // /v1/stats
	Members  []Member // sorted by id
	Stale    bool
	Table    *Table // /v1/partitions; nil = none; the same pointer = the same table
	Owned    []int  // /v1/owned, sorted
	Waiting  []int
	Cordons  []Cordon
	Fences   uint64 // roost_fences_total
	Overruns uint64 // roost_handoff_overruns_total
}

// Member is an element of /v1/members.
type Member struct {
	ID          string
	Incarnation uint64
	Flapping    bool
}

// Table is the answer of /v1/partitions.
type Table struct {
	Nodes  []Node   // the candidates, sorted by id
	Owners []string // by partition; "" = none
}

// Node is a candidate.
type Node struct {
	ID     string
	Weight uint32
}

// Cordon is a cordon in /v1/members.
type Cordon struct {
	ID, Reason string
	Until      time.Duration
}

// Batch is a batch of /v1/events.
type Batch struct {
	Full               bool
	Released, Acquired []int
	Left, Joined       []string
	Reasons            map[string]string
}

// Objection says that a rule does not hold.
type Objection struct {
	Rule, Text string
	At         time.Duration
}
