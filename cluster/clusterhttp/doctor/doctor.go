// Package doctor checks what an agent reports about itself and its cluster. The command roost doctor, the
// endpoint GET /v1/doctor and the dashboard show the results. Take two looks at an agent and compare them:
//
//	e := doctor.Examination{Before: look(), Addr: addr, Over: 2 * time.Second}
//	time.Sleep(e.Over)
//	e.After = look() // fill a Look from /v1/stats, /v1/members, /v1/partitions and /v1/history
//	for _, c := range e.Diagnose().Checks {
//		fmt.Println(c.Status, c.Name, c.Finding)
//	}
//
// # Guarantees
//
// The package is pure: it reads no clock, opens no connection, and changes nothing. The same looks result in
// the same diagnosis.
//
// # Limits
//
// The checks use only the reports of one agent. A finding can contain text from other nodes, such as their
// ids, so show findings as text and never as markup.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

// Verdict is the result of a check. A greater verdict is worse.
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

// UnmarshalText implements encoding.TextUnmarshaler. UnmarshalText returns an error for an unknown verdict.
func (v *Verdict) UnmarshalText(text []byte) error {
	for *v = OK; *v <= Fail; *v++ {
		if v.String() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("doctor: unknown verdict %.20q", text)
}

// Check is one finding of a check. If a check finds several problems, it returns several findings with the same name.
type Check struct {
	Name    string  `json:"name"`
	Status  Verdict `json:"status"`
	Finding string  `json:"finding"`
	Means   string  `json:"means,omitempty"`
	Do      string  `json:"do,omitempty"`
}

// Diagnosis is the result of all checks, worst first.
type Diagnosis struct {
	Self   lease.NodeID `json:"self"` // empty if the agent has not joined
	Addr   string       `json:"addr"` // address of the agent
	Status Verdict      `json:"status"`
	OverMS int64        `json:"over_ms"`
	Checks []Check      `json:"checks"`
}

// Look contains what an agent reports at one moment.
type Look struct {
	Stats   report.Stats
	Members report.Members
	Table   report.Partitions // zero if the agent has no table
	History report.History    // zero if the agent does not provide a history
}

// Examination contains what an agent reported at two moments, so that the checks can compare the two.
type Examination struct {
	Before, After Look
	Over          time.Duration // time between the two looks
	Addr          string        // address of the agent

	// Ports contains the results of connecting to the gossip ports of lost members. It may be empty.
	Ports map[lease.NodeID]Port
}

// Diagnose runs all checks.
func (e Examination) Diagnose() Diagnosis {
	d := Diagnosis{Self: e.After.Stats.Self, Addr: e.Addr, OverMS: e.Over.Milliseconds()}
	checks := append([]Check{e.agent()}, e.ready()...)
	checks = append(checks, e.leases(), e.clocks())
	if e.After.Stats.State == "joining" { // its data about the other nodes is out of date, and the check ready reports the cause
		for _, name := range []string{"tables", "balance", "members", "seeds"} {
			checks = append(checks, Check{Name: name, Finding: "not checked while the agent is joining"})
		}
	} else {
		checks = append(checks, e.tables(), e.balance())
		checks = append(checks, e.members()...)
		checks = append(checks, e.seeds())
	}
	checks = append(checks, e.address()...)
	checks = append(checks, e.timings()...)
	checks = append(checks, e.key()...)
	checks = append(checks, e.rejected()...)
	checks = append(checks, e.refused()...)
	checks = append(checks, e.sources()...)
	checks = append(checks, e.redis()...)
	checks = append(checks, e.load()...)
	checks = append(checks, e.events()...)
	checks = append(checks, e.counted()...)
	faulty := make(map[string]bool)
	for _, c := range checks {
		faulty[c.Name] = faulty[c.Name] || c.Status != OK
		d.Status = max(d.Status, c.Status)
	}
	d.Checks = slices.DeleteFunc(checks, func(c Check) bool { return c.Status == OK && faulty[c.Name] })
	slices.SortStableFunc(d.Checks, func(a, b Check) int { return cmp.Compare(b.rank(), a.rank()) })
	return d
}

// rank orders findings from best to worst. Among findings with the same status, balance ranks lowest, because uneven
// shares never appear suddenly.
func (c Check) rank() int {
	if c.Name == "balance" {
		return 2 * int(c.Status)
	}
	return 2*int(c.Status) + 1
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func age(millis int64) string { return ms(millis).Round(100 * time.Millisecond).String() }

// Expect checks whether the agent sees the expected number of live members.
func Expect(members, want int) Check {
	if members == want {
		return Check{Name: "expected", Finding: fmt.Sprintf("there are %s", plural(members, "member"))}
	}
	c := Check{
		"expected", Fail, fmt.Sprintf("%s, not %d", plural(members, "member"), want), "nodes are missing, and other nodes own their partitions",
		"find the missing nodes: roost members lists the live members, and below them the members that were lost within 30 minutes; roost members --all asks every agent",
	}
	if members > want {
		c.Status, c.Means, c.Do = Warn, "the cluster has nodes that you do not expect",
			"find them with roost members and stop them, or correct the number"
	}
	return c
}

// Add adds findings of checks that Diagnose does not run, and updates the status and the order.
func (d *Diagnosis) Add(checks ...Check) {
	for _, c := range checks {
		d.Status = max(d.Status, c.Status)
	}
	d.Checks = append(d.Checks, checks...)
	slices.SortStableFunc(d.Checks, func(a, b Check) int { return cmp.Compare(b.Status, a.Status) })
}
