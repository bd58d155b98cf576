package agenttest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/internal/agentproc"
)

// Views contains what an operator sees of an agent, line by line.
type Views struct {
	Doctor  []string // findings of roost doctor that are not ok; with --all, findings of other agents start with the agent's id
	Page    []string // findings on the dashboard that are not ok, from /v1/doctor
	Members []string // the id and state of each member in roost members, and the lines below the table
	History []string // events since Observe, except moves of partitions
	Log     []string // messages since Observe, each with the member or senders and the reason; see said
	Passes  []string // the checks that pass
}

// Observer reads the views of an agent.
type Observer struct {
	Client *clusterhttp.Client
	Log    *agentproc.Log
	All    bool // whether roost doctor checks all agents

	tb     testing.TB
	events int // number of events before Observe
	bytes  int // size of the log at Observe
}

// soon is the time between the two samples that roost doctor takes. It is so short that counters do not grow
// in between.
const soon = time.Millisecond

// Observe returns an observer of an agent that has already joined. The observer ignores all earlier events
// and log lines.
func Observe(tb testing.TB, client *clusterhttp.Client, log *agentproc.Log) *Observer {
	tb.Helper()
	o := &Observer{Client: client, Log: log, tb: tb}
	v, err := o.views(tb.Context(), soon)
	if err != nil {
		tb.Fatal(err)
	}
	o.events, o.bytes = len(v.History), strings.LastIndexByte(log.String(), '\n')+1
	return o
}

// Await waits until the views match want, and returns how long that took. A line can be longer than the
// wanted line, which must be its prefix. Passes can contain further lines. If the views do not match in time,
// Await fails the test.
func (o *Observer) Await(since time.Time, within time.Duration, want Views) time.Duration {
	o.tb.Helper()
	for {
		ctx, cancel := context.WithTimeout(o.tb.Context(), Timeout)
		v, err := o.views(ctx, soon)
		cancel()
		took := time.Since(since)
		if err == nil {
			err = v.differ(want)
		}
		if err == nil && took <= within {
			o.stays(want)
			return took.Round(10 * time.Millisecond)
		}
		if took > within {
			o.tb.Fatalf("after %v, of %v: %v", took.Round(10*time.Millisecond), within, err)
		}
		time.Sleep(50 * time.Millisecond) // each check starts processes, which slow down other tests
	}
}

// stays reads the views again and fails the test if one has changed. This time, roost doctor waits 2 s
// between its two samples, as it does by default. It therefore notices growing counters, and late events and
// log lines have time to arrive.
func (o *Observer) stays(want Views) {
	o.tb.Helper()
	v, err := o.views(o.tb.Context(), 2*time.Second)
	if err == nil {
		err = v.differ(want)
	}
	if err != nil {
		o.tb.Errorf("2 s later: %v", err)
	}
}

// differ returns how the views differ from want, or nil if they match.
func (v Views) differ(want Views) error {
	var errs []error
	for _, c := range []struct {
		name      string
		got, want []string
	}{
		{"doctor", v.Doctor, want.Doctor},
		{"the page", v.Page, want.Page},
		{"members", v.Members, want.Members},
		{"the history", v.History, want.History},
		{"the log", v.Log, want.Log},
	} {
		if !slices.EqualFunc(c.got, c.want, strings.HasPrefix) {
			errs = append(errs, fmt.Errorf("%s has %q, want %q", c.name, c.got, c.want))
		}
	}
	for _, w := range want.Passes {
		if !slices.ContainsFunc(v.Passes, func(p string) bool { return strings.HasPrefix(p, w) }) {
			errs = append(errs, fmt.Errorf("of what passes, no %q in %q", w, v.Passes))
		}
	}
	return errors.Join(errs...)
}

