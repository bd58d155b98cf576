package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) reserveRoom() *cobra.Command {
	var demand affinity.Demand
	var until time.Time
	var lasts time.Duration
	return p.clientCommand(&cobra.Command{
		Use:   "reserve NAME --for DURATION|--until TIME [flags]",
		Short: "Keep capacity free for a room",
		Long: `Keep capacity free for a room that starts soon, and show the node of the room. The node
counts the reservation as load from now on, so other rooms go elsewhere. The participants
of the room use up the reservation. If no node has headroom, nothing is reserved. The
reservation replaces an earlier one for the room. roost reservations lists all of them.`,
		Example: `  roost room reserve town-hall --units 500 --for 90m
  roost room reserve town-hall --size 20 --until 11:00`,
		Args: roomArgs("NAME"),
	}, func(ctx context.Context, s *session.Session, args []string) error {
		end := until
		switch {
		case (lasts == 0) == until.IsZero():
			return settings.UsageError("give --for or --until: how long the reservation lasts")
		case lasts > 0:
			end = time.Now().Add(lasts)
		}
		return call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.RoomAssignment, error) {
			return s.ReserveRoom(ctx, args[0], demand, end)
		}, func(a clusterhttp.RoomAssignment) string {
			return fmt.Sprintf("%v reserved for %s on %s until %s", demand, term.Printable(a.Room), a.Node.ID, end.Format(time.RFC3339))
		})(ctx, s, args)
	}, append(demandSettings(&demand),
		settings.Setting{Name: "for", Arg: "DURATION", FlagOnly: true, Set: span(&lasts, new(bool)), Usage: "how long the reservation lasts, at most 24h"},
		settings.Setting{Name: "until", Arg: "TIME", FlagOnly: true, Set: timeOfDay(&until), Usage: "when the reservation ends, such as 11:00 or 2026-03-01T11:00:00Z"},
	)...)
}

// timeOfDay accepts a time in RFC 3339, or HH:MM for the next such time on the clock of this machine.
func timeOfDay(to *time.Time) func(string) error {
	return func(v string) (err error) {
		if *to, err = time.Parse(time.RFC3339, v); err == nil {
			return nil
		}
		clock, err := time.Parse("15:04", v)
		if err != nil {
			return errors.New("want a time such as 11:00 or 2026-03-01T11:00:00Z")
		}
		now := time.Now()
		*to = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if !to.After(now) {
			*to = to.AddDate(0, 0, 1)
		}
		return nil
	}
}

func (p *program) unreserveRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "unreserve NAME [flags]",
		Short: "End the reservation of a room",
		Long: `End the reservation of a room early. A room with participants goes on. A room without
participants ends after about ten seconds.`,
		Example: `  roost room unreserve town-hall`,
		Args:    roomArgs("NAME"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.CancelledReservation, error) {
		return clusterhttp.CancelledReservation{Room: args[0]}, s.CancelReservation(ctx, args[0])
	}, func(a clusterhttp.CancelledReservation) string {
		return "nothing is reserved for " + term.Printable(a.Room) + " any more"
	}))
}

func (p *program) reservationsCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "reservations [flags]",
		Short: "List the rooms for which capacity is reserved",
		Long: `List the rooms for which capacity is reserved, with the node that keeps it free. Use
roost room reserve to reserve capacity.`,
		Example: `  roost reservations`,
		Args:    takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		list, err := s.Reservations(ctx)
		if err := s.Answer(list, err, func() string { return "" }); err != nil || s.JSON {
			return err
		}
		return s.Table("ROOM\tUNITS\tNODE\tUNTIL", func(row func(...any)) {
			for _, r := range list.Reservations {
				node := string(r.Node)
				if node == "" {
					node = "-"
				}
				row(term.Printable(r.Room), r.Units, node, r.Until.Local().Format(time.RFC3339))
			}
		})
	})
}
