package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
	"github.com/spf13/cobra"
)

// planOptions are what roost plan asks about.
type planOptions struct {
	add, weight []placement.Node // nothing but id and weight
	remove      []lease.NodeID
	partitions  int                // 0: as it is
	strategy    placement.Strategy // nil: as it is
	from        string
}

func (o planOptions) empty() bool {
	return len(o.add)+len(o.weight)+len(o.remove)+o.partitions == 0 && o.strategy == nil
}

const defaultWeight = 100 // of roost agent

func (p *program) planCommand() *cobra.Command {
	cmd := p.clientCommand(&cobra.Command{
		Use:   "plan [flags]",
		Short: "Tell what would move, before it does",
		Long: `Tell what would move if nodes came, went or changed their weight, or if the whole
cluster ran with other settings. It starts from the table of the agent that is
asked, or from a file that roost partitions --output json has written. Nothing is
changed.

` + changesLong + `

Partitions and strategy must be the same on all nodes, so to change them is to
start a new cluster. With another number of partitions none of them corresponds
to one from before: then it tells which share of all keys changes owner.

With the strategy least-partitions a change takes effect in passes, a few moves
each; what is shown is where they come to rest. How many partitions move is
certain; which ones may differ, since agents also know which ones moved last, and
keep those of a node that is away for it.`,
		Example: `  roost plan --add node-d
  roost plan --add node-d=200 --remove node-a
  roost plan --weight node-b=50
  roost plan --partitions 4096 --strategy bounded-rendezvous-110
  roost plan --remove node-c --from before.json --output json | jq '.moves | length'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		if s.plan.empty() {
			return usageError{"say what is to change: --add, --remove, --weight, --partitions or --strategy"}
		}
		now, err := s.tableNow(ctx, p)
		if err != nil {
			return err
		}
		c, err := s.plan.apply(now)
		if err != nil {
			return err
		}
		return s.printChanges(c)
	}, planSettings()...)
	_ = cmd.RegisterFlagCompletionFunc("add", cobra.NoFileCompletions)
	p.suggest(cmd, "remove", memberIDs)
	p.suggest(cmd, "weight", memberIDs)
	return cmd
}

func planSettings() []setting[clientOptions] {
	type o = clientOptions
	settings := []setting[o]{
		{
			name: "add", arg: "ID[=WEIGHT],...", many: true, usage: "nodes that come, of weight 100 unless it is given",
			apply: func(t *o, v string) error { return addNode(&t.plan.add, v, 1, defaultWeight) },
		},
		{
			name: "remove", arg: "ID,...", many: true, usage: "nodes that go",
			apply: func(t *o, v string) error {
				t.plan.remove = append(t.plan.remove, lease.NodeID(v))
				return nil
			},
		},
		{
			name: "weight", arg: "ID=N,...", many: true, usage: "nodes that get another weight; 0 is as if they drained",
			apply: func(t *o, v string) error { return addNode(&t.plan.weight, v, 0, -1) },
		},
		{
			name: "partitions", arg: "P", usage: "another number of partitions",
			apply: setNumber(1, placement.MaxPartitions, func(t *o, n int64) { t.plan.partitions = int(n) }),
		},
		{
			name: "strategy", arg: "NAME", usage: "another strategy: " + placement.Strategies,
			apply: setStrategy(func(t *o) *placement.Strategy { return &t.plan.strategy }),
		},
		{
			name: "from", arg: "FILE", usage: "start from this table instead of the agent's; - is the standard input",
			apply: setNonempty(func(t *o) *string { return &t.plan.from }),
		},
	}
	for i := range settings {
		settings[i].flagOnly = true
	}
	return settings
}

// addNode parses ID=WEIGHT. A weight that is missing is as given, or a fault if
// that is negative.
func addNode(nodes *[]placement.Node, v string, least, missing int64) error {
	id, text, ok := strings.Cut(v, "=")
	if !ok && missing < 0 {
		return fmt.Errorf("%q is not of the form id=weight", v)
	}
	if err := lease.NodeID(id).Validate(); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "lease: "))
	}
	weight := missing
	if ok {
		var err error
		if weight, err = strconv.ParseInt(text, 10, 64); err != nil || weight < least || weight > lease.MaxWeight {
			return fmt.Errorf("the weight of %s must be a whole number from %d to %d", id, least, lease.MaxWeight)
		}
	}
	*nodes = append(*nodes, placement.Node{ID: lease.NodeID(id), Weight: uint32(weight)})
	return nil
}

// tableNow returns the table to start from.
func (s *session) tableNow(ctx context.Context, p *program) (snapshot, error) {
	if s.plan.from != "" {
		return p.readTable(s.plan.from)
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	answer, err := s.Partitions(ctx)
	if err != nil {
		return snapshot{}, err
	}
	table, err := answer.Table()
	if err != nil {
		return snapshot{}, fmt.Errorf("the agent at %s is probably of another version of roost: %w", s.addr, err)
	}
	return snapshot{answer, table}, nil
}

// apply computes the table that would come of now.
func (o planOptions) apply(now snapshot) (change, error) {
	nodes, faults := o.nodes(now.table.Nodes())
	if len(faults) > 0 {
		return change{}, faulty(faults)
	}
	strategy := o.strategy
	if strategy == nil {
		var err error
		if strategy, err = placement.ParseStrategy(now.Strategy); err != nil {
			return change{}, fmt.Errorf("the table is placed by %q, which is not built into this program: "+
				"plan with another by --strategy, or in your own program with placement.Compute and placement.Diff", now.Strategy)
		}
	}
	in := placement.Input{Nodes: nodes, Strategy: strategy, Partitions: cmp.Or(o.partitions, now.table.Partitions())}
	if strategy.Name() == now.Strategy && in.Partitions == now.table.Partitions() && placement.Remembers(strategy) {
		in.Memory = assignment.Record(now.table, assignment.Coordinator{}) // else a new cluster starts, without a memory
	}
	first, err := placement.Compute(in)
	if err != nil {
		return change{}, errors.New(strings.TrimPrefix(err.Error(), "placement: "))
	}
	c := change{before: now.table, was: now.Strategy, is: strategy.Name(), planned: true, drift: now.Drift, first: first}
	c.after, c.passes = assignment.Levelled(first)
	return c, nil
}

// nodes returns what becomes of the candidates.
func (o planOptions) nodes(now []placement.Node) ([]placement.Node, []error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	next := slices.Clone(now)
	asked := make(map[lease.NodeID]bool)
	find := func(flag string, id lease.NodeID, want bool) int {
		at := slices.IndexFunc(now, func(n placement.Node) bool { return n.ID == id })
		switch {
		case asked[id]:
			fault("%s %s: the same node is named twice", flag, printable(string(id)))
		case at < 0 && want:
			fault("%s %s: no such node owns anything now; roost partitions lists those that do%s", flag, printable(string(id)), didYouMean(string(id), idsOf(now), ""))
		case at >= 0 && !want:
			fault("%s %s: it is there already; for another weight use --weight %s=N", flag, id, id)
		}
		asked[id] = true
		return at
	}
	for _, n := range o.add {
		if find("--add", n.ID, false) < 0 {
			next = append(next, n)
		}
	}
	for _, n := range o.weight {
		if at := find("--weight", n.ID, true); at >= 0 {
			next[at].Weight = n.Weight
		}
	}
	for _, id := range o.remove {
		if at := find("--remove", id, true); at >= 0 {
			next[at].Weight = 0
		}
	}
	return next, faults
}

func idsOf(nodes []placement.Node) []string {
	ids := make([]string, len(nodes))
	for i, n := range nodes {
		ids[i] = string(n.ID)
	}
	return ids
}
