package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

// span accepts a duration or 0.
func span(to *time.Duration, given *bool) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		switch {
		case err != nil || d < 0:
			return errors.New("want a duration such as 30s or 10m, or 0")
		case d > 0 && d < time.Millisecond: // the API would treat it as 0
			return errors.New("want 1ms or more, or 0")
		}
		*to, *given = d, true
		return nil
	}
}

func (p *program) cordonCommand() *cobra.Command {
	var d time.Duration
	var reason string
	cmd := p.clientCommand(&cobra.Command{
		Use:   "cordon ID --for DURATION [flags]",
		Short: "Take a node out for all members",
		Long: `Take a live node out that does harm: it owns nothing until the cordon ends, in the
view of all members. It stays a member, and a restart of the node does not end the cordon.
Any agent takes the command. See roost uncordon to end a cordon early.

The command succeeds when every member has agreed; if that takes longer than
--timeout it fails, and the cordon still spreads.`,
		Example: `  roost cordon node-b --for 10m --reason disk-errors`,
		Args:    takes("ID"),
	}, func(ctx context.Context, s *session.Session, args []string) error {
		switch {
		case d == 0:
			return settings.UsageError("for how long? give --for DURATION; roost uncordon ends a cordon")
		case d > lease.MaxCordonTime:
			return settings.UsageError(fmt.Sprintf("--for %v: at most %v", d, lease.MaxCordonTime))
		}
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		e, err := s.Cordon(ctx, lease.NodeID(args[0]), d, reason)
		if err != nil {
			return err
		}
		state := fmt.Sprintf("%s is cordoned for %v", e.ID, d)
		return agreed(s, e, e.Converged, state, state+", and every member has agreed")
	},
		settings.Setting{Name: "for", Arg: "DURATION", FlagOnly: true, Set: span(&d, new(bool)), Usage: "how long, at most 24h"},
		settings.Setting{Name: "reason", Arg: "TEXT", FlagOnly: true, Set: settings.Text(&reason), Usage: "shown by roost members; one line"},
	)
	p.suggestArgs(cmd, memberIDs)
	return cmd
}

func (p *program) uncordonCommand() *cobra.Command {
	cmd := p.clientCommand(&cobra.Command{
		Use:   "uncordon ID [flags]",
		Short: "End the cordon of a node",
		Long: `End the cordon of a node before its time. Any agent takes the command. It succeeds
when every member has agreed; if that takes longer than --timeout it fails, and the
end of the cordon still spreads.`,
		Example: `  roost uncordon node-b`,
		Args:    takes("ID"),
	}, func(ctx context.Context, s *session.Session, args []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		e, err := s.Uncordon(ctx, lease.NodeID(args[0]))
		if err != nil {
			return err
		}
		state := fmt.Sprintf("%s is not cordoned", e.ID)
		return agreed(s, e, e.Converged, state, state+", and every member has agreed")
	})
	p.suggestArgs(cmd, memberIDs)
	return cmd
}

func (p *program) healthCommand() *cobra.Command {
	var ttl time.Duration
	var given bool
	return p.clientCommand(&cobra.Command{
		Use:   "health --ttl DURATION [flags]",
		Short: "Report that a node's application is healthy",
		Long: `Report to the agent that the application next to it is healthy, and that the next report
follows within --ttl. Without that report the node owns nothing, and stays a member,
until two reports follow each other in time. --ttl 0 ends that: no report is expected.`,
		Example: `  curl -fs localhost:3000/health && roost health --ttl 15s     every 5 s, from a timer
  roost health --ttl 0`,
		Args: noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if !given {
			return settings.UsageError("until when is the next report due? give --ttl DURATION")
		}
		return call(func(ctx context.Context, s *session.Session, _ []string) (clusterhttp.Changed, error) {
			return s.ReportHealth(ctx, ttl)
		}, func(c clusterhttp.Changed) string {
			if ttl == 0 {
				return fmt.Sprintf("%s expects no further report", c.Self)
			}
			return fmt.Sprintf("%s expects the next report within %v", c.Self, ttl)
		})(ctx, s, nil)
	}, settings.Setting{
		Name: "ttl", Arg: "DURATION", FlagOnly: true, Set: span(&ttl, &given),
		Usage: "when the next report is late, 100ms to 1h; 0: no report is expected",
	})
}
