package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

func (p *program) roomsCommand() *cobra.Command {
	var v roomsView
	cmd := p.viewCommand(&cobra.Command{
		Use:   "rooms [flags]",
		Short: "List the rooms that are pinned",
		Long: `List the rooms that are pinned to nodes by capacity, by agents that were started
with --redis. SIZE is the last known number of participants. The agent asks Redis
about every partition: this is no call for a loop. With --watch it asks rarely, and
after each move of a room.`,
		Example: `  roost rooms
  roost rooms --node node-b --limit 10000 --output json | jq '.rooms | length'
  roost rooms --watch`,
		Args: cobra.NoArgs,
	}, &session.Follower{Every: 10 * time.Second, Ask: v.ask, News: func(ctx context.Context, s *session.Session, changed chan<- struct{}) {
		session.Nudge(ctx, s.MovedRooms, changed)
	}},
		settings.Setting{Name: "node", Arg: "ID", Set: settings.Text(&v.node), Usage: "only those of this node"},
		settings.Setting{Name: "limit", Arg: "N", Default: "1000", Set: settings.Number(&v.limit, 1, 10_000), Usage: "list this many, at most 10000"},
	)
	p.suggest(cmd, "node", memberIDs)
	return cmd
}

type roomsView struct {
	node  string
	limit int
}

func (v *roomsView) ask(ctx context.Context, s *session.Session) (session.View, error) {
	list, err := s.Rooms(ctx, v.node, v.limit)
	below := ""
	switch {
	case list.Truncated:
		below = fmt.Sprintf("\nthere are more than these %d: see --limit and --node\n", len(list.Rooms))
	case err == nil && len(list.Rooms) == 0 && v.node != "" && !s.JSON:
		below = v.unknown(memberIDs(ctx, s))
	}
	return session.View{Answer: list, Counts: list, Page: term.Page("ROOM\tNODE\tSIZE\tPARTITION\tEPOCH", func(row func(...any)) {
		for _, r := range list.Rooms {
			row(term.Printable(r.Room), r.Node, r.Size, r.Partition, r.Epoch)
		}
	}, below)}, err
}

// unknown says so if no member has the name of the node.
func (v *roomsView) unknown(ids []string) string {
	if len(ids) == 0 || slices.Contains(ids, v.node) {
		return ""
	}
	return fmt.Sprintf("\nno member is called %s%s\n", term.Printable(v.node), settings.DidYouMean(v.node, ids, ""))
}
