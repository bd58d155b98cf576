package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// What doctor and members do with --all.

// report is the diagnosis of one agent, and with --all what the others find.
type report struct {
	doctor.Diagnosis
	Agents []finding `json:"agents,omitempty"`
}

// finding is what another agent finds.
type finding struct {
	survey.Agent
	Checks []doctor.Check `json:"checks"` // that are not ok
}

// diagnoseAll examines the agent of s, and meanwhile all others.
func (e examination) diagnoseAll(ctx context.Context, s *session.Session, r *report) (members int, err error) {
	var mu sync.Mutex
	found := make(map[lease.NodeID][]doctor.Check)
	var own error
	var wait sync.WaitGroup
	wait.Go(func() { r.Diagnosis, members, own = examine(ctx, s, e.over) })
	bound, cancel := context.WithTimeout(ctx, s.Timeout+e.over)
	defer cancel()
	agents, err := survey.Take(bound, s, func(ctx context.Context, s *session.Session, id lease.NodeID) error {
		d, _, err := examine(ctx, s, e.over)
		bad := slices.DeleteFunc(d.Checks, func(c doctor.Check) bool { return c.Status == doctor.OK })
		mu.Lock()
		defer mu.Unlock()
		found[id] = append([]doctor.Check{}, bad...)
		return err
	})
	wait.Wait()
	if own != nil || session.Absent(err) != nil {
		return members, own
	}
	if err != nil {
		return members, err
	}
	for _, a := range agents {
		if a.ID != r.Self {
			r.Agents = append(r.Agents, finding{a, found[a.ID]})
		}
		for _, c := range found[a.ID] {
			r.Status = max(r.Status, c.Status)
		}
	}
	r.Add(survey.Check(agents)...)
	return members, nil
}

// otherLines says what other agents find. Those that find the same, but for numbers, share it.
func otherLines(agents []finding, columns int) (lines []term.Line) {
	if len(agents) == 0 {
		return nil
	}
	type group struct {
		check doctor.Check
		at    []string
	}
	var groups []*group
	of := make(map[string]*group)
	answered := 0
	for _, a := range agents {
		if a.View != nil {
			answered++
		}
		for _, c := range a.Checks {
			key := c.Name + c.Status.String() + digits.ReplaceAllString(c.Finding, "#")
			if of[key] == nil {
				of[key] = &group{check: c}
				groups = append(groups, of[key])
			}
			of[key].at = append(of[key].at, string(a.ID))
		}
	}
	lines = append(lines, term.Line{}, term.TextLine(fmt.Sprintf("%d of %s answered", answered, term.Plural(len(agents), "other agent"))))
	for _, g := range groups {
		g.check.Finding = "at " + survey.Few(g.at) + ": " + g.check.Finding
		g.check.Means, g.check.Do = "", "" // the agents' own reports have these
		lines = append(lines, checkLines(g.check, columns)...)
	}
	return lines
}

var digits = regexp.MustCompile(`\d+`)

// views is the answer of roost members --all as JSON.
type views struct {
	Self   lease.NodeID   `json:"self"` // the first agent
	Agents []survey.Agent `json:"agents"`
}

// viewAll shows what each agent sees.
func viewAll(ctx context.Context, s *session.Session) (session.View, error) {
	agents, err := survey.Take(ctx, s, nil)
	if err != nil {
		return session.View{}, err
	}
	answer := views{agents[0].ID, agents}
	page := term.Page("AGENT\tSTATE\tSEES\tTABLE\tDOES NOT SEE\tLOST\tHTTP", func(row func(...any)) {
		for _, a := range agents {
			if v := a.View; v != nil {
				lacks := term.Toned{Text: term.OrDash(survey.Few(v.Lacks))}
				if len(v.Lacks) > 0 {
					lacks.Tone = term.Warning
				}
				row(marked(a.ID, answer.Self), v.State, len(v.Sees), sameOrNot(v.InSync), lacks, term.OrDash(survey.Few(v.Lost)), a.HTTP)
			} else {
				row(a.ID, term.Toned{Text: "?", Tone: term.Warning}, "-", "-", "-", "-", term.Toned{Text: a.Fault, Tone: term.Warning})
			}
		}
	})
	return session.View{Answer: answer, Counts: answer, Page: page}, nil
}
