package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) doctorCommand() *cobra.Command {
	var e examination
	return p.clientCommand(&cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check a cluster as one agent sees it, or as all agents do",
		Long: `Check a cluster as one agent sees it: leases, clocks, tables, balance, weights, seeds,
rejected messages, fences, and Redis if rooms are pinned. Each check is ok, warn or fail, and
says what that means and what to do. The command changes nothing. It looks twice, --over apart,
and warns about counters that grew in between. The exit code is 0 if all checks are ok, 3 if
one warns, 4 if one fails, and 1 if no agent answers.

--all asks the agents of all members, and says which members do not see each other and which
lack a scope. It also connects to the gossip ports of lost members, to tell paused, ended and
cut off ones apart.`,
		Example: `  roost doctor
  roost doctor --all --expect 3
  roost doctor --over 1m
  roost doctor --output json | jq -r '.checks[] | select(.status != "ok") | .finding'`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		d, err := e.diagnose(ctx, s)
		if err != nil {
			return err
		}
		if err := printReport(s, d); err != nil || d.Status == doctor.OK {
			return err
		}
		return exitError(map[doctor.Verdict]int{doctor.Warn: exitWarned, doctor.Fail: exitBroken}[d.Status])
	}, settings.Setting{
		Name: "over", Arg: "DURATION", Default: "2s", Set: settings.Duration(&e.over), FlagOnly: true,
		Usage: "time between the two looks",
	}, settings.Setting{
		Name: "all", Arg: "bool", Set: settings.Bool(&e.all), FlagOnly: true,
		Usage: "also ask the agents of all members",
	}, settings.Setting{
		Name: "within", Arg: "DURATION", Set: settings.Duration(&e.within), FlagOnly: true,
		Usage: "with --all, stop asking after this time (default 2m)",
	}, settings.Setting{
		Name: "expect", Arg: "N", Set: settings.Number(&e.expect, 1, lease.MaxNodes), FlagOnly: true,
		Usage: "number of live members that there should be; fewer is a failure",
	})
}

// examination has the options of roost doctor.
type examination struct {
	over   time.Duration
	all    bool
	within time.Duration // time limit for all agents; 0: 2 minutes
	expect int           // expected number of members; 0 means any
}

func (e examination) diagnose(ctx context.Context, s *session.Session) (r report, err error) {
	var members int
	if !e.all && e.within > 0 {
		return r, settings.UsageError("--within limits --all: give both, or neither")
	}
	if !e.all {
		r.Diagnosis, members, err = examine(ctx, s, e.over, nil)
	} else {
		members, err = e.diagnoseAll(ctx, s, &r)
	}
	if err == nil && e.expect > 0 {
		r.Add(doctor.Expect(members, e.expect))
	}
	return r, err
}

// knocker finds out the state of the gossip ports of lost members.
type knocker func(ctx context.Context, self string, lost []clusterhttp.Lost) map[lease.NodeID]doctor.Port

// examine looks at the agent twice, with a pause of apart, and diagnoses the difference. knock may be nil. examine also
// returns the number of live members.
func examine(ctx context.Context, s *session.Session, over time.Duration, knock knocker) (_ doctor.Diagnosis, members int, _ error) {
	before, err := look(ctx, s)
	if p := session.Absent(err); p != nil {
		return absent(s.Addr, over, p), 0, nil
	}
	if err != nil {
		return doctor.Diagnosis{}, 0, err
	}
	select {
	case <-time.After(over):
	case <-ctx.Done():
		return doctor.Diagnosis{}, 0, ctx.Err()
	}
	after, err := look(ctx, s)
	if err != nil {
		return doctor.Diagnosis{}, 0, err
	}
	e := doctor.Examination{Before: before, After: after, Over: over, Addr: s.Addr}
	if knock != nil {
		e.Ports = knock(ctx, after.Stats.Settings.Addr, after.Members.Lost)
	}
	return e.Diagnose(), len(after.Members.Members), nil
}

