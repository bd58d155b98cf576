package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/spf13/cobra"
)

func (p *program) roomsCommand() *cobra.Command {
	cmd := p.viewCommand(&cobra.Command{
		Use:   "rooms [flags]",
		Short: "List the rooms that are pinned",
		Long: `List the rooms that are pinned to nodes by capacity, which agents do that were
started with --redis. SIZE is how many participants the room was last said to
have. An agent asks Redis about every partition for that: it is no call for a
loop. With --watch it asks rarely, and when it hears of a room that moved.`,
		Example: `  roost rooms
  roost rooms --node node-b --limit 10000 --output json | jq '.rooms | length'
  roost rooms --watch`,
		Args: cobra.NoArgs,
	}, 10*time.Second, viewRooms, func(ctx context.Context, s *session, changed chan<- struct{}) {
		nudge(ctx, s.MovedRooms, changed)
	}, setting[clientOptions]{
		name: "node", arg: "ID", usage: "only those of this node",
		apply: setText(func(o *clientOptions) *string { return &o.node }),
	}, setting[clientOptions]{
		name: "limit", arg: "N", def: "1000", usage: "list this many, at most 10000",
		apply: setNumber(1, 10_000, func(o *clientOptions, n int64) { o.limit = int(n) }),
	})
	p.suggest(cmd, "node", memberIDs)
	return cmd
}

func viewRooms(ctx context.Context, s *session) (view, error) {
	list, err := s.Rooms(ctx, s.node, s.limit)
	after := ""
	switch {
	case list.Truncated:
		after = fmt.Sprintf("\nthere are more than these %d: see --limit and --node\n", len(list.Rooms))
	case err == nil && len(list.Rooms) == 0 && s.node != "" && !s.json:
		after = s.strange(ctx)
	}
	return view{answer: list, counts: list, page: tablePage("ROOM\tNODE\tSIZE\tPARTITION\tEPOCH", func(row func(...any)) {
		for _, r := range list.Rooms {
			row(printable(r.Room), r.Node, r.Size, r.Partition, r.Epoch)
		}
	}, after)}, err
}

// strange says so if there is no such node as was asked for.
func (s *session) strange(ctx context.Context) string {
	ids := memberIDs(ctx, s)
	if len(ids) == 0 || slices.Contains(ids, s.node) {
		return ""
	}
	return fmt.Sprintf("\nno member is called %s%s\n", printable(s.node), didYouMean(s.node, ids, ""))
}

func sizeSetting(usage string) setting[clientOptions] {
	return setting[clientOptions]{
		name: "size", arg: "N", def: "0", usage: usage,
		apply: setNumber(0, min(affinity.MaxSize, math.MaxInt32), func(o *clientOptions, n int64) { o.size = int(n) }),
	}
}

// roomCommand is roost room NAME, for short, and the commands below it. A room
// that is named like one of these is reached by roost room show.
func (p *program) roomCommand() *cobra.Command {
	cmd := p.showRoom("room NAME [flags]")
	cmd.Short = "Show, pin, move or release a room"
	cmd.Long += `

roost room NAME is short for roost room show NAME, which also takes the names
show, resolve, move and release.`
	cmd.Example = `  roost room room-17
  roost room show move
  roost room resolve room-17 --size 50
  roost room move room-17 node-b`
	p.suggestArgs(cmd, roomNames)
	move := p.moveRoom()
	for _, sub := range []*cobra.Command{p.showRoom("show NAME [flags]"), p.resolveRoom(), move, p.releaseRoom()} {
		sub.DisableFlagsInUseLine = true
		p.suggestArgs(sub, roomNames)
		cmd.AddCommand(sub)
	}
	p.suggestArgs(move, roomNames, memberIDs)
	return cmd
}

// roomArgs asks for the arguments of these names. A lone word after roost room may
// have been meant as a room.
func roomArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		hint := ""
		switch {
		case len(args) == 0 && cmd.Name() != "room" && cmd.Name() != "show":
			hint = fmt.Sprintf("; a room of that name is shown by: roost room show %s", cmd.Name())
		case len(args) > 0 && cmd.Name() == "room":
			hint = didYouMean(args[0], []string{"show", "resolve", "move", "release"}, "roost room ")
		}
		return fmt.Errorf("%s takes %s, and got %d arguments%s", cmd.CommandPath(), strings.Join(names, " and "), len(args), hint)
	}
}

