package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) membersCommand() *cobra.Command {
	return p.viewCommand(&cobra.Command{
		Use:   "members [flags]",
		Short: "List the live members",
		Long: `List the members that are alive in the eyes of the agent that is asked, itself
marked with *. TABLE tells whether a member's table of owners is the same as
that agent's: it differs for a moment after each change.

With --watch a change is one of members, states, weights or tables; ages and loads
alone are none, unless the terminal can be drawn over.`,
		Example: `  roost members
  roost members --watch
  roost members --addr 127.0.0.1:8402 --output json`,
		Args: cobra.NoArgs,
	}, time.Second, viewMembers, ownershipNews)
}

func viewMembers(ctx context.Context, s *session) (view, error) {
	m, err := s.Members(ctx)
	lasting := m
	lasting.Members = slices.Clone(m.Members)
	for i := range lasting.Members {
		n := &lasting.Members[i]
		n.AgeMS, n.Load, n.ClockOffsetMS = 0, 0, 0
	}
	return view{answer: m, counts: lasting, page: tablePage("ID\tSTATE\tGOSSIP\tAGE\tWEIGHT\tLOAD\tZONE\tTABLE", func(row func(...any)) {
		for _, n := range m.Members {
			row(marked(n.ID, m.Self), stateOf(n), n.Addr, age(n.AgeMS), n.Weight, loadOf(n), orDash(n.Zone), sameOrNot(n.InSync))
		}
	})}, err
}

// ownershipNews tells of changes of members and owners.
func ownershipNews(ctx context.Context, s *session, changed chan<- struct{}) {
	nudge(ctx, s.Events, changed)
}

func (p *program) partitionsCommand() *cobra.Command {
	return p.viewCommand(&cobra.Command{
		Use:   "partitions [flags]",
		Short: "Show how many partitions each member owns",
		Long: `Show how many partitions each member owns, how evenly they are spread (the
greatest share over the mean, and the coefficient of variation), and how many
members run another table than the agent that is asked. With --output json the
whole table is printed: keep it for roost diff and roost plan.`,
		Example: `  roost partitions
  roost partitions --output json | jq '.owners[17]'
  roost partitions --output json > before.json`,
		Args: cobra.NoArgs,
	}, time.Second, viewPartitions, ownershipNews)
}

func viewPartitions(ctx context.Context, s *session) (view, error) {
	t, err := s.Partitions(ctx)
	return view{answer: t, counts: t, page: tablePage("OWNER\tPARTITIONS\tSHARE", func(row func(...any)) {
		for _, id := range slices.Sorted(maps.Keys(t.Counts)) {
			row(orDash(string(id)), t.Counts[id], percent(float64(t.Counts[id])/float64(max(1, t.Partitions))))
		}
	}, balanceOf(t))}, err
}

func (p *program) placeCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "place KEY... [flags]",
		Short: "Tell who owns a key",
		Long: `Tell which member owns each key. A key is any text; it need not exist anywhere.
API is what the owner was started with as --api-addr.`,
		Example: `  roost place room-17
  roost place room-17 room-18 --output json     one object a line`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), keysNotEmpty),
	}, func(ctx context.Context, s *session, keys []string) error {
		placed := make([]clusterhttp.Placed, len(keys))
		for i, key := range keys {
			var err error
			if placed[i], err = s.placeOne(ctx, key); err != nil {
				return fmt.Errorf("place %q: %w", key, err)
			}
			if s.json {
				if err := s.printJSON(placed[i]); err != nil {
					return err
				}
			}
		}
		if s.json {
			return nil
		}
		return s.table("KEY\tPARTITION\tOWNER\tGOSSIP\tAPI", func(row func(...any)) {
			for _, a := range placed {
				row(printable(a.Key), a.Partition, a.Owner.ID, a.Owner.Addr, orDash(a.Owner.APIAddr))
			}
		})
	})
}

// keysNotEmpty catches scripts whose variable is not set.
func keysNotEmpty(_ *cobra.Command, keys []string) error {
	if slices.Contains(keys, "") {
		return errors.New("a key is empty")
	}
	return nil
}

