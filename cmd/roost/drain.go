package main

import (
	"context"
	"fmt"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/spf13/cobra"
)

func (p *program) drainCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "drain [flags]",
		Short: "Have a node give up what it owns",
		Long: `Have the agent's node give up everything it owns. It stays a member and owns
nothing until roost undrain. The command succeeds when every member has agreed to
that; if that takes longer than --timeout it fails, and the node stays draining.`,
		Example: `  roost drain && systemctl stop media-server
  roost drain --addr 10.0.0.7:8401 --token-file roost.token --timeout 1m`,
		Args: noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		return drainOrNot(ctx, s, "draining: it owns nothing, and every member has agreed", s.Drain)
	})
}

func (p *program) undrainCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "undrain [flags]",
		Short: "Have a drained node own keys again",
		Long: `Have the agent's node own keys again, after roost drain or
roost agent --start-draining.`,
		Example: "  roost undrain",
		Args:    noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		return drainOrNot(ctx, s, "active, and every member has agreed", s.Undrain)
	})
}

// noNode rejects arguments, which users may mean as the name of the node.
func noNode(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: this command changes the agent's own node: name the agent by --addr", args[0])
}

// drainOrNot drains or undrains. Scripts stop a node after its drain, so the command fails
// until every member has agreed.
func drainOrNot(ctx context.Context, s *session.Session, done string, call func(context.Context) (clusterhttp.Changed, error)) error {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	c, err := call(ctx)
	if err != nil {
		return err
	}
	if s.JSON {
		err = s.PrintJSON(c)
	} else if c.Converged {
		err = s.Say("%s is %s", c.Self, done)
	}
	if err == nil && !c.Converged {
		err = fmt.Errorf("%s is %s, but not every member has agreed within %v; it stays that way: see roost members", c.Self, c.State, s.Timeout)
	}
	return err
}

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
