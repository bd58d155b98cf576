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
		Short: "Stop a node from owning anything",
		Long: `Stop a live but harmful node from owning anything until the cordon ends. Other members
take over its partitions. The node stays a member, and restarting it does not end the
cordon. You can send the command to any agent. To end a cordon early, use roost uncordon.

The command succeeds when every member has agreed. If that takes longer than --timeout,
the command fails, but the cordon still spreads.`,
		Example: `  roost cordon node-b --for 10m --reason disk-errors`,
		Args:    takes("ID"),
	}, func(ctx context.Context, s *session.Session, args []string) error {
		switch {
		case d == 0:
			return settings.UsageError("--for is missing: give the duration of the cordon (to end a cordon, use roost uncordon)")
		case d > lease.MaxCordonTime:
			return settings.UsageError(fmt.Sprintf("--for %v: the maximum is %v", d, lease.MaxCordonTime))
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
		settings.Setting{Name: "for", Arg: "DURATION", FlagOnly: true, Set: span(&d, new(bool)), Usage: "how long the cordon lasts, at most 24h"},
		settings.Setting{Name: "reason", Arg: "TEXT", FlagOnly: true, Set: settings.Text(&reason), Usage: "the reason, in one line; roost members shows it"},
	)
	p.suggestArgs(cmd, memberIDs)
	return cmd
}

func (p *program) uncordonCommand() *cobra.Command {
	cmd := p.clientCommand(&cobra.Command{
		Use:   "uncordon ID [flags]",
		Short: "End the cordon of a node",
		Long: `End the cordon of a node early. You can send the command to any agent. It succeeds when
every member has agreed. If that takes longer than --timeout, the command fails, but the
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
will follow within --ttl. If that report is late, the node owns nothing, but stays a member,
until two reports in a row arrive in time. With --ttl 0, the agent expects no more reports.`,
		Example: `  curl -fs localhost:3000/health && roost health --ttl 15s     every 5 s, from a timer
  roost health --ttl 0`,
		Args: noNode,
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if !given {
			return settings.UsageError("--ttl is missing: give the time until the next report")
		}
		return call(func(ctx context.Context, s *session.Session, _ []string) (clusterhttp.Changed, error) {
			return s.ReportHealth(ctx, ttl)
		}, func(c clusterhttp.Changed) string {
			if ttl == 0 {
				return fmt.Sprintf("%s expects no more reports", c.Self)
			}
			return fmt.Sprintf("%s expects the next report within %v", c.Self, ttl)
		})(ctx, s, nil)
	}, settings.Setting{
		Name: "ttl", Arg: "DURATION", FlagOnly: true, Set: span(&ttl, &given),
		Usage: "time until the next report, 100ms to 1h; 0 means that no more reports will follow",
	})
}
