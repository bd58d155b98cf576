package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) drainCommand() *cobra.Command {
	var away bool
	var rate int
	var deadline time.Duration
	return p.clientCommand(&cobra.Command{
		Use:   "drain [flags]",
		Short: "Make a node give up what it owns",
		Long: `Make the agent's node give up everything it owns. The node stays a member, but owns nothing
until roost undrain. The command succeeds when every member agrees. If that takes longer than
--timeout, the command fails and the node keeps draining.

With --rooms, the agent moves the node's rooms to other nodes one by one, even after Ctrl-C,
until roost undrain. Your application must serve each room until its clients have moved.`,
		Example: `  roost drain && systemctl stop media-server
  roost drain --rooms --rate 50 --deadline 10m && systemctl stop media-server
  roost drain --addr 10.0.0.7:8401 --token-file roost.token --insecure --timeout 1m`,
		Args: noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if away {
			return p.evacuate(ctx, s, rate, deadline)
		}
		if rate != 0 || deadline != 0 {
			return settings.UsageError("--rate and --deadline need --rooms")
		}
		return drainOrNot(ctx, s, "draining: it owns nothing, and every member has agreed"+afterDrain, s.Drain)
	},
		settings.Setting{
			Name: "rooms", Arg: "bool", FlagOnly: true, Set: settings.Bool(&away),
			Usage: "also move the node's rooms to other nodes, and wait until no room is left",
		},
		settings.Setting{
			Name: "rate", Arg: "N", FlagOnly: true, Set: settings.Number(&rate, 1, 100_000),
			Usage: "number of rooms to move per second (default 10)",
		},
		settings.Setting{
			Name: "deadline", Arg: "DURATION", FlagOnly: true, Set: settings.Duration(&deadline),
			Usage: "move faster than --rate if necessary to finish in this time, and fail if a room is left then",
		},
	)
}

// afterDrain tells the user what to do after a drain.
const afterDrain = "\nNext: stop it now, or later take it back with roost undrain"

// evacuate drains the node and waits until no room is left on it.
func (p *program) evacuate(ctx context.Context, s *session.Session, rate int, deadline time.Duration) error {
	asked, cancel := s.Bound(ctx)
	c, err := s.Evacuate(asked, rate, deadline)
	cancel()
	if err != nil {
		return err
	}
	at, err := p.watchEvacuation(ctx, s)
	if err != nil {
		return err
	}
	if at.Error != "" {
		if s.JSON {
			err = s.PrintJSON(at)
		}
		return cmp.Or(err, fmt.Errorf("%s is draining, but not empty: %s", c.Self, at.Error))
	}
	if !c.Converged { // the value from before the moves
		asked, cancel := s.Bound(ctx)
		defer cancel()
		if c, err = s.Drain(asked); err != nil {
			return err
		}
	}
	done := fmt.Sprintf("%s is draining: %s", c.Self, roomsOf(*at))
	return agreed(s, at, c.Converged, done, done+afterDrain)
}

