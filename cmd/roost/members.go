package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/survey"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) membersCommand() *cobra.Command {
	var all bool
	return p.viewCommand(&cobra.Command{
		Use:   "members [flags]",
		Short: "List the live members",
		Long: `List the live members as the agent sees them; * marks its own node. TABLE says whether a
member has the same table of owners; tables differ for a moment after each change. Notes below
the table list cordons, members that drain, nodes rejected for clock skew, and the last ten
members that left or were lost within 30 minutes.

With --all, the command asks the agents of all members and shows what each of them sees.`,
		Example: `  roost members
  roost members --watch
  roost members --all
  roost members --addr 127.0.0.1:8402 --output json`,
		Args: takes(),
	}, &session.Viewer{Every: time.Second, News: newsOfOwners, Ask: func(ctx context.Context, s *session.Session) (session.View, error) {
		if all {
			return viewAll(ctx, s)
		}
		return viewMembers(ctx, s)
	}}, settings.Setting{
		Name: "all", Arg: "bool", Set: settings.Bool(&all), FlagOnly: true,
		Usage: "ask the agents of all members what they see",
	})
}

func viewMembers(ctx context.Context, s *session.Session) (session.View, error) {
	m, err := s.Members(ctx)
	lasting := m
	lasting.Members = slices.Clone(m.Members)
	for i := range lasting.Members {
		n := &lasting.Members[i]
		n.AgeMS, n.Load, n.ClockOffsetMS, n.FlappingMS, n.DrainsMS = 0, 0, 0, min(1, n.FlappingMS), min(1, n.DrainsMS)
		if n.Cordoned != nil {
			n.Cordoned = &clusterhttp.Cordon{Reason: n.Cordoned.Reason}
		}
	}
	lasting.Cordons = nil
	lasting.Ahead = slices.Clone(m.Ahead)
	for i := range lasting.Ahead {
		lasting.Ahead[i].ByMS = 0
	}
	lasting.Lost = slices.Clone(m.Lost)
	for i := range lasting.Lost {
		lasting.Lost[i].AgoMS = 0
	}
	head := "ID\tSTATE\tGOSSIP\tAGE\tWEIGHT\tLOAD\tZONE\tTABLE"
	// Show versions if applications report theirs, or if members run different versions of roost.
	versions := slices.ContainsFunc(m.Members, func(n clusterhttp.Member) bool {
		return n.AppVersion != "" || n.RoostVersion != m.Members[0].RoostVersion
	})
	if versions {
		head += "\tVERSION\tROOST"
	}
	page := term.Page(head, func(row func(...any)) {
		for _, n := range m.Members {
			cells := []any{
				marked(n.ID, m.Self), stateOf(n), n.Addr, term.Age(n.AgeMS), n.Weight, loadOf(n),
				term.OrDash(n.Zone), sameOrNot(n.InSync),
			}
			if versions {
				cells = append(cells, term.OrDash(n.AppVersion), term.OrDash(n.RoostVersion))
			}
			row(cells...)
		}
	}, waitsOf(m)...)
	return session.View{Answer: m, Counts: lasting, Page: page}, err
}

// lostLine describes why a member is gone and what it owned.
func lostLine(l clusterhttp.Lost) string {
	ago := (time.Duration(l.AgoMS) * time.Millisecond).Round(time.Second)
	owned := ""
	if l.Partitions > 0 {
		owned = fmt.Sprintf(", and owned %s", term.Plural(l.Partitions, "partition"))
	}
	return fmt.Sprintf("%s %s %v ago%s", l.ID, l.Reason, ago, owned)
}

// lostLines describes the members that were lost last, and says how many more were lost.
func lostLines(lost []clusterhttp.Lost) (lines []string) {
	const most = 10
	for _, l := range lost[:min(len(lost), most)] {
		lines = append(lines, "\n"+lostLine(l))
	}
	if more := len(lost) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("\nand %d more were lost or left before: --output json lists all", more))
	}
	return lines
}

// waitsOf returns a line for each active cordon, each unhealthy, flapping or draining member, and each node that cannot
// become a member because of its clock or network. The members that were lost last follow.
func waitsOf(m clusterhttp.Members) (lines []string) {
	left := func(ms int64) time.Duration { return (time.Duration(ms) * time.Millisecond).Round(time.Second) }
	for _, c := range m.Cordons {
		lines = append(lines,
			fmt.Sprintf("\n%s is cordoned for another %v: %s", c.ID, left(c.ForMS), term.Printable(cmp.Or(c.Reason, "no reason given"))))
	}
	for _, n := range m.Members {
		switch {
		case n.Unhealthy:
			lines = append(lines, fmt.Sprintf("\n%s is unhealthy and owns nothing: roost doctor at its agent says why", n.ID))
		case n.FlappingMS > 0:
			lines = append(lines,
				fmt.Sprintf("\n%s is flapping and owns nothing for another %v: it came and went too often", n.ID, left(n.FlappingMS)))
		case n.DrainsMS > 0:
			lines = append(lines, fmt.Sprintf("\n%s has been draining for %v", n.ID, left(n.DrainsMS)))
		}
	}
	for _, n := range m.Ahead {
		lines = append(lines,
			fmt.Sprintf("\n%s is rejected: its clock is %v ahead", n.ID, (time.Duration(n.ByMS)*time.Millisecond).Round(100*time.Millisecond)))
	}
	for _, id := range slices.Sorted(maps.Keys(m.StreamsAlone)) {
		lines = append(lines,
			fmt.Sprintf("\n%s is reachable only over TCP: UDP packets do not get through to %s, or back", id, term.Printable(m.StreamsAlone[id])))
	}
	lines = append(lines, lostLines(m.Lost)...)
	if m.Spared {
		lines = append(lines, "\ncordons have no effect, because no other member could own anything")
	}
	if len(lines) > 0 {
		lines = append(lines, "\n")
	}
	return lines
}

// views is the JSON output of roost members --all.
type views struct {
	Self   lease.NodeID   `json:"self"` // the agent that was asked first
	Agents []survey.Agent `json:"agents"`
}

// viewAll returns a view that shows which members each agent sees.
func viewAll(ctx context.Context, s *session.Session) (session.View, error) {
	agents, err := survey.Take(ctx, s, nil, nil)
	if err != nil {
		return session.View{}, err
	}
	answer := views{agents[0].ID, agents}
	page := term.Page("AGENT\tSTATE\tSEES\tTABLE\tDOES NOT SEE\tLOST\tHTTP", func(row func(...any)) {
		for _, a := range agents {
			if v := a.View; v != nil {
				lacks := term.Toned{Text: term.OrDash(survey.Few(v.Lacks))}
				if len(v.Lacks) > 0 {
					lacks.Tone = term.Warning
				}
				row(marked(a.ID, answer.Self), v.State, len(v.Sees), sameOrNot(v.InSync), lacks, term.OrDash(survey.Few(v.Lost)), a.HTTP)
			} else {
				row(a.ID, term.Toned{Text: "?", Tone: term.Warning}, "-", "-", "-", "-", term.Toned{Text: a.Problem, Tone: term.Warning})
			}
		}
	})
	return session.View{Answer: answer, Counts: answer, Page: page, Rest: restAfter(len(agents))}, nil
}

// restAfter returns how long to wait before the agents are asked again. Each agent returns all members, so the cost
// grows with the square of the number of agents. A round of 100 agents takes 0.07 s of CPU time at both ends, and a
// round of 1,000 agents takes 100 times as much.
func restAfter(agents int) time.Duration {
	return min(time.Duration(agents*agents)*100*time.Microsecond, 30*time.Second)
}
