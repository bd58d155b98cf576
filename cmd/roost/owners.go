package main

import (
	"context"
	"fmt"

	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) ownersCommand() *cobra.Command {
	var number int
	return p.clientCommand(&cobra.Command{
		Use:   "owners KEY [-n N] [flags]",
		Short: "List the best members for a key, and why",
		Long: `List the N best members for a key: its owner, then its owner if the first were
gone, and so on. That is where replicas belong. The last line says why the key's
partition is where it is.`,
		Example: `  roost owners room-17
  roost owners room-17 -n 2 --output json`,
		Args: cobra.MatchAll(cobra.ExactArgs(1), keysNotEmpty),
	}, func(ctx context.Context, s *session.Session, keys []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		a, err := s.Owners(ctx, keys[0], number)
		if err != nil || s.JSON {
			return s.Answer(a, err, nil)
		}
		return s.Table("RANK\tID\tSTATE\tGOSSIP\tAPI", func(row func(...any)) {
			for i, m := range a.Owners {
				row(i+1, m.ID, m.State, m.Addr, term.OrDash(m.APIAddr))
			}
		}, fmt.Sprintf("\npartition %d: %s\n", a.Partition, term.Printable(a.Why)))
	}, settings.Setting{
		Name: "number", Short: "n", Arg: "N", Default: "3", Set: settings.Number(&number, 1, 100), Usage: "list this many, at most 100",
	})
}
