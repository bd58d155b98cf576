package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/spf13/cobra"
)

// roomCommand returns the command roost room NAME and its subcommands. roost room NAME is short for roost room show
// NAME. If a room has the same name as a subcommand, the long form is needed.
func (p *program) roomCommand() *cobra.Command {
	cmd := p.showRoom("room NAME [flags]")
	cmd.Short = "Show, pin, move, release or reserve a room"
	cmd.Long += `

roost room NAME is short for roost room show NAME, which also takes the names
show, resolve, relays, move, release, reserve and unreserve.`
	cmd.Example = `  roost room room-17
  roost room show move
  roost room resolve room-17 --size 50
  roost room move room-17 node-b`
	p.suggestArgs(cmd, roomNames)
	move := p.moveRoom()
	for _, sub := range []*cobra.Command{p.showRoom("show NAME [flags]"), p.resolveRoom(), p.roomRelays(), move, p.releaseRoom(), p.reserveRoom(), p.unreserveRoom()} {
		sub.DisableFlagsInUseLine = true
		p.suggestArgs(sub, roomNames)
		cmd.AddCommand(sub)
	}
	p.suggestArgs(move, roomNames, memberIDs)
	return cmd
}

// roomArgs requires one argument for each name. Its error has a hint if the user misspelled a subcommand, or meant a
// room that has the same name as a subcommand.
func roomArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		hint := ""
		switch {
		case len(args) == 0 && cmd.Name() != "room" && cmd.Name() != "show":
			hint = fmt.Sprintf("; to show a room of that name, use: roost room show %s", cmd.Name())
		case len(args) > 0 && cmd.Name() == "room":
			hint = settings.DidYouMean(args[0], []string{"show", "resolve", "relays", "move", "release", "reserve", "unreserve"}, "roost room ")
		}
		return fmt.Errorf("%s takes %s, and got %d arguments%s", cmd.CommandPath(), strings.Join(names, " and "), len(args), hint)
	}
}

// demandSettings returns the flags that describe the demand of a room.
func demandSettings(d *affinity.Demand) []settings.Setting {
	people := func(to *int) func(string) error { return settings.Number(to, 0, min(pinstore.MaxSize, math.MaxInt32)) }
	return []settings.Setting{
		{
			Name: "size", Arg: "N", Default: "0", Set: people(&d.Size),
			Usage: "number of participants that the room has or expects, if all publish",
		},
		{Name: "publishers", Arg: "N", Set: people(&d.Publishers), Usage: "number of participants that publish, instead of --size"},
		{Name: "subscribers", Arg: "N", Set: people(&d.Subscribers), Usage: "number of participants that only receive"},
		{Name: "units", Arg: "N", Set: settings.Number(&d.Units, 0, math.MaxInt64), Usage: "what the room costs, instead of participants"},
		{
			Name: "prefer", Arg: "zone:Z|LABEL:V,...", List: true,
			Usage: "preferred zones and labels of the node, the best first",
			Set: func(v string) error {
				d.Prefer = append(d.Prefer, v)
				return d.Validate()
			},
		},
		{Name: "require", Arg: "K=V,...", List: true, Usage: "labels that the node must have", Set: func(v string) error {
			label, value, ok := strings.Cut(v, "=")
			if !ok || label == "" {
				return fmt.Errorf("%q does not have the form name=value", v)
			}
			if d.Require == nil {
				d.Require = make(map[string]string)
			}
			d.Require[label] = value
			return nil
		}},
	}
}

