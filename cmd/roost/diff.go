package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/spf13/cobra"
)

func (p *program) diffCommand() *cobra.Command {
	return p.localCommand(&cobra.Command{
		Use:   "diff OLD NEW [flags]",
		Short: "Compare two tables: what moved from which node to which",
		Long: `Compare two tables of owners that roost partitions --output json has printed: what moved, and
how evenly the partitions were and are spread. OLD and NEW are files; - means standard input.
The expected minimum is the number of partitions that any strategy has to move so that nodes
that are gone own nothing and new nodes get their fair share.`,
		Example: `  roost partitions --output json > before.json
  roost partitions --output json | roost diff before.json -
  roost diff before.json after.json --output json | jq '.moves | length'`,
		Args: takes("OLD", "NEW"),
	}, "json prints every move, the expected minimum, and the balance before and after", func(s *session.Session, args []string) error {
		if args[0] == "-" && args[1] == "-" {
			return settings.UsageError("OLD and NEW are both standard input: give a file for one of them")
		}
		before, err := p.readTable(args[0])
		if err != nil {
			return err
		}
		after, err := p.readTable(args[1])
		if err != nil {
			return err
		}
		return change{before: before.table, after: after.table, was: before.Strategy, is: after.Strategy}.print(s)
	})
}

// snapshot is a table together with the JSON document that it was read from.
type snapshot struct {
	clusterhttp.Partitions
	table *placement.Table
}

// maxTable limits how many bytes are read from a file. The largest possible table takes about 10 MB.
const maxTable = 32 << 20

// readTable reads a table in the format that roost partitions --output json prints.
func (p *program) readTable(path string) (s snapshot, err error) {
	b, err := p.readFile(path)
	if err == nil {
		err = json.Unmarshal(b, &s.Partitions)
	}
	if err == nil {
		s.table, err = s.Table()
	}
	if failed, ok := errors.AsType[*fs.PathError](err); err == nil || ok && failed.Op == "open" {
		return s, err
	}
	name := term.Printable(path)
	if path == "-" {
		name = "standard input"
	}
	reason := strings.TrimPrefix(err.Error(), "placement: import: ")
	return s, fmt.Errorf("%s: %s\ncreate such a file with: roost partitions --output json > FILE", name, reason)
}

func (p *program) readFile(path string) ([]byte, error) {
	in := p.stdin
	if path != "-" {
		f, err := os.Open(path) //nolint:gosec // the user names the file
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxTable+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxTable:
		return nil, fmt.Errorf("it is larger than %d MB, and no table is that large", maxTable>>20)
	case len(b) == 0:
		return nil, errors.New("it is empty")
	}
	return b, nil
}

// change consists of two tables, and describes how the cluster gets from the first to the second.
type change struct {
	before, after *placement.Table
	was, is       string // strategies of before and after

	planned    bool             // the change has not been made
	divergence int              // number of members that still have a different table
	first      *placement.Table // the table that takes effect at once
	passes     int              // passes of least-partitions that follow
}

// resharded is the JSON output if the two tables have different numbers of partitions.
type resharded struct {
	Moves       []placement.Move  `json:"moves"`        // null, because partitions cannot be compared
	ExpectedMin *int              `json:"expected_min"` // null for the same reason
	Before      placement.Balance `json:"before"`
	After       placement.Balance `json:"after"`
	KeysMoved   float64           `json:"keys_moved"` // share of all keys
}

// print prints the difference between the tables.
func (c change) print(s *session.Session) error {
	d := placement.Diff(c.before, c.after)
	keys := placement.KeysMoved(c.before, c.after)
	switch {
	case s.JSON && d.Moves == nil:
		return s.PrintJSON(resharded{Before: d.Before, After: d.After, KeysMoved: keys})
	case s.JSON:
		return s.PrintJSON(d)
	}
	columns, _ := s.Term.Size()
	page := append(term.TextLines(c.summary(d, keys)), c.nodes(d)(columns)...)
	if len(d.Moves) > 0 {
		page = append(append(page, term.Line{}), flows(d.Moves)(columns)...)
	}
	text := fmt.Sprintf("\nmax/mean %.2f -> %.2f, variation %s -> %s\n",
		d.Before.MaxMean, d.After.MaxMean, term.Percent(d.Before.CV), term.Percent(d.After.CV))
	if advice := d.After.Advice(); advice != "" {
		text += advice + "\n"
	}
	return s.PrintLines(append(page, term.TextLines(text)...))
}

