package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) doctorCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check a cluster through the eyes of one agent",
		Long: `Check what an agent knows of its cluster and itself: whether it takes part, how old
leases get, clocks, tables that differ, balance, members and weights, seeds, lost
and refused messages, fences, and Redis if rooms are pinned. Nothing else is asked
and nothing is changed.

Each check is ok, warn or fail, the worst first, with what it means and what to do.
It looks twice, --over apart: counters warn if they grow meanwhile, and are only
mentioned if they grew before. Ask several agents: each has its own view.

It exits with 0 if all is ok, 3 if something is to be looked at, 4 if something is
broken, and 1 if there was no agent to ask.`,
		Example: `  roost doctor
  roost doctor --over 1m
  roost doctor --output json | jq -r '.checks[] | select(.status != "ok") | .finding'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		d, err := s.examine(ctx)
		if err != nil {
			return err
		}
		if err := s.printDiagnosis(d); err != nil {
			return err
		}
		if d.Status == passed {
			return nil
		}
		return exitError(map[verdict]int{warned: exitWarned, failed: exitBroken}[d.Status])
	}, setting[clientOptions]{
		name: "over", arg: "DURATION", def: "2s", usage: "look twice, this far apart", flagOnly: true,
		apply: setDuration(func(o *clientOptions) *time.Duration { return &o.over }),
	})
}

// verdict is how a check ended; the greater, the worse.
type verdict int

const (
	passed verdict = iota
	warned
	failed
)

// String returns "ok", "warn" or "fail".
func (v verdict) String() string { return [...]string{"ok", "warn", "fail"}[v] }

// MarshalText implements encoding.TextMarshaler.
func (v verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil } //nolint:unparam // as the interface has it

// check is one thing that was looked at. A name with several faults has several.
type check struct {
	Name    string  `json:"name"`
	Status  verdict `json:"status"`
	Finding string  `json:"finding"`
	Means   string  `json:"means,omitempty"`
	Do      string  `json:"do,omitempty"`
}

// diagnosis is what --output json prints.
type diagnosis struct {
	Self   lease.NodeID `json:"self"` // empty if the agent has not joined
	Addr   string       `json:"addr"` // that was asked
	Status verdict      `json:"status"`
	OverMS int64        `json:"over_ms"`
	Checks []check      `json:"checks"`
}

// look is what an agent says at one moment.
type look struct {
	stats   clusterhttp.Stats
	members clusterhttp.Members
	table   clusterhttp.Partitions // zero if it has none
}

// examine looks twice and judges.
func (s *session) examine(ctx context.Context) (diagnosis, error) {
	d := diagnosis{Addr: s.addr, OverMS: s.over.Milliseconds()}
	before, err := s.look(ctx)
	if p := notThere(err); p != nil {
		d.Checks = []check{absent(s.addr, p)}
		d.Status = failed
		return d, nil
	}
	if err != nil {
		return d, err
	}
	select {
	case <-time.After(s.over):
	case <-ctx.Done():
		return d, ctx.Err()
	}
	after, err := s.look(ctx)
	if err != nil {
		return d, err
	}
	d.Self = after.stats.Self
	d.Checks = examination{before: before, after: after, over: s.over, addr: s.addr}.checks()
	for _, c := range d.Checks {
		d.Status = max(d.Status, c.Status)
	}
	return d, nil
}

func (s *session) look(ctx context.Context) (l look, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if l.stats, err = s.Stats(ctx); err != nil {
		if p, ok := errors.AsType[*clusterhttp.Problem](err); ok && p.Code == clusterhttp.CodeNotFound {
			return l, fmt.Errorf("the agent at %s is of an older version of roost than this program, and does not tell what it counts", s.addr)
		}
		return l, err
	}
	if l.members, err = s.Members(ctx); err != nil {
		return l, err
	}
	l.table, err = s.Partitions(ctx)
	if p := notThere(err); p != nil {
		return l, nil
	}
	return l, err
}

// notThere returns the answer of an agent that runs and takes no part.
func notThere(err error) *clusterhttp.Problem {
	p, ok := errors.AsType[*clusterhttp.Problem](err)
	if ok && (p.Code == clusterhttp.CodeNotReady || p.Code == clusterhttp.CodeClosed) {
		return p
	}
	return nil
}

func (s *session) printDiagnosis(d diagnosis) error {
	if s.json {
		return s.printJSON(d)
	}
	columns, _ := s.term.size()
	count := make(map[verdict]int)
	var page []line
	for _, c := range d.Checks {
		count[c.Status]++
		page = append(page, c.lines(columns)...)
	}
	sum := fmt.Sprintf("%d ok, %d warn, %d fail", count[passed], count[warned], count[failed])
	if d.Self != "" {
		sum += fmt.Sprintf(", as %s sees it", d.Self)
	}
	return s.printLines(append(page, line{}, textLine(sum)))
}

// lines wraps the parts of a check at words, to stand beside its name. What is well
// gets one line, so that it does not push off a terminal what is not.
func (c check) lines(columns int) []line {
	const indent = "                " // status, name
	tones := map[verdict]tone{passed: good, warned: warning, failed: bad}
	lead := line{{fmt.Sprintf("%-4s", c.Status), tones[c.Status]}, {text: fmt.Sprintf("  %-10s", c.Name)}}
	if c.Status == passed && columns > 0 {
		return []line{append(lead, toned{text: c.Finding}).clipped(columns)}
	}
	var lines []line
	for _, part := range []struct{ label, text string }{{"", c.Finding}, {"means: ", c.Means}, {"do:    ", c.Do}} {
		for i, text := range wrapped(part.text, columns-len(indent)-len(part.label)) {
			label := part.label
			if i > 0 {
				label = strings.Repeat(" ", len(label))
			}
			if len(lines) > 0 {
				lead = textLine(indent)
			}
			lines = append(lines, append(lead, toned{label, faint}, toned{text: text}))
		}
	}
	return lines
}

// wrapped breaks a text at spaces. Where there is hardly any room, or no limit, it
// leaves that to the terminal.
func wrapped(text string, columns int) []string {
	if text == "" {
		return nil
	}
	if columns < 10 {
		return []string{text}
	}
	var lines []string
	used := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case used == "":
			used = word
		case columnsOf(used)+1+columnsOf(word) > columns:
			lines, used = append(lines, used), word
		default:
			used += " " + word
		}
	}
	return append(lines, used)
}