func (p *program) showRoom(use string) *cobra.Command {
	var demand affinity.Demand
	return p.clientCommand(&cobra.Command{
		Use:   use,
		Short: "Show where a room lives or would live, and why",
		Long: `Show where a room lives or, if it is not pinned, where it would be pinned now. The
table lists every live member and says why it was chosen or not. The command changes
nothing.`,
		Example: `  roost room show room-17
  roost room show room-17 --size 50`,
		Args: roomArgs("NAME"),
	}, func(ctx context.Context, s *session.Session, args []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		d, err := s.Room(ctx, args[0], demand)
		if err := s.Answer(d, err, func() string { return whereabouts(d, demand) + "\n\n" }); err != nil || s.JSON {
			return err
		}
		return s.Table("NODE\tLOAD\tRESERVED\tCEILING\tWHY", func(row func(...any)) {
			for _, c := range d.Candidates {
				id, ceiling := string(c.ID), "-"
				if c.Taken {
					id += " *"
				}
				if c.Capacity > 0 {
					ceiling = fmt.Sprintf("%d of %d", c.Ceiling, c.Capacity)
				}
				row(id, c.Load, c.Reserved, ceiling, c.Why)
			}
		})
	}, demandSettings(&demand)...)
}

// whereabouts returns a sentence about where a room is or would be, and why.
func whereabouts(d clusterhttp.RoomDetail, demand affinity.Demand) string {
	name := term.Printable(d.Room)
	at := fmt.Sprintf("%s (partition %d): %s", d.Node.ID, d.Partition, d.Reason)
	switch {
	case d.Pinned:
		return fmt.Sprintf("%s lives on %s.", name, at)
	case d.Source == affinity.Degraded:
		return fmt.Sprintf("%s probably lives on %s.", name, at)
	case d.Node.ID == "":
		return fmt.Sprintf("%s is not pinned, and cannot be pinned now: %s.",
			name, strings.TrimPrefix(strings.TrimPrefix(d.Reason, "affinity: "), "cluster: "))
	}
	return fmt.Sprintf("%s is not pinned. With %v it would go to %s.", name, demand, at)
}

func (p *program) resolveRoom() *cobra.Command {
	var demand affinity.Demand
	return p.clientCommand(&cobra.Command{
		Use:   "resolve NAME [flags]",
		Short: "Pin a room, and show where it lives",
		Long: `Show where a room lives. If the room is not pinned, pin it to the owner of its
partition, or to the least loaded node with headroom. If the agent's own node is
chosen, the room counts as hosted there with this demand, so ask the agent of a media
server only on behalf of that server.`,
		Example: `  roost room resolve room-17 --size 4
  roost room resolve webinar --publishers 1 --subscribers 1000
  roost room resolve room-17 --prefer zone:eu-1,region:eu --require recorder=yes`,
		Args: roomArgs("NAME"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.RoomAssignment, error) {
		return s.ResolveRoom(ctx, args[0], demand)
	}, func(a clusterhttp.RoomAssignment) string {
		return fmt.Sprintf("%s lives on %s (partition %d, %s): %s", term.Printable(a.Room), a.Node.ID, a.Partition, a.Source, a.Reason)
	}), demandSettings(&demand)...)
}

func (p *program) roomRelays() *cobra.Command {
	var demand affinity.Demand
	number := 2
	return p.clientCommand(&cobra.Command{
		Use:   "relays NAME [flags]",
		Short: "List the best relays for a room that is too large for its node",
		Long: `List the best relays for a room: additional nodes if the room is too large for its own
node. The media server on the room's node sends each stream once to each relay, which
serves it to its participants. Nodes with headroom for a relay's share of the demand
come first. The command changes nothing.`,
		Example: `  roost room relays webinar
  roost room relays webinar -n 5 --publishers 1 --subscribers 900`,
		Args: roomArgs("NAME"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.RoomRelays, error) {
		return s.RoomRelays(ctx, args[0], demand, number)
	}, func(a clusterhttp.RoomRelays) string {
		name := term.Printable(a.Room)
		if len(a.Relays) == 0 {
			return fmt.Sprintf("no other node accepts rooms, so %s has no relays", name)
		}
		var ids []string
		for _, m := range a.Relays {
			ids = append(ids, string(m.ID))
		}
		return fmt.Sprintf("relays of %s, best first: %s", name, strings.Join(ids, " "))
	}), append(demandSettings(&demand), settings.Setting{
		Name: "number", Short: "n", Arg: "N", Default: "2", Set: settings.Number(&number, 1, 100), Usage: "list this many, at most 100",
	})...)
}

