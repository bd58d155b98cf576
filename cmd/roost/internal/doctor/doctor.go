// Package doctor judges what an agent reports of its cluster and of itself. It is pure:
// the caller looks twice, and the checks compare.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// Verdict is the result of a check; the greater, the worse.
type Verdict int

// The verdicts.
const (
	OK Verdict = iota
	Warn
	Fail
)

// String returns "ok", "warn" or "fail".
func (v Verdict) String() string { return [...]string{"ok", "warn", "fail"}[v] }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Check is one finding. A name with several faults has several.
type Check struct {
	Name    string  `json:"name"`
	Status  Verdict `json:"status"`
	Finding string  `json:"finding"`
	Means   string  `json:"means,omitempty"`
	Do      string  `json:"do,omitempty"`
}

// Diagnosis is the result of all checks, the worst first.
type Diagnosis struct {
	Self   lease.NodeID `json:"self"` // empty if the agent has not joined
	Addr   string       `json:"addr"` // of the agent
	Status Verdict      `json:"status"`
	OverMS int64        `json:"over_ms"`
	Checks []Check      `json:"checks"`
}

// Look is what an agent reports at one moment.
type Look struct {
	Stats   clusterhttp.Stats
	Members clusterhttp.Members
	Table   clusterhttp.Partitions // zero if the agent has none
	History clusterhttp.History    // zero if the agent is of an older version
}

// Examination is two looks at one agent.
type Examination struct {
	Before, After Look
	Over          time.Duration // between them
	Addr          string        // of the agent
}

// Diagnose carries out all checks.
func (e Examination) Diagnose() Diagnosis {
	d := Diagnosis{Self: e.After.Stats.Self, Addr: e.Addr, OverMS: e.Over.Milliseconds()}
	checks := []Check{e.agent(), e.ready(), e.leases(), e.clocks(), e.tables(), e.balance()}
	checks = append(checks, e.members()...)
	checks = append(checks, e.seeds())
	checks = append(checks, e.timings()...)
	checks = append(checks, e.key()...)
	checks = append(checks, e.redis()...)
	checks = append(checks, e.events()...)
	checks = append(checks, e.counted()...)
	faulty := make(map[string]bool)
	for _, c := range checks {
		faulty[c.Name] = faulty[c.Name] || c.Status != OK
		d.Status = max(d.Status, c.Status)
	}
	d.Checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Status == OK && faulty[c.Name] })
	slices.SortStableFunc(d.Checks, func(a, b Check) int { return cmp.Compare(b.Status, a.Status) })
	return d
}

// Absent is the diagnosis of an agent that runs without taking part.
func Absent(addr string, over time.Duration, p *clusterhttp.Problem) Diagnosis {
	c := Check{
		"ready", Fail, fmt.Sprintf("the agent at %s runs and has not joined: %s", addr, term.Printable(p.Message)),
		"it has no view of the cluster yet, and owns nothing",
		"it joins by itself: see whether the nodes of its --join run, and whether UDP and TCP get through to them, and from them to the address that it advertises (--advertise)",
	}
	if p.Code == clusterhttp.CodeClosed {
		c = Check{
			"ready", Fail, fmt.Sprintf("the agent at %s has ended: %s", addr, term.Printable(p.Message)),
			"its node owns nothing, and other nodes have taken over", "start it again; if its log says that the id is also used, two processes were started with one --id",
		}
	}
	return Diagnosis{Addr: addr, Status: Fail, OverMS: over.Milliseconds(), Checks: []Check{c}}
}
