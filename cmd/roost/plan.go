package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
	"github.com/spf13/cobra"
)

// plan has the arguments of roost plan.
type plan struct {
	add, weight []placement.Node // only id and weight are set
	remove      []lease.NodeID
	partitions  int                // 0 means unchanged
	strategy    placement.Strategy // nil means unchanged
	from        string
}

func (o *plan) empty() bool {
	return len(o.add)+len(o.weight)+len(o.remove)+o.partitions == 0 && o.strategy == nil
}

const defaultWeight = 100 // as for roost agent

func (p *program) planCommand() *cobra.Command {
	o := new(plan)
	cmd := p.clientCommand(&cobra.Command{
		Use:   "plan [flags]",
		Short: "Show what a change would move, before you make it",
		Long: `Show what would move if nodes joined, left or changed their weight, or if the cluster ran with
other settings. The plan starts from the agent's table, or from a file that you wrote with roost
partitions --output json. The command changes nothing. The expected minimum is the number of
partitions that any strategy has to move so that nodes that are gone own nothing and new nodes
get their fair share.

With --partitions or --strategy, the command plans a new cluster, because all nodes must have
the same values. It shows the share of all keys that would change their owner.`,
		Example: `  roost plan --add node-d
  roost plan --add node-d=200 --remove node-a
  roost plan --weight node-b=50
  roost plan --partitions 4096 --strategy bounded-rendezvous-110
  roost plan --remove node-c --from before.json --output json | jq '.moves | length'`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if o.empty() {
			return settings.UsageError("nothing to plan: give --add, --remove, --weight, --partitions or --strategy")
		}
		now, err := p.tableNow(ctx, s, o.from)
		if err != nil {
			return err
		}
		if now.Stale {
			term.Complain(s.Err, "this agent is isolated, fenced or stalled, so its table may be old: ask another agent")
		}
		c, err := o.apply(now)
		if err != nil {
			return err
		}
		return c.print(s)
	}, o.settings()...)
	_ = cmd.RegisterFlagCompletionFunc("add", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("remove", p.complete(memberIDs))
	_ = cmd.RegisterFlagCompletionFunc("weight", p.complete(memberIDs))
	return cmd
}

func (o *plan) settings() []settings.Setting {
	return []settings.Setting{
		{
			Name: "add", Arg: "ID[=WEIGHT],...", List: true, FlagOnly: true, Usage: "nodes that join, with weight 100 unless you give another",
			Set: func(v string) error { return addNode(&o.add, v, 1, defaultWeight) },
		},
		{
			Name: "remove", Arg: "ID,...", List: true, FlagOnly: true, Usage: "nodes that leave",
			Set: func(v string) error { o.remove = append(o.remove, lease.NodeID(v)); return nil },
		},
		{
			Name: "weight", Arg: "ID=N,...", List: true, FlagOnly: true, Usage: "nodes that get this weight; 0 plans for a drain",
			Set: func(v string) error { return addNode(&o.weight, v, 0, -1) },
		},
		{
			Name: "partitions", Arg: "P", FlagOnly: true, Usage: "plan for this number of partitions",
			Set: settings.Number(&o.partitions, 1, placement.MaxPartitions),
		},
		{Name: "strategy", Arg: "NAME", FlagOnly: true, Usage: "plan for this strategy: " + placement.Strategies, Set: settings.Strategy(&o.strategy)},
		{
			Name: "from", Arg: "FILE", FlagOnly: true,
			Usage: "start from the table in FILE instead of the agent's; - means standard input",
			Set:   settings.Nonempty(&o.from),
		},
	}
}

// addNode parses ID=WEIGHT or ID. If there is no weight, addNode uses missing. If missing is negative, the weight is
// required.
func addNode(nodes *[]placement.Node, v string, least, missing int64) error {
	id, text, ok := strings.Cut(v, "=")
	if !ok && missing < 0 {
		return fmt.Errorf("%q does not have the form id=weight", v)
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

// tableNow returns the table before the change, from a file or from an agent.
func (p *program) tableNow(ctx context.Context, s *session.Session, path string) (snapshot, error) {
	if path != "" {
		return p.readTable(path)
	}
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	answer, err := s.Partitions(ctx)
	if err != nil {
		return snapshot{}, err
	}
	table, err := answer.Table()
	if err != nil {
		return snapshot{}, fmt.Errorf("the agent at %s probably runs another version of roost: %w", s.Addr, err)
	}
	return snapshot{answer, table}, nil
}

// apply computes the table after the planned change.
func (o *plan) apply(now snapshot) (change, error) {
	nodes, problems := o.nodes(now.table.Nodes())
	if len(problems) > 0 {
		return change{}, settings.Problems(problems)
	}
	strategy := o.strategy
	if strategy == nil {
		var err error
		if strategy, err = placement.ParseStrategy(now.Strategy); err != nil {
			return change{}, fmt.Errorf("the table's strategy is %q, which is not built into this binary: "+
				"plan for another strategy with --strategy, or in your own application with placement.Compute and placement.Diff", now.Strategy)
		}
	}
	in := placement.Input{Nodes: nodes, Strategy: strategy, Partitions: cmp.Or(o.partitions, now.table.Partitions())}
	if strategy.Name() == now.Strategy && in.Partitions == now.table.Partitions() && placement.Remembers(strategy) {
		in.Memory = assignment.Record(now.table, assignment.Coordinator{}) // a new cluster would have no memory
	}
	first, err := placement.Compute(in)
	if err != nil {
		return change{}, errors.New(strings.TrimPrefix(err.Error(), "placement: "))
	}
	c := change{before: now.table, was: now.Strategy, is: strategy.Name(), planned: true, divergence: now.Diverged, first: first}
	c.after, c.passes = assignment.Levelled(first)
	return c, nil
}

// nodes returns the candidate owners after the change, and all problems.
func (o *plan) nodes(now []placement.Node) ([]placement.Node, []error) {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	next := slices.Clone(now)
	ids := idsOf(now)
	seen := make(map[lease.NodeID]bool)
	find := func(flag string, id lease.NodeID, want bool) int {
		at := slices.Index(ids, string(id))
		switch {
		case seen[id]:
			problem("%s %s: the same node is named twice", flag, term.Printable(string(id)))
		case at < 0 && want:
			problem("%s %s: no node of this name owns anything now; roost partitions lists the owners%s",
				flag, term.Printable(string(id)), settings.DidYouMean(string(id), ids, ""))
		case at >= 0 && !want:
			problem("%s %s: this node is already there; to change its weight, use --weight %s=N", flag, id, id)
		}
		seen[id] = true
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
	return next, problems
}

func idsOf(nodes []placement.Node) (ids []string) {
	for _, n := range nodes {
		ids = append(ids, string(n.ID))
	}
	return ids
}
