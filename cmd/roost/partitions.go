package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) partitionsCommand() *cobra.Command {
	f := &session.Viewer{Every: time.Second, Ask: viewPartitions, News: newsOfOwners}
	return p.scopedCommand(&cobra.Command{
		Use:   "partitions [flags]",
		Short: "Show how many partitions each member owns",
		Long: `Show how many partitions each member owns, how evenly they are spread (the
largest share divided by the mean, and the coefficient of variation), and how
many members have a different table than the agent. With --output json, the
command prints the whole table, which you can save for roost diff and roost plan.`,
		Example: `  roost partitions
  roost partitions --output json | jq '.owners[17]'
  roost partitions --output json > before.json`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error { return f.Run(ctx, s) }, f.Settings()...)
}

func viewPartitions(ctx context.Context, s *session.Session) (session.View, error) {
	t, err := s.Partitions(ctx)
	return session.View{Answer: t, Counts: t, Page: term.Page("OWNER\tPARTITIONS\tSHARE", func(row func(...any)) {
		for _, id := range slices.Sorted(maps.Keys(t.Counts)) {
			row(term.OrDash(string(id)), t.Counts[id], term.Percent(float64(t.Counts[id])/float64(max(1, t.Partitions))))
		}
	}, balanceOf(t, s.Scope))}, err
}

func balanceOf(t clusterhttp.Partitions, scope string) string {
	divergence := "the same on every member"
	switch {
	case t.Stale:
		divergence = "not compared with others:\n" + staleTable
	case scope != "":
		divergence = "not compared with other members, which do not report the tables of their scopes"
	case t.Diverged > 0:
		divergence = fmt.Sprintf("a different one at %s: see roost members", term.Plural(t.Diverged, "member"))
	}
	text := fmt.Sprintf("\n%d partitions by %s, max/mean %.2f, variation %s\ntable %s, version %d at this agent, %s\n",
		t.Partitions, term.Printable(t.Strategy), t.Balance.MaxMean, term.Percent(t.Balance.CV), t.Digest, t.Version, divergence)
	if t.Balance.Advice != "" {
		text += term.Printable(t.Balance.Advice) + "\n"
	}
	return text
}