func (p *program) moveRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "move NAME NODE [flags]",
		Short: "Move a pinned room to another node",
		Long: `Move a pinned room to another node. Its clients lose their connections and must
reconnect.`,
		Example: `  roost room move room-17 node-b`,
		Args:    roomArgs("NAME", "NODE"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.RoomAssignment, error) {
		return s.MoveRoom(ctx, args[0], args[1])
	}, func(a clusterhttp.RoomAssignment) string {
		return fmt.Sprintf("%s lives on %s: %s", term.Printable(a.Room), a.Node.ID, a.Reason)
	}))
}

func (p *program) releaseRoom() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "release NAME [flags]",
		Short: "End a room",
		Long: `End a room: delete its pin, so that its node no longer hosts it. The next request for
the room pins it again.`,
		Example: `  roost room release room-17`,
		Args:    roomArgs("NAME"),
	}, call(func(ctx context.Context, s *session.Session, args []string) (clusterhttp.ReleasedRoom, error) {
		return clusterhttp.ReleasedRoom{Room: args[0]}, s.ReleaseRoom(ctx, args[0])
	}, func(a clusterhttp.ReleasedRoom) string { return term.Printable(a.Room) + " is no longer pinned" }))
}

func (p *program) roomsCommand() *cobra.Command {
	var v roomsView
	cmd := p.viewCommand(&cobra.Command{
		Use:   "rooms [flags]",
		Short: "List the rooms that are pinned",
		Long: `List the rooms that agents with --redis have pinned to nodes by capacity. SIZE is the
last known number of participants. The agent asks Redis about every partition. That
is expensive, so do not poll it. With --watch, the agent asks rarely, and after each
move of a room.`,
		Example: `  roost rooms
  roost rooms --node node-b --limit 10000 --output json | jq '.rooms | length'
  roost rooms --watch`,
		Args: takes(),
	}, &session.Viewer{Every: 10 * time.Second, Ask: v.ask, News: func(ctx context.Context, s *session.Session, changed chan<- struct{}) {
		session.Nudge(ctx, s.MovedRooms, changed)
	}},
		settings.Setting{Name: "node", Arg: "ID", Set: settings.Text(&v.node), Usage: "only rooms of this node"},
		settings.Setting{
			Name: "limit", Arg: "N", Default: "1000", Set: settings.Number(&v.limit, 1, 10_000),
			Usage: "list this many, at most 10000",
		},
	)
	_ = cmd.RegisterFlagCompletionFunc("node", p.complete(memberIDs))
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
		below = fmt.Sprintf("\nthere are more rooms than these %d: see --limit and --node\n", len(list.Rooms))
	case err == nil && len(list.Rooms) == 0 && v.node != "" && !s.JSON:
		below = v.unknown(memberIDs(ctx, s))
	}
	if list.StoreProblem != "" {
		below += fmt.Sprintf("\nrooms may be missing here, because Redis is in trouble (%s): see roost doctor\n", term.Printable(list.StoreProblem))
	}
	return session.View{Answer: list, Counts: list, Page: term.Page("ROOM\tNODE\tSIZE\tPARTITION\tEPOCH", func(row func(...any)) {
		for _, r := range list.Rooms {
			row(term.Printable(r.Room), r.Node, r.Size, r.Partition, r.Epoch)
		}
	}, below)}, err
}

// unknown returns a message if no member is called v.node, and "" otherwise.
func (v *roomsView) unknown(ids []string) string {
	if len(ids) == 0 || slices.Contains(ids, v.node) {
		return ""
	}
	return fmt.Sprintf("\nno member is called %s%s\n", term.Printable(v.node), settings.DidYouMean(v.node, ids, ""))
}
