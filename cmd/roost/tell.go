package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) drainCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "drain [flags]",
		Short: "Have a node give up what it owns",
		Long: `Have the node of the agent that is asked give up everything it owns. It stays a
member and owns nothing until roost undrain. The command ends well when every
member has agreed to that; if that takes longer than --timeout it fails, and the
draining goes on.`,
		Example: `  roost drain && systemctl stop media-server
  roost drain --addr 10.0.0.7:8401 --token-file roost.token --timeout 1m`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		return s.change(ctx, "draining: it owns nothing, and every member has agreed", s.Drain)
	})
}

func (p *program) undrainCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "undrain [flags]",
		Short: "Have a drained node own keys again",
		Long: `Have the node of the agent that is asked own keys again, after roost drain or
roost agent --start-draining.`,
		Example: "  roost undrain",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		return s.change(ctx, "active, and every member has agreed", s.Undrain)
	})
}

// change runs Drain or Undrain. Scripts stop a node after it was drained, so it
// fails as long as not everybody has agreed.
func (s *session) change(ctx context.Context, done string, call func(context.Context) (clusterhttp.Changed, error)) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	c, err := call(ctx)
	if err != nil {
		return err
	}
	if s.json {
		err = s.printJSON(c)
	} else if c.Converged {
		_, err = fmt.Fprintf(s.out, "%s is %s\n", c.Self, done)
	}
	if err == nil && !c.Converged {
		err = fmt.Errorf("%s is %s, but not every member has agreed within %v; it goes on: see roost members", c.Self, c.State, s.timeout)
	}
	return err
}

func (p *program) leaveCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "leave [flags]",
		Short: "Have a node leave the cluster",
		Long: `Have the node of the agent that is asked give up what it owns, say farewell and
end. The command does not wait for that; it takes seconds.`,
		Example: "  roost leave --addr 127.0.0.1:8402",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		c, err := s.Leave(ctx)
		if err != nil || s.json {
			return s.finish(c, err)
		}
		_, err = fmt.Fprintf(s.out, "%s is leaving\n", c.Self)
		return err
	})
}

func (p *program) weightCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "weight N [flags]",
		Short: "Change a node's share",
		Long: `Change the share of the node of the agent that is asked, relative to others: one
of weight 200 owns twice as much as one of 100, one of 0 owns nothing. Only
partitions to or from this node move. A restart forgets it: see --weight of
roost agent.`,
		Example: "  roost weight 200",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, s *session, args []string) error {
		n, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || n > lease.MaxWeight {
			return usageError{fmt.Sprintf("weight %q: want a whole number from 0 to %d", args[0], lease.MaxWeight)}
		}
		ctx, cancel := s.bound(ctx)
		defer cancel()
		c, err := s.SetWeight(ctx, uint32(n))
		if err != nil || s.json {
			return s.finish(c, err)
		}
		_, err = fmt.Fprintf(s.out, "%s has weight %d\n", c.Self, c.Weight)
		return err
	})
}

func (p *program) watchCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "watch [flags]",
		Short: "Print changes as they happen",
		Long: `Print one line for each change that the agent sees, until Ctrl-C or until the
agent ends, which is a failure. At first it prints what is so already: who is
live, and what the agent's own node owns. "moved" is about the whole cluster;
"acquired" and "released" are about the agent's own node. --timeout is for
other commands.`,
		Example: `  roost watch
  roost watch --output json | jq -c '.joined, .left'     one batch of changes a line`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		for b, err := range s.Events(ctx) {
			switch {
			case errors.Is(err, io.EOF):
				return errors.New("the agent has ended, or its server has")
			case err == nil && s.json:
				err = s.printJSON(b)
			case err == nil:
				err = printBatch(s.out, time.Now(), b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
