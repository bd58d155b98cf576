package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/roomsim"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

// roomSimulation has the options of roost sim rooms.
type roomSimulation struct {
	trace string
	cost  string
	fleet roomsim.Config
}

func (p *program) simRoomsCommand() *cobra.Command {
	o, out := new(roomSimulation), new(session.Options)
	all := append(o.settings(), out.Output("json prints one object"))
	return p.withSession(&cobra.Command{
		Use:   "rooms --trace FILE --capacity N [flags]",
		Short: "Replay a day of rooms to see how many nodes it needs",
		Long: `Replay a recorded day of rooms against the code that chooses nodes. It prints how many nodes
the day needs, how full the fullest node was, and how many rooms were refused or moved. Each
line of the trace is time,room,participants[,zone]: from that time, the room has this many
participants, and 0 ends it. Times are in seconds or as in RFC 3339, in order. Nodes do not
fail in this simulation.`,
		Example: `  roost sim rooms --trace day.csv --capacity 10000
  roost sim rooms --trace day.csv --capacity 10000 --nodes 20 --rebalance 90`,
		Args: takes(),
	}, out, all, func(_ context.Context, s *session.Session, _ []string) error {
		r, err := p.replay(o)
		if err != nil {
			return err
		}
		return o.print(s, r)
	})
}

func (o *roomSimulation) settings() []settings.Setting {
	const mostPercent = 1000
	list := []settings.Setting{
		{Name: "trace", Arg: "FILE", Set: settings.Text(&o.trace), Usage: "the trace, in CSV; - reads standard input"},
		{Name: "capacity", Arg: "N", Set: settings.Number(&o.fleet.Capacity, 1, math.MaxInt64), Usage: "units of load that each node carries"},
		{
			Name: "nodes", Arg: "N", Set: settings.Number(&o.fleet.Nodes, 1, lease.MaxNodes),
			Usage: "how many nodes the fleet has (default: the fewest that refuse no room and stay within --capacity)",
		},
		{
			Name: "cost", Arg: "streams|participants", Default: "streams", Set: settings.OneOf(&o.cost, "streams", "participants"),
			Usage: "what a room of n participants costs: n·(n-1) forwarded streams, or n units",
		},
		{Name: "soft-ceiling", Arg: "PERCENT", Default: "80", Set: settings.Number(&o.fleet.SoftCeiling, 1, mostPercent), Usage: "as of roost agent"},
		{Name: "hard-ceiling", Arg: "PERCENT", Default: "0", Set: settings.Number(&o.fleet.HardCeiling, 0, mostPercent), Usage: "as of roost agent"},
		{Name: "rebalance", Arg: "PERCENT", Default: "0", Set: settings.Number(&o.fleet.Rebalance, 0, mostPercent), Usage: "as of roost agent"},
		{
			Name: "report", Arg: "DURATION", Default: "2s", Set: settings.Duration(&o.fleet.Report),
			Usage: "how often each node reports its load",
		},
		{Name: "seed", Arg: "N", Default: "1", Set: settings.Number(&o.fleet.Seed, 0, math.MaxInt64), Usage: "picks the node that each room is resolved at"},
	}
	for i := range list {
		list[i].FlagOnly = true // ROOST_CAPACITY configures an agent
	}
	return list
}

// replay reads the trace and simulates the fleet. On a terminal, a line shows the progress.
func (p *program) replay(o *roomSimulation) (r roomsim.Result, err error) {
	if o.trace == "" || o.fleet.Capacity == 0 {
		return r, settings.UsageError("--trace and --capacity are needed: roost sim rooms --trace day.csv --capacity 10000")
	}
	in := os.Stdin
	if o.trace != "-" {
		if in, err = os.Open(o.trace); err != nil {
			return r, err
		}
		defer func() { _ = in.Close() }()
	}
	events, err := roomsim.ReadTrace(in)
	if err != nil {
		return r, plain(fmt.Errorf("%s: %w", o.trace, err))
	}
	o.fleet.Zones = roomsim.Zones(events)
	if o.cost == "participants" {
		o.fleet.Cost = func(participants int) int64 { return int64(participants) }
	}
	if o.fleet.Nodes > 0 {
		r, err = roomsim.Run(events, o.fleet)
		return r, plain(err)
	}
	progress := term.Progress{Term: term.Of(p.stderr, p.getenv), Out: p.stderr}
	defer progress.Clear()
	r, err = roomsim.Needed(events, o.fleet, func(tried roomsim.Result) {
		progress.Show(fmt.Sprintf("%d nodes: the fullest carries %d of %d units", tried.Nodes, tried.Fullest.Units, o.fleet.Capacity))
	})
	return r, plain(err)
}