// watchEvacuation waits until the evacuation ends. On a terminal, a line shows how many rooms are left. While
// Redis does not answer, no room moves, and watchEvacuation prints a warning, once per outage.
func (p *program) watchEvacuation(ctx context.Context, s *session.Session) (*affinity.Evacuation, error) {
	terminal := term.Of(p.stderr, p.getenv)
	if terminal.Moves {
		defer terminal.Replace(p.stderr, nil)
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	silent := false // Redis does not answer
	for answered := time.Now(); ; {
		asked, cancel := s.Bound(ctx)
		stats, err := s.Stats(asked)
		cancel()
		at := stats.Evacuation
		switch {
		case err != nil && time.Since(answered) > s.Timeout:
			return nil, err
		case err != nil: // the rooms keep moving
		case at == nil:
			return nil, errors.New("the agent has restarted and no longer moves rooms: repeat the command")
		case at.Over:
			return at, nil
		default:
			answered = time.Now()
			silent = p.sayIfSilent(terminal, stats, silent)
			if terminal.Moves {
				terminal.Replace(p.stderr, term.TextLine(fmt.Sprintf("%s: %s", stats.Self, roomsOf(*at))))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// sayIfSilent reports whether Redis fails to answer the agent. If it does, and before is false, sayIfSilent
// prints a warning.
func (p *program) sayIfSilent(terminal term.Terminal, stats clusterhttp.Stats, before bool) (silent bool) {
	if stats.Rooms == nil || stats.Rooms.StoreProblem == "" {
		return false
	}
	if !before {
		if terminal.Moves {
			terminal.Replace(p.stderr, nil)
		}
		term.Complain(p.stderr,
			fmt.Sprintf("warning: no room moves while Redis does not answer %s (%s)", stats.Self, term.Printable(stats.Rooms.StoreProblem)))
	}
	return true
}

func roomsOf(e affinity.Evacuation) string {
	text := fmt.Sprintf("%d rooms are left, %d have moved, %d have ended", e.Left, e.Moved, e.Ended)
	if e.Failed > 0 {
		text += fmt.Sprintf("; %d failed and will be retried: %s", e.Failed, term.Printable(e.Why))
	}
	return text
}

func (p *program) undrainCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "undrain [flags]",
		Short: "Let a drained node own keys again",
		Long: `Let the agent's node own keys again after roost drain or
roost agent --start-draining.`,
		Example: "  roost undrain",
		Args:    noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		return drainOrNot(ctx, s, "active, and every member has agreed", s.Undrain)
	})
}

// noNode rejects arguments. A user who gives one probably expects it to select the node.
func noNode(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: this command changes the agent's own node: name the agent with --addr", args[0])
}

func drainOrNot(ctx context.Context, s *session.Session, done string, call func(context.Context) (clusterhttp.Changed, error)) error {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	c, err := call(ctx)
	if err != nil {
		return err
	}
	return agreed(s, c, c.Converged, fmt.Sprintf("%s is %s", c.Self, c.State), fmt.Sprintf("%s is %s", c.Self, done))
}

// agreed prints an answer. It returns an error unless every member has agreed, because scripts continue after a
// success. started describes the change, and done says that all members have made it.
func agreed(s *session.Session, answer any, converged bool, started, done string) (err error) {
	if s.JSON {
		err = s.PrintJSON(answer)
	} else if converged {
		err = s.Say("%s", done)
	}
	if err == nil && !converged {
		err = fmt.Errorf("%s, but not every member has agreed within %v; the change keeps spreading: see roost members", started, s.Timeout)
	}
	return err
}

func (p *program) leaveCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "leave [flags]",
		Short: "Make a node leave the cluster",
		Long: `Make the agent's node give up what it owns and leave the cluster. Then the agent exits.
This takes seconds, and the command does not wait for it.`,
		Example: "  roost leave --addr 127.0.0.1:8402",
		Args:    noNode,
	}, call(func(ctx context.Context, s *session.Session, _ []string) (clusterhttp.Changed, error) {
		return s.Leave(ctx)
	}, func(c clusterhttp.Changed) string { return fmt.Sprintf("%s is leaving", c.Self) }))
}

func (p *program) weightCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "weight N [flags]",
		Short: "Change a node's share",
		Long: `Change the share of the agent's node relative to other nodes. A node with weight 200 owns
twice as much as a node with weight 100, and a node with weight 0 owns nothing. Partitions
move only to or from this node. A restart resets the weight to --weight of roost agent.`,
		Example: "  roost weight 200",
		Args:    takes("N"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.Changed, error) {
		n, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil || n > lease.MaxWeight {
			return clusterhttp.Changed{}, settings.UsageError(fmt.Sprintf("weight %q: want a whole number from 0 to %d", args[0], lease.MaxWeight))
		}
		return s.SetWeight(ctx, uint32(n))
	}, func(c clusterhttp.Changed) string { return fmt.Sprintf("%s has weight %d", c.Self, c.Weight) }))
}
