package main

import (
	"context"
	"fmt"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/spf13/cobra"
)

func (p *program) leaveCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "leave [flags]",
		Short: "Have a node leave the cluster",
		Long: `Have the agent's node give up what it owns, leave the cluster and end. The command
does not wait for that; it takes seconds.`,
		Example: "  roost leave --addr 127.0.0.1:8402",
		Args:    noNode,
	}, call(func(ctx context.Context, s *session.Session, _ []string) (clusterhttp.Changed, error) {
		return s.Leave(ctx)
	}, func(c clusterhttp.Changed) string { return fmt.Sprintf("%s is leaving", c.Self) }))
}