// absent returns the diagnosis of an agent that runs but is not a member.
func absent(addr string, over time.Duration, p *clusterhttp.Problem) doctor.Diagnosis {
	c := doctor.Check{
		Name: "ready", Status: doctor.Fail, Finding: fmt.Sprintf("the agent at %s runs, but has not joined: %s", addr, p.Message),
		Means: "it does not know the cluster yet, and owns nothing",
		Do:    "it keeps trying: check that the nodes in its --join run, that UDP and TCP from here reach them, and that UDP and TCP from them reach the address that this agent advertises (--advertise)",
	}
	if p.Code == clusterhttp.CodeClosed {
		c.Finding = fmt.Sprintf("the agent at %s has stopped: %s", addr, p.Message)
		c.Means = "its node owns nothing, and other nodes have taken over"
		c.Do = "start it again; if its log says that another process uses its id, give each process its own --id"
	}
	return doctor.Diagnosis{Addr: addr, Status: doctor.Fail, OverMS: over.Milliseconds(), Checks: []doctor.Check{c}}
}

func look(ctx context.Context, s *session.Session) (l doctor.Look, err error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	if l.Members, err = s.Members(ctx); err != nil { // read before the counters, so that no loss falls between the two
		return l, err
	}
	if l.Stats, err = s.Stats(ctx); err != nil {
		return l, err
	}
	if l.History, err = s.History(ctx); err != nil && session.Absent(err) == nil {
		return l, err
	}
	if l.Table, err = s.Partitions(ctx); session.Absent(err) != nil {
		return l, nil
	}
	return l, err
}

func printReport(s *session.Session, r report) error {
	if s.JSON {
		return s.PrintJSON(r)
	}
	columns, _ := s.Term.Size()
	count := make(map[doctor.Verdict]int)
	var page []term.Line
	for _, c := range r.Checks {
		count[c.Status]++
		page = append(page, checkLines(c, columns)...)
	}
	sum := fmt.Sprintf("%d ok, %d warn, %d fail", count[doctor.OK], count[doctor.Warn], count[doctor.Fail])
	if r.Self != "" {
		sum += fmt.Sprintf(", as %s sees it", r.Self)
	}
	page = append(page, term.Line{}, term.TextLine(sum))
	return s.PrintLines(append(page, otherLines(r.Agents, r.Checks, columns)...))
}

// checkLines lays out a check: its name on the left, and its text, wrapped at words, on the right.
func checkLines(c doctor.Check, columns int) (lines []term.Line) {
	const indent = "                " // status, name
	tones := map[doctor.Verdict]term.Tone{doctor.OK: term.Good, doctor.Warn: term.Warning, doctor.Fail: term.Bad}
	lead := term.Line{{Text: fmt.Sprintf("%-4s", c.Status), Tone: tones[c.Status]}, {Text: fmt.Sprintf("  %-10s", c.Name)}}
	for _, part := range []struct{ label, text string }{{"", c.Finding}, {"means: ", c.Means}, {"do:    ", c.Do}} {
		for i, text := range term.Wrapped(part.text, columns-len(indent)-len(part.label)) {
			label := part.label
			if i > 0 {
				label = strings.Repeat(" ", len(label))
			}
			if len(lines) > 0 {
				lead = term.TextLine(indent)
			}
			lines = append(lines, append(lead, term.Toned{Text: label, Tone: term.Faint}, term.Toned{Text: text}))
		}
	}
	return lines
}

// report is the diagnosis of an agent and, with --all, the findings of the other agents.
type report struct {
	doctor.Diagnosis
	Agents []finding `json:"agents,omitempty"`
}

// finding has the checks that failed at another agent.
type finding struct {
	survey.Agent
	Checks []doctor.Check `json:"checks"` // checks that are not ok
}