// views reads all views. For /v1/doctor, the agent takes two samples, and over is the time between them.
func (o *Observer) views(ctx context.Context, over time.Duration) (v Views, err error) {
	d, err := o.Client.Doctor(ctx, over)
	if err != nil {
		return v, err
	}
	for _, c := range d.Checks {
		line := fmt.Sprintf("%s: %s", c.Name, c.Finding)
		if c.Status == doctor.OK {
			v.Passes = append(v.Passes, line)
		} else {
			v.Page = append(v.Page, fmt.Sprint(c.Status, " ", line))
		}
	}
	h, err := o.Client.History(ctx)
	if err != nil {
		return v, err
	}
	for _, e := range h.Events {
		if e.Kind != "moved" {
			v.History = append(v.History, strings.TrimSpace(fmt.Sprint(e.Kind, " ", e.Member, " ", e.Reason)))
		}
	}
	v.History = v.History[min(o.events, len(v.History)):]
	// Another node can move the rooms of a lost node, and say so, before this node has lost it.
	slices.SortStableFunc(v.History, func(a, b string) int { return cmp.Compare(roomsLast(a), roomsLast(b)) })
	if v.Log, err = said(o.Log.String()[o.bytes:]); err != nil {
		return v, err
	}
	if v.Members, err = o.members(ctx); err == nil {
		v.Doctor, err = o.doctor(ctx)
	}
	return v, err
}

func roomsLast(event string) int {
	if strings.HasPrefix(event, "rooms-moved ") {
		return 1
	}
	return 0
}

// said returns the messages of a log, each with the member or senders and the reason. It omits messages of
// memberlist. It also omits a pair of messages about a store that stopped responding and recovered, because
// on a busy machine the store budget of 150 ms is sometimes too short.
func said(log string) (lines []string, err error) {
	const away, back = "store does not answer; resolving without it", "store answers again"
	for line := range strings.Lines(log) {
		var l struct{ Msg, Member, Senders, Reason string }
		if !strings.HasSuffix(line, "\n") {
			continue // the rest of the line has not been written yet
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		switch i := slices.Index(lines, away); {
		case l.Msg == "memberlist": // memberlist logs failed exchanges, which it attempts every 30 s, so only some tests see them
			continue
		case l.Msg == back && i >= 0:
			lines = slices.Delete(lines, i, i+1)
			continue
		case l.Msg == back: // the store failed before Observe
			continue
		}
		lines = append(lines, strings.Join(strings.Fields(l.Msg+" "+l.Member+" "+l.Senders+" "+l.Reason), " "))
	}
	return lines, nil
}

// members returns the output of roost members: the id and state of each row, and the lines below the table.
func (o *Observer) members(ctx context.Context) (lines []string, err error) {
	out, err := o.run(ctx, "members")
	below := false
	for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
		words := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return w == "*" })
		switch {
		case len(words) == 0:
			below = true
		case below:
			lines = append(lines, strings.Join(words, " "))
		case i > 0 && len(words) > 1:
			lines = append(lines, words[0]+" "+words[1])
		}
	}
	return lines, err
}

// doctor returns the findings of roost doctor that are not ok.
func (o *Observer) doctor(ctx context.Context) (lines []string, err error) {
	args := []string{"doctor", "--over", soon.String(), "--output", "json"}
	if o.All {
		args = append(args, "--all")
	}
	out, err := o.run(ctx, args...)
	type check struct{ Name, Status, Finding string }
	var d struct {
		Checks []check
		Agents []struct {
			ID     string
			Checks []check
		}
	}
	if bad := json.Unmarshal([]byte(out), &d); bad != nil {
		return nil, fmt.Errorf("%w: %s, %w", bad, out, err)
	}
	for _, c := range d.Checks {
		if c.Status != "ok" {
			lines = append(lines, fmt.Sprintf("%s %s: %s", c.Status, c.Name, c.Finding))
		}
	}
	for _, a := range d.Agents {
		for _, c := range a.Checks {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", a.ID, c.Status, c.Name, c.Finding))
		}
	}
	return lines, nil // ignores err, because the exit code is not 0 if a finding is not ok
}

// run runs a roost command for the agent and returns its standard output.
func (o *Observer) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, Binary(o.tb), append(args, "--addr", o.Client.Base)...) // #nosec G204 -- the test's own binary
	cmd.Env = agentproc.Environ()
	out, err := cmd.Output()
	return string(out), err
}
