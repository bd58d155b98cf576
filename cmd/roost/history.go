package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) historyCommand() *cobra.Command {
	return p.clientCommand(&cobra.Command{
		Use:   "history [flags]",
		Short: "List what an agent saw happen",
		Long: `List what the agent saw since it was started, the latest last. The last 200 events of members
and partitions are members that joined or were lost and why, drains, cordons, weights, when its
own node was fenced or isolated, and how many partitions each change moved. The last 200 events
of rooms and the store are rooms that moved and why, when the store was away or lost data, pins
that were restored, and conflicts. Agents on two sides of a cut network saw different events, so
ask both. Times are in the time zone of this terminal.`,
		Example: `  roost history
  roost history --addr 127.0.0.1:8402 | tail
  roost history --output json | jq -c '.events[] | select(.kind == "rooms-moved")'`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		ctx, cancel := s.Bound(ctx)
		defer cancel()
		h, err := s.History(ctx)
		if err != nil || s.JSON {
			return s.Answer(h, err, nil)
		}
		return s.Table("TIME\tAGO\tEVENT\tNODE\tDETAIL", func(row func(...any)) {
			for _, e := range h.Events {
				row(e.At.Local().Format(time.StampMilli), h.Now.Sub(e.At).Round(time.Second), toned(e), whom(e, h), detailOf(e))
			}
		})
	})
}

func toned(e clusterhttp.Event) term.Toned {
	tones := map[cluster.EventKind]term.Tone{
		cluster.EventLost: term.Bad, cluster.EventFenced: term.Bad, cluster.EventIsolated: term.Bad,
		cluster.EventDraining: term.Warning, cluster.EventCordoned: term.Warning,
		affinity.EventStoreAway: term.Bad, affinity.EventDataLost: term.Bad, affinity.EventConflict: term.Warning,
	}
	tone := tones[e.Kind]
	if e.Reason == string(lease.Departed) {
		tone = term.Warning
	}
	return term.Toned{Text: string(e.Kind), Tone: tone}
}

// whom returns the member that an event is about, or the number of members if there are several.
func whom(e clusterhttp.Event, h clusterhttp.History) string {
	if e.Member == "" && e.Members > 0 {
		return term.Plural(e.Members, "member")
	}
	return term.OrDash(marked(e.Member, h.Self))
}

// detailOf returns the details of an event besides its kind and member.
func detailOf(e clusterhttp.Event) string {
	one := e.Member != ""
	switch {
	case e.Kind == cluster.EventMoved:
		return fmt.Sprintf("%s; this node gained %d, lost %d", term.Plural(e.Moved, "partition"), e.Gained, e.Lost)
	case e.Kind == cluster.EventWeight && one:
		return fmt.Sprintf("%d, was %d", e.Weight, e.OldWeight)
	case e.Kind == cluster.EventReady && one && e.Members > 0:
		return fmt.Sprintf("with %s, owns %s", term.Plural(e.Members, "member"), term.Plural(e.Partitions, "partition"))
	case e.Kind == cluster.EventReturned && e.Reason != "":
		return "another incarnation; the one before: " + term.Printable(e.Reason)
	case e.Kind == affinity.EventStoreBack:
		return "after " + e.Lasted.Round(100*time.Millisecond).String()
	}
	return strings.Join(partsOf(e), ", ")
}

func partsOf(e clusterhttp.Event) (parts []string) {
	if e.Rooms > 0 {
		parts = append(parts, term.Plural(e.Rooms, "room"))
	}
	for _, text := range []string{e.Reason, e.Why} {
		if text != "" && text != string(e.Kind) {
			parts = append(parts, term.Printable(text))
		}
	}
	if e.Partitions > 0 && e.Kind != cluster.EventReady {
		parts = append(parts, "owned "+term.Plural(e.Partitions, "partition"))
	}
	if e.Lasted >= time.Second {
		parts = append(parts, "within "+e.Lasted.Round(time.Second).String())
	}
	return parts
}
