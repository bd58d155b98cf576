package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) placeCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "place KEY... [flags]",
		Short: "Show who owns a key",
		Long: `Show which member owns each key. A key is any text; it need not exist anywhere.
API is the owner's --api-addr.`,
		Example: `  roost place room-17
  roost place room-17 room-18 --output json     one object a line`,
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), keysNotEmpty),
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

// keysNotEmpty rejects empty keys, as of scripts without their variable.
func keysNotEmpty(_ *cobra.Command, keys []string) error {
	if slices.Contains(keys, "") {
		return errors.New("a key is empty")
	}
	return nil
}
