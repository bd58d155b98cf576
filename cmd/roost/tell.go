package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
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
		Args: noNode,
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
		Args:    noNode,
	}, func(ctx context.Context, s *session, _ []string) error {
		return s.change(ctx, "active, and every member has agreed", s.Undrain)
	})
}

// noNode refuses arguments. Somebody may think that they name the node.
func noNode(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: this is done to the node whose agent is asked: name that by --addr", args[0])
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
		err = s.say("%s is %s", c.Self, done)
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
		Args:    noNode,
	}, func(ctx context.Context, s *session, _ []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		c, err := s.Leave(ctx)
		if err != nil || s.json {
			return s.finish(c, err)
		}
		return s.say("%s is leaving", c.Self)
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
		return s.say("%s has weight %d", c.Self, c.Weight)
	})
}

func (p *program) watchCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "watch [flags]",
		Short: "Print changes as they happen",
		Long: `Print one line for each change that the agent sees, until Ctrl-C. At first it
prints what is so already: who is live, and what the agent's own node owns.
"moved" is about the whole cluster; "acquired" and "released" are about the
agent's own node.

If there is no agent at the start, that is a failure. One that goes away later is
waited for, and standard error says so. When it is back, what is so then is
printed first; what came and went meanwhile is not. --timeout is for other
commands.`,
		Example: `  roost watch
  roost watch --output json | jq -c '.joined, .left'     one batch of changes a line`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, s *session, _ []string) error {
		heard, away := false, false
		return again(ctx, s.Events, func(b events.Batch, _ bool) error {
			if away {
				complain(s.fault, s.answersAgain()+": what follows first is so now")
			}
			heard, away = true, false
			if s.json {
				return s.printJSON(b)
			}
			return s.printLines(batchLines(time.Now(), b))
		}, func(err error) error {
			if !heard {
				return err
			}
			if !away {
				complain(s.fault, "the agent at "+s.addr+" has ended, or is not reached; trying again")
			}
			away = true
			return nil
		})
	})
}
