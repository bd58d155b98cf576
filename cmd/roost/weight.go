package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) weightCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "weight N [flags]",
		Short: "Change a node's share",
		Long: `Change the share of the agent's node relative to others: a node of weight 200 owns
twice as much as one of 100, a node of weight 0 owns nothing. Only partitions to or
from this node move. A restart resets the weight: see --weight of roost agent.`,
		Example: "  roost weight 200",
		Args:    cobra.ExactArgs(1),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.Changed, error) {
		n, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || n > lease.MaxWeight {
			return clusterhttp.Changed{}, settings.UsageError(fmt.Sprintf("weight %q: want a whole number from 0 to %d", args[0], lease.MaxWeight))
		}
		return s.SetWeight(ctx, uint32(n))
	}, func(c clusterhttp.Changed) string { return fmt.Sprintf("%s has weight %d", c.Self, c.Weight) }))
}
