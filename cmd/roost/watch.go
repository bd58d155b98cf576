package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/spf13/cobra"
)

func (p *program) watchCommand() *cobra.Command {
	return p.scopedCommand(&cobra.Command{
		Use:   "watch [flags]",
		Short: "Print changes as they happen",
		Long: `Print one line for each change that the agent sees, until Ctrl-C. The output begins with the
live members and what the agent's own node owns. "moved" is about the whole cluster; "acquired"
and "released" are about the agent's own node. If the agent goes away, the command waits until it
is back, and then prints the state at that time.`,
		Example: `  roost watch
  roost watch --output json | jq -c '.joined, .left'     one batch of changes per line`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		heard, away := false, false
		return session.Stream(ctx, s.Events, func(b events.Batch, _ bool) error {
			if away {
				term.Complain(s.Err, s.AnswersAgain()+": the state at this time follows")
			}
			heard, away = true, false
			if s.JSON {
				return s.PrintJSON(b)
			}
			return s.PrintLines(batchLines(time.Now(), b))
		}, func(err error) error {
			if !heard {
				return err
			}
			if !away {
				term.Complain(s.Err, "the agent at "+s.Addr+" has stopped or is unreachable; retrying")
			}
			away = true
			return nil
		})
	})
}

// batchLines returns a line for each change in a batch: a changed member, or the partitions that moved from
// one node to another.
func batchLines(at time.Time, b events.Batch) (lines []term.Line) {
	add := func(what, format string, args ...any) {
		lines = append(lines,
			term.TextLine(fmt.Sprintf("%s  v%-4d  %-8s  %s", at.Format(time.TimeOnly), b.Version, what, fmt.Sprintf(format, args...))))
	}
	for _, id := range b.Left {
		add("left", "%s%s", id, because(b.Reasons[id]))
	}
	for _, id := range b.Joined {
		add("joined", "%s", id)
	}
	for _, id := range b.Changed {
		add("changed", "%s", id)
	}
	type way struct{ from, to lease.NodeID }
	ways := make(map[way][]placement.Partition)
	for _, m := range b.Moved {
		w := way{m.From, m.To}
		ways[w] = append(ways[w], m.Partition)
	}
	for _, w := range slices.SortedFunc(maps.Keys(ways), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	}) {
		add("moved", "%s -> %s: %s", orNobody(w.from), orNobody(w.to), listed(ways[w]))
	}
	if len(b.Released) > 0 {
		add("released", "here: %s", listed(partitionsOf(b.Released)))
	}
	if len(b.Acquired) > 0 {
		add("acquired", "here: %s", listed(partitionsOf(b.Acquired)))
	}
	return lines
}

// because returns the reason for a change as text. because returns "" if the reason is unknown or would
// repeat the word before it.
func because(why lease.Reason) string {
	if why == "" || why == lease.Departed {
		return ""
	}
	return " (" + string(why) + ")"
}

func partitionsOf(owned []events.Ownership) []placement.Partition {
	ps := make([]placement.Partition, len(owned))
	for i := range owned {
		ps[i] = owned[i].Partition
	}
	return ps
}

func orNobody(id lease.NodeID) string { return cmp.Or(string(id), "nobody") }

// listed returns the number of partitions and the first few of them, short enough for a line on a terminal.
func listed(ps []placement.Partition) string {
	const most = 5
	more := ""
	if len(ps) > most {
		more = " …"
	}
	return fmt.Sprintf("%d (%s%s)", len(ps), strings.Trim(fmt.Sprint(ps[:min(len(ps), most)]), "[]"), more)
}
