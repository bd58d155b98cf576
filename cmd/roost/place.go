package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) placeCommand() *cobra.Command {
	return p.scopedCommand(&cobra.Command{
		Use:   "place KEY... [flags]",
		Short: "Show who owns a key",
		Long: `Show which member owns each key. A key is any text, and does not have to exist anywhere.
API is the owner's --api-addr. With --scope, only members of that scope can own the key, for
example the members with a role.`,
		Example: `  roost place room-17
  roost place room-17 --scope sfu               its owner among the members of the scope sfu
  roost place room-17 room-18 --output json     one object per line`,
		Args: cobra.MatchAll(takes("KEY..."), keysNotEmpty),
	}, func(ctx context.Context, s *session.Session, keys []string) error {
		placed := make([]clusterhttp.Placed, len(keys))
		for i, key := range keys {
			var err error
			if placed[i], err = placeOne(ctx, s, key); err != nil {
				return fmt.Errorf("place %q: %w", key, err)
			}
			if s.JSON {
				if err := s.PrintJSON(placed[i]); err != nil {
					return err
				}
			}
		}
		if s.JSON {
			return nil
		}
		warnOfStale(s, slices.ContainsFunc(placed, func(a clusterhttp.Placed) bool { return a.Stale }))
		return s.Table("KEY\tPARTITION\tOWNER\tGOSSIP\tAPI", func(row func(...any)) {
			for _, a := range placed {
				row(term.Printable(a.Key), a.Partition, a.Owner.ID, a.Owner.Addr, term.OrDash(a.Owner.APIAddr))
			}
		})
	})
}

func placeOne(ctx context.Context, s *session.Session, key string) (clusterhttp.Placed, error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	return s.Place(ctx, key)
}

// keysNotEmpty rejects empty keys, because they usually come from a script with an unset variable.
func keysNotEmpty(_ *cobra.Command, keys []string) error {
	if slices.Contains(keys, "") {
		return errors.New("a key is empty")
	}
	return nil
}

const staleTable = "this agent is isolated, fenced or stalled: these owners come from its last table"

// warnOfStale prints a warning to standard error, because scripts parse standard output.
func warnOfStale(s *session.Session, stale bool) {
	if stale {
		term.Complain(s.Err, staleTable)
	}
}

func (p *program) ownersCommand() *cobra.Command {
	var number int
	return p.scopedCommand(&cobra.Command{
		Use:   "owners KEY [-n N] [flags]",
		Short: "List the best members for a key, and why",
		Long: `List the N best members for a key: its owner, then the member that would own it
without the first, and so on. Put replicas on these members. The last line says why
the first member owns the key's partition.`,
		Example: `  roost owners room-17
  roost owners room-17 -n 2 --output json`,
		Args: cobra.MatchAll(takes("KEY"), keysNotEmpty),
	}, func(ctx context.Context, s *session.Session, keys []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		a, err := s.Owners(ctx, keys[0], number)
		if err != nil || s.JSON {
			return s.Answer(a, err, nil)
		}
		warnOfStale(s, a.Stale)
		return s.Table("RANK\tID\tSTATE\tGOSSIP\tAPI", func(row func(...any)) {
			for i, m := range a.Owners {
				row(i+1, m.ID, m.State, m.Addr, term.OrDash(m.APIAddr))
			}
		}, fmt.Sprintf("\npartition %d: %s\n", a.Partition, term.Printable(a.Why)))
	}, settings.Setting{
		Name: "number", Short: "n", Arg: "N", Default: "3", Set: settings.Number(&number, 1, 100), Usage: "list this many, at most 100",
	})
}