// summary describes in a few lines what moves.
func (c change) summary(d placement.Changes, keys float64) string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	move := "moved"
	if c.planned {
		move = "would move"
	}
	if d.Moves == nil {
		line("from %d to %d partitions: %s of all keys %s", c.before.Partitions(), c.after.Partitions(), term.Percent(keys), move)
		line("(exact for keys that hash evenly; old and new partitions contain different keys, so there")
		line("are no moves to list, and each node acquires everything that it owns)")
	} else {
		line("%d of %d partitions %s (%s); expected minimum %d", len(d.Moves), c.after.Partitions(), move, term.Percent(keys), d.ExpectedMin)
	}
	if len(c.after.Nodes()) == 0 {
		line("no remaining node may own anything")
	}
	if c.passes > 0 {
		line("by %s: %d at once, then %d in %d passes", c.is,
			len(placement.Diff(c.before, c.first).Moves), len(placement.Diff(c.first, c.after).Moves), c.passes)
	}
	if c.was != c.is {
		line("strategy %s -> %s", term.Printable(c.was), term.Printable(c.is))
	}
	if c.planned && (c.was != c.is || d.Moves == nil) {
		line("all nodes must have the same partitions and strategy: stop all nodes, then start them with the new values")
	}
	if c.divergence > 0 {
		line("the cluster is changing: plan again when roost members shows the same table everywhere")
	}
	return b.String() + "\n"
}

// nodes lists how many partitions each node has before and after.
func (c change) nodes(d placement.Changes) func(columns int) []term.Line {
	weight := make(map[lease.NodeID][2]uint32)
	for at, t := range []*placement.Table{c.before, c.after} {
		for _, n := range t.Nodes() {
			w := weight[n.ID]
			w[at] = n.Weight
			weight[n.ID] = w
		}
	}
	return term.Page("NODE\tWEIGHT\tBEFORE\tAFTER\tCHANGE", func(row func(...any)) {
		for _, id := range slices.Sorted(maps.Keys(weight)) {
			had, has := d.Before.Counts[id], d.After.Counts[id]
			moved := fmt.Sprintf("%+d", has-had)
			if d.Moves == nil { // the counts refer to different partitions
				moved = fmt.Sprintf("%+.1f%%", 100*(float64(has)/float64(c.after.Partitions())-float64(had)/float64(c.before.Partitions())))
			}
			weights := fmt.Sprint(weight[id][0])
			if weight[id][0] != weight[id][1] {
				weights += fmt.Sprintf(" -> %d", weight[id][1])
			}
			row(id, weights, had, has, moved)
		}
	})
}

// maxFlows limits how many lines of moves between nodes are printed. After a change of strategy, there could be a line
// for each pair of nodes.
const maxFlows = 20

// flows lists how many partitions moved between each pair of nodes.
func flows(moves []placement.Move) func(columns int) []term.Line {
	type flow struct{ from, to lease.NodeID }
	count := make(map[flow]int)
	for _, m := range moves {
		count[flow{m.From, m.To}]++
	}
	ways := slices.SortedFunc(maps.Keys(count), func(a, b flow) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	shown := min(len(ways), maxFlows)
	rest := ""
	if others := len(ways) - shown; others > 0 {
		rest = fmt.Sprintf("and %d smaller moves; --output json lists every move\n", others)
	}
	return term.Page("FROM\tTO\tPARTITIONS", func(row func(...any)) {
		for _, f := range ways[:shown] {
			row(term.OrDash(string(f.from)), term.OrDash(string(f.to)), count[f])
		}
	}, rest)
}