// plain removes the name of the package from an error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.ReplaceAll(err.Error(), "roomsim: ", ""))
}

// replayed is the JSON output.
type replayed struct {
	Nodes     int     `json:"nodes"`
	DurationS float64 `json:"duration_s"`
	Joins     int     `json:"joins"`
	Rooms     int     `json:"rooms"`
	Refused   int     `json:"refused"`
	Peak      struct {
		AtS   float64 `json:"at_s"`
		Units int64   `json:"units"`
		Rooms int     `json:"rooms"`
	} `json:"peak"`
	Fullest struct {
		Node  lease.NodeID `json:"node"`
		AtS   float64      `json:"at_s"`
		Units int64        `json:"units"`
	} `json:"fullest"`
	Largest struct {
		Room         string `json:"room"`
		Participants int    `json:"participants"`
		Units        int64  `json:"units"`
	} `json:"largest"`
	Moves             int `json:"moves"`
	MovedParticipants int `json:"moved_participants"`
	LeastMoves        int `json:"least_moves"`
}

func answerOf(r roomsim.Result) (a replayed) {
	a.Nodes, a.DurationS, a.Joins, a.Rooms, a.Refused = r.Nodes, r.Duration.Seconds(), r.Joins, r.Rooms, r.Refused
	a.Peak.AtS, a.Peak.Units, a.Peak.Rooms = r.Peak.At.Seconds(), r.Peak.Units, r.Peak.Rooms
	a.Fullest.Node, a.Fullest.AtS, a.Fullest.Units = r.Fullest.Node, r.Fullest.At.Seconds(), r.Fullest.Units
	a.Largest.Room, a.Largest.Participants, a.Largest.Units = r.Largest.Name, r.Largest.Participants, r.Largest.Units
	a.Moves, a.MovedParticipants, a.LeastMoves = r.Moves, r.Moved, r.LeastMoves
	return a
}

func (o *roomSimulation) print(s *session.Session, r roomsim.Result) error {
	if s.JSON {
		return s.PrintJSON(answerOf(r))
	}
	share := func(units int64) string { return fmt.Sprintf("%.0f %%", 100*float64(units)/float64(o.fleet.Capacity)) }
	at := func(d time.Duration) string { return "after " + d.Round(time.Second).String() }
	what := "NODES NEEDED"
	if o.fleet.Nodes > 0 {
		what = "NODES"
	}
	return s.Table(what+"\t"+fmt.Sprint(r.Nodes), func(row func(...any)) {
		row("trace", fmt.Sprintf("%d joins, %d rooms, %v", r.Joins, r.Rooms, r.Duration.Round(time.Second)))
		row("most load", fmt.Sprintf("%d units in %d rooms, %s", r.Peak.Units, r.Peak.Rooms, at(r.Peak.At)))
		row("largest room", fmt.Sprintf("%s: %d participants, %d units", term.Printable(r.Largest.Name), r.Largest.Participants, r.Largest.Units))
		row("fullest node", good(r.Fullest.Units <= o.fleet.Capacity,
			fmt.Sprintf("%s: %d of %d units (%s), %s", r.Fullest.Node, r.Fullest.Units, o.fleet.Capacity, share(r.Fullest.Units), at(r.Fullest.At))))
		row("rooms refused", good(r.Refused == 0, fmt.Sprint(r.Refused)))
		if o.fleet.Rebalance > 0 {
			row("rooms moved", fmt.Sprintf("%d, with %d participants; at least %d had to", r.Moves, r.Moved, r.LeastMoves))
		}
	})
}