// diagnoseAll examines the agent of s and, concurrently, all other agents.
func (e examination) diagnoseAll(ctx context.Context, s *session.Session, r *report) (members int, err error) {
	var mu sync.Mutex
	found := make(map[lease.NodeID][]doctor.Check)
	var own error
	var wait sync.WaitGroup
	e.within = cmp.Or(e.within, 2*time.Minute)
	all, cancel := context.WithTimeout(ctx, e.within)
	defer cancel()
	progress := asking{line: s.Progress()}
	progress.show()
	wait.Go(func() {
		r.Diagnosis, members, own = examine(ctx, s, e.over, func(_ context.Context, self string, lost []clusterhttp.Lost) map[lease.NodeID]doctor.Port {
			return survey.Knock(all, s, self, lost, progress.ports)
		})
	})
	agents, err := survey.Take(all, s, func(ctx context.Context, s *session.Session, id lease.NodeID) error {
		d, _, err := examine(ctx, s, e.over, nil)
		if err != nil {
			return err
		}
		bad := slices.DeleteFunc(d.Checks, func(c doctor.Check) bool { return c.Status == doctor.OK })
		mu.Lock()
		defer mu.Unlock()
		found[id] = append([]doctor.Check{}, bad...)
		return nil
	}, progress.agents)
	wait.Wait()
	progress.line.Clear()
	if own != nil || session.Absent(err) != nil {
		return members, own
	}
	if err != nil && all.Err() != nil && ctx.Err() == nil {
		return members, fmt.Errorf("no answer from %s within %v: allow more time with --within", s.Addr, e.within)
	}
	if err != nil {
		return members, err
	}
	for _, a := range agents {
		if a.ID != r.Self {
			r.Agents = append(r.Agents, finding{a, append([]doctor.Check{}, found[a.ID]...)}) // without an answer, an empty list instead of null
		}
		for _, c := range found[a.ID] {
			r.Status = max(r.Status, c.Status)
		}
	}
	r.Add(survey.Check(agents)...)
	return members, nil
}

// asking shows how many other agents were asked, and how many gossip ports of lost members were tried.
type asking struct {
	mu                       sync.Mutex
	line                     *term.Progress
	done, of, tried, triedOf int
}

func (a *asking) agents(done, of int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done, a.of = done, of
	a.show()
}

func (a *asking) ports(done, of int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried, a.triedOf = done, of
	a.show()
}

func (a *asking) show() {
	text := fmt.Sprintf("asked %d of %s", a.done, term.Plural(a.of, "other agent"))
	if a.triedOf > 0 {
		text += fmt.Sprintf(", tried the ports of %d of %s", a.tried, term.Plural(a.triedOf, "lost member"))
	}
	a.line.Show(text)
}

// otherLines lists the findings of the other agents. Findings that differ only in durations and counts are
// shown on one line. What to do is left out if the first agent has said the same.
func otherLines(agents []finding, first []doctor.Check, columns int) (lines []term.Line) {
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
			if rest, own := strings.CutPrefix(c.Finding, string(a.ID)+" "); own {
				c.Finding = "it " + rest // may be the same at other agents
			}
			key := c.Name + c.Status.String() + numbers.ReplaceAllString(c.Finding, " # ")
			if of[key] == nil {
				of[key] = &group{check: c}
				groups = append(groups, of[key])
			}
			of[key].at = append(of[key].at, string(a.ID))
		}
	}
	lines = append(lines, term.Line{}, term.TextLine(fmt.Sprintf("%d of %s answered", answered, term.Plural(len(agents), "other agent"))))
	for _, g := range groups {
		if slices.ContainsFunc(first, func(c doctor.Check) bool { return c.Name == g.check.Name && c.Do == g.check.Do }) {
			g.check.Means, g.check.Do = "", ""
		}
		g.check.Finding = "at " + survey.Few(g.at) + ": " + g.check.Finding
		lines = append(lines, checkLines(g.check, columns)...)
	}
	return lines
}

// numbers matches the durations and counts in findings, which differ between agents, but does not match ids or
// addresses.
var numbers = regexp.MustCompile(` (-?(\d+(\.\d+)?(h|m|s|ms|µs))+([ ,;:)]|$)|[\d.]+ (more within|since start|billion|states?|by this node))`)