func (p *program) showRoom(use string) *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   use,
		Short: "Tell where a room lives or would live, and why",
		Long: `Tell where a room lives; if it is not pinned, where it would be pinned now. The
table has every live member and why it was taken or was not. Nothing changes.`,
		Example: `  roost room show room-17
  roost room show room-17 --size 50`,
		Args: roomArgs("NAME"),
	}, func(ctx context.Context, s *session, args []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		d, err := s.Room(ctx, args[0], s.size)
		if err != nil || s.json {
			return s.finish(d, err)
		}
		if err := s.say("%s\n\n", whereabouts(d, s.size)); err != nil {
			return err
		}
		return s.table("NODE\tLOAD\tRESERVED\tCEILING\tWHY", func(row func(...any)) {
			for _, c := range d.Candidates {
				id := string(c.ID)
				if c.Taken {
					id += " *"
				}
				row(id, c.Load, c.Reserved, ceilingOf(c), c.Why)
			}
		})
	}, sizeSetting("how many participants it has or will have"))
}

// whereabouts says in a sentence or two what a table cannot.
func whereabouts(d clusterhttp.RoomDetail, size int) string {
	name := printable(d.Room)
	at := fmt.Sprintf("%s (partition %d): %s", d.Node.ID, d.Partition, d.Reason)
	switch {
	case d.Pinned:
		return fmt.Sprintf("%s lives on %s.", name, at)
	case d.Source == affinity.Degraded:
		return fmt.Sprintf("%s probably lives on %s.", name, at)
	case d.Node.ID == "":
		return fmt.Sprintf("%s is not pinned, and cannot be now: %s.", name, strings.TrimPrefix(d.Reason, "affinity: "))
	}
	return fmt.Sprintf("%s is not pinned. With %d participants it would go to %s.", name, size, at)
}

func ceilingOf(c clusterhttp.RoomCandidate) string {
	if c.Capacity == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", c.Ceiling, c.Capacity)
}

func (p *program) resolveRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "resolve NAME [flags]",
		Short: "Pin a room, and tell where it lives",
		Long: `Tell where a room lives, and pin it if it is not pinned: to the owner of its
partition, or to the least loaded node with headroom. If that is the node of the
agent that is asked, it counts as hosted there, with this size; so ask the agent
of a media server only in that server's name.`,
		Example: `  roost room resolve room-17 --size 4`,
		Args:    roomArgs("NAME"),
	}, func(ctx context.Context, s *session, args []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		a, err := s.ResolveRoom(ctx, args[0], s.size)
		if err != nil || s.json {
			return s.finish(a, err)
		}
		return s.say("%s lives on %s (partition %d, %s): %s", printable(a.Room), a.Node.ID, a.Partition, a.Source, a.Reason)
	}, sizeSetting("how many participants it has or is expected to have"))
}

func (p *program) moveRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "move NAME NODE [flags]",
		Short: "Move a pinned room to another node",
		Long: `Move a pinned room to another node. Its clients lose their connections and have to
make new ones.`,
		Example: `  roost room move room-17 node-b`,
		Args:    roomArgs("NAME", "NODE"),
	}, func(ctx context.Context, s *session, args []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		a, err := s.MoveRoom(ctx, args[0], args[1])
		if err != nil || s.json {
			return s.finish(a, err)
		}
		return s.say("%s lives on %s: %s", printable(a.Room), a.Node.ID, a.Reason)
	})
}

func (p *program) releaseRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "release NAME [flags]",
		Short: "End a room",
		Long: `End a room: its pin is void, and its node hosts it no longer. Whoever asks for
the room next has it pinned anew.`,
		Example: `  roost room release room-17`,
		Args:    roomArgs("NAME"),
	}, func(ctx context.Context, s *session, args []string) error {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		if err := s.ReleaseRoom(ctx, args[0]); err != nil {
			return err
		}
		if s.json {
			return s.printJSON(clusterhttp.ReleasedRoom{Room: args[0]})
		}
		return s.say("%s is not pinned any more", printable(args[0]))
	})
}