func (s *session) placeOne(ctx context.Context, key string) (clusterhttp.Placed, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	return s.Place(ctx, key)
}

func (p *program) ownersCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "owners KEY [-n N] [flags]",
		Short: "List the best members for a key, and why",
		Long: `List the N best members for a key: its owner, then who would own it without the
owner, and so on. That is where replicas belong. The last line says why the key's
partition is where it is.`,
		Example: `  roost owners room-17
  roost owners room-17 -n 2 --output json`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), keysNotEmpty),
	}, func(ctx context.Context, s *session, keys []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		a, err := s.Owners(ctx, keys[0], s.number)
		if err != nil || s.json {
			return s.finish(a, err)
		}
		return s.table("RANK\tID\tSTATE\tGOSSIP\tAPI", func(row func(...any)) {
			for i, m := range a.Owners {
				row(i+1, m.ID, m.State, m.Addr, orDash(m.APIAddr))
			}
		}, fmt.Sprintf("\npartition %d: %s\n", a.Partition, printable(a.Why)))
	}, setting[clientOptions]{
		name: "number", short: "n", arg: "N", def: "3", usage: "list this many, at most 100",
		apply: setNumber(1, 100, func(o *clientOptions, n int64) { o.number = int(n) }),
	})
}

// table prints a header, the rows that fill adds, and what is to follow.
func (s *session) table(header string, fill func(row func(cells ...any)), after ...string) error {
	columns, _ := s.term.size()
	return s.printLines(tablePage(header, fill, after...)(columns))
}

// tablePage returns such a table, to be laid out.
func tablePage(header string, fill func(row func(cells ...any)), after ...string) func(columns int) []line {
	t := newSheet(header)
	fill(t.row)
	return func(columns int) []line {
		return append(t.lines(columns), textLines(strings.Join(after, ""))...)
	}
}

func (s *session) printLines(lines []line) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.in(s.term.colours) + "\n")
	}
	_, err := io.WriteString(s.out, b.String())
	return err
}

func balanceOf(t clusterhttp.Partitions) string {
	text := fmt.Sprintf("\n%d partitions by %s, max/mean %.2f, variation %s\n",
		t.Partitions, printable(t.Strategy), t.Balance.MaxMean, percent(t.Balance.CV))
	text += fmt.Sprintf("table %s, version %d at this agent, %s\n", t.Digest, t.Version, driftOf(t.Drift))
	if t.Balance.Advice != "" {
		text += printable(t.Balance.Advice) + "\n"
	}
	return text
}

// driftOf says how many members run another table than the agent.
func driftOf(members int) string {
	switch members {
	case 0:
		return "the same at every member"
	case 1:
		return "another one at 1 member: see roost members"
	}
	return fmt.Sprintf("another one at %d members: see roost members", members)
}

func marked(id, self lease.NodeID) string {
	if id == self {
		return string(id) + " *"
	}
	return string(id)
}

func age(ms int64) string {
	return time.Duration(ms * int64(time.Millisecond)).Round(100 * time.Millisecond).String()
}

func loadOf(m clusterhttp.Member) string {
	if m.Capacity == 0 {
		return strconv.FormatInt(m.Load, 10)
	}
	return fmt.Sprintf("%d of %d", m.Load, m.Capacity)
}

func sameOrNot(inSync bool) toned {
	if inSync {
		return toned{text: "same"}
	}
	return toned{"differs", warning}
}

func stateOf(m clusterhttp.Member) toned {
	tones := map[lease.State]tone{lease.Active: good, lease.Settling: warning, lease.Draining: warning, lease.Left: bad}
	return toned{m.State.String(), tones[m.State]}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

func orDash(s string) string { return printable(cmp.Or(s, "-")) }

// printable shows text of others, who may have put line breaks or terminal
// controls into it, so that it can do no harm.
func printable(s string) string {
	quoted := strconv.Quote(s)
	if quoted[1:len(quoted)-1] == s {
		return s
	}
	return quoted
}
