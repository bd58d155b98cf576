package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// Hold is a reason why the agent's node owns nothing. See cluster.Hold.
type Hold struct {
	Cause  cluster.Cause `json:"cause"`
	ForMS  int64         `json:"for_ms,omitempty"` // time until the hold ends; 0 = it ends together with its cause
	Reason string        `json:"reason"`           // for people
}

// Explanation is text that explains why a node owns nothing.
type Explanation struct {
	Finding string // what has happened, without the node: "is unhealthy"
	Means   string
	Do      string
	Usual   bool // an operator may have caused the hold on purpose, or the hold ends by itself
}

// explanations has the text for each cause. /readyz, the doctor and the dashboard show these texts.
var explanations = map[cluster.Cause]Explanation{ //nolint:gochecknoglobals // a table
	cluster.CauseDuplicate: {
		"suspects a duplicate", "it owns nothing until the other process has been silent for a TTL; if that process still runs, this process stops",
		"check whether two processes have this id; if so, give each its own --id", false,
	},
	cluster.CauseClockAhead: {
		"has a clock that is ahead", "other nodes reject its heartbeats, so it owns nothing",
		"set the clock with NTP, and find out why NTP did not do so; then the node owns partitions again", false,
	},
	cluster.CauseIsolated: {
		"is isolated", "it owns nothing, and answers lookups from its last table, if it has one",
		"check that the other nodes run and are reachable over UDP and TCP; then it owns partitions again. If the cluster has become smaller for good, restart with a lower --min-members", false,
	},
	cluster.CauseUnhealthy: {
		"is unhealthy", "it owns nothing, but stays a member",
		"find out why its health check fails; the node owns partitions again after two good checks or reports in a row", false,
	},
	cluster.CauseFlapping: {
		"is flapping", "it came and went too often, and owns nothing until it has stayed for a while",
		"find out why its process stops or its network fails, from its log and its supervisor's log. If the log says that two processes use its id, give each its own --id. " +
			"Once the problem is fixed, roost leave and a new start end the wait", true,
	},
	cluster.CauseCordoned: {
		"is cordoned", "it owns nothing until the cordon ends",
		"nothing, as long as the reason exists; to end the cordon, run roost uncordon with the node's id", true,
	},
	cluster.CauseDraining: {
		"is draining", "it owns nothing, on purpose",
		"nothing if you are taking the node down; otherwise run roost undrain", true,
	},
}

// Explain returns text that explains the hold to a person.
func (h Hold) Explain() Explanation {
	e, ok := explanations[h.Cause]
	if !ok { // a cause from a later release
		e = Explanation{Finding: "owns nothing because of its hold " + string(h.Cause), Means: "it owns no partitions", Do: "read its log"}
	}
	if h.ForMS > 0 {
		e.Finding += fmt.Sprintf(" for another %v", (time.Duration(h.ForMS) * time.Millisecond).Round(time.Second))
	}
	if h.Reason != "" {
		e.Finding += ": " + h.Reason
	}
	return e
}

// Isolated reports whether the node owns nothing but keeps its last table. A node does that if it is
// isolated, if it settles after it was isolated, or if it suspects a duplicate of itself.
func (s Stats) Isolated() bool {
	return s.State == "isolated" || slices.ContainsFunc(s.Holds, func(h Hold) bool {
		return h.Cause == cluster.CauseIsolated || h.Cause == cluster.CauseDuplicate
	})
}
