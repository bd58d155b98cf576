package survey

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Check checks whether the agents see the same members.
func Check(agents []Agent) []doctor.Check {
	var found []doctor.Check
	const apart = "each side owns all keys, or only one side owns keys, depending on --split"
	if sides := sidesOf(agents); len(sides) > 1 {
		var names []string
		for _, side := range sides {
			names = append(names, Few(side))
		}
		found = append(found, doctor.Check{
			Name: "views", Status: doctor.Fail, Finding: "sides that do not see each other: " + strings.Join(names, " | "), Means: apart,
			Do: "find out where the network between them is cut, for UDP and TCP, in both directions; the sides merge again automatically",
		})
	} else {
		found = unseen(agents)
	}
	found = slices.Concat(found, places(agents), scopes(agents), unanswered(agents))
	if len(found) == 0 {
		found = []doctor.Check{{Name: "views", Finding: "all agents that answered see the same members"}}
	}
	return found
}

// unanswered returns a check for each reason why agents have no usable view.
func unanswered(agents []Agent) (found []doctor.Check) {
	var silent, absent, skipped, foreign []string
	for _, a := range agents {
		switch {
		case a.foreign != "":
			foreign = append(foreign, fmt.Sprintf("%s (%s at %s)", a.ID, a.foreign, a.HTTP))
		case a.skipped:
			skipped = append(skipped, string(a.ID))
		case a.absent():
			absent = append(absent, fmt.Sprintf("%s (%s)", a.ID, a.Problem))
		case a.View == nil && a.HTTP != "":
			silent = append(silent, fmt.Sprintf("%s (%s)", a.ID, a.Problem))
		}
	}
	for _, k := range []struct {
		agents          []string
		what, means, do string
	}{
		{
			absent, "running, but not members: ", "the agents of these nodes answer over HTTP, but other nodes do not hear them",
			"check that UDP and TCP get through between them and the other nodes, and to the addresses that they advertise (--advertise)",
		},
		{
			foreign, "an agent of another cluster answers for ",
			"what it sees is not compared here, and what the node's own agent sees is unknown",
			"find out which process serves HTTP there: the address has a new owner, or a proxy or port forwards to another agent",
		},
		{
			silent, "no view from ", "what these agents see is unknown; they are still members if other agents see them",
			"check that this machine can reach their HTTP ports, and which token, certificate or --ca they require",
		},
		{
			skipped, fmt.Sprintf("%d of %d agents were not asked: ", len(skipped), len(agents)),
			"what these agents see is unknown: time ran out, or each agent named one more agent for too long",
			"allow more time with --within, or run roost doctor at one of these agents",
		},
	} {
		if len(k.agents) > 0 {
			found = append(found, doctor.Check{Name: "views", Status: doctor.Warn, Finding: k.what + Few(k.agents), Means: k.means, Do: k.do})
		}
	}
	return found
}

// scopes returns the checks of all scopes.
func scopes(agents []Agent) (found []doctor.Check) {
	agents = slices.DeleteFunc(slices.Clone(agents), func(a Agent) bool { return !a.takesPart() })
	names := make(map[string]bool)
	for _, a := range agents {
		for name := range a.View.scopes {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		found = append(found, scope(name, agents)...)
	}
	return found
}

// scope returns a check if some agents do not have the scope, and a check if agents with the same members have
// different tables of the scope.
func scope(name string, agents []Agent) (found []doctor.Check) {
	var lack []lease.NodeID
	tables := make(map[placement.Digest][]lease.NodeID)
	for _, a := range agents {
		switch digest, has := a.View.scopes[name]; {
		case !has:
			lack = append(lack, a.ID)
		case a.View.InSync:
			tables[digest] = append(tables[digest], a.ID)
		}
	}
	if len(lack) > 0 {
		found = append(found, doctor.Check{
			Name: "scopes", Status: doctor.Warn, Finding: fmt.Sprintf("no scope %.64q at %s", name, Few(lack)),
			Means: "other agents have it: requests for the scope fail here, and a program here that should run its partitions does not",
			Do:    "start these agents with the same --scope as the others; in a program, call agent.Scope right after the start",
		})
	}
	if len(tables) > 1 {
		var sides []string
		for _, side := range slices.SortedFunc(maps.Values(tables), slices.Compare) {
			sides = append(sides, Few(side))
		}
		found = append(found, doctor.Check{
			Name: "scopes", Status: doctor.Warn, Finding: fmt.Sprintf("scope %.64q has different tables: %s", name, strings.Join(sides, " | ")),
			Means: "these agents see the same members and select others for the scope: a key can have two owners there, or none",
			Do:    "look again in ten seconds, because a new label takes a moment; if it stays, compare their --scope, or the functions that their programs pass to agent.Scope",
		})
	}
	return found
}

// takesPart reports whether the agent has answered and has joined.
func (a *Agent) takesPart() bool { return a.View != nil && a.View.State != "joining" }

// places returns a check for each member that different agents see at different addresses.
func places(agents []Agent) (found []doctor.Check) {
	for _, a := range agents {
		if len(a.places) < 2 {
			continue
		}
		var words []string
		slices.SortFunc(a.places, func(p, q place) int { return cmp.Or(q.n-p.n, strings.Compare(p.at, q.at)) })
		for _, p := range a.places {
			by := string(p.by)
			if p.n > 1 {
				by += fmt.Sprintf(" and %d more", p.n-1)
			}
			words = append(words, fmt.Sprintf("at %s by %s", p.at, by))
		}
		found = append(found, doctor.Check{
			Name: "views", Status: doctor.Warn, Finding: fmt.Sprintf("%s is seen %s", a.ID, strings.Join(words, ", ")),
			Means: "these agents have records of two processes with one id, and one of the addresses may not reach the node; for a moment after a restart at another address, this is normal",
			Do:    "look again in ten seconds; if it persists, check whether two processes run with this --id, and which --advertise each of them has",
		})
	}
	return found
}

// unseen returns a check for the members that some agents do not see.
func unseen(agents []Agent) (found []doctor.Check) {
	lack := make(map[lease.NodeID][]lease.NodeID)
	for _, a := range agents {
		if a.takesPart() {
			for _, id := range a.View.Lacks {
				lack[id] = append(lack[id], a.ID)
			}
		}
	}
	// If several nodes fail together, the same agents lack all of them. Report this as one finding.
	together := make(map[string][]lease.NodeID)
	for _, id := range slices.Sorted(maps.Keys(lack)) {
		by := fmt.Sprint(lack[id])
		together[by] = append(together[by], id)
	}
	for _, ids := range slices.SortedFunc(maps.Values(together), slices.Compare) {
		verb := "is"
		if len(ids) > 1 {
			verb = "are"
		}
		found = append(found, doctor.Check{
			Name: "views", Status: doctor.Warn, Finding: fmt.Sprintf("%s %s not seen by %s", Few(ids), verb, Few(lack[ids[0]])),
			Means: "these agents send the keys of a member that they do not see to other nodes; for a moment after a start that is usual",
			Do:    "look again in ten seconds; if it stays, see whether UDP and TCP get through between these nodes in both directions, and what roost doctor says at the agent of the member that is not seen",
		})
	}
	return found
}

// sidesOf returns the groups of agents that see each other, directly or via other agents. A joining agent
// belongs to no group.
func sidesOf(agents []Agent) (sides [][]lease.NodeID) {
	side := make(map[lease.NodeID][]lease.NodeID) // the group of each node
	for _, a := range agents {
		if a.takesPart() {
			side[a.ID] = []lease.NodeID{a.ID}
		}
	}
	for _, a := range agents {
		if side[a.ID] == nil {
			continue
		}
		for _, id := range a.View.Sees {
			other := side[id]
			if other == nil || other[0] == side[a.ID][0] {
				continue
			}
			all := slices.Concat(side[a.ID], other)
			slices.Sort(all)
			for _, member := range all {
				side[member] = all
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(side)) {
		if side[id][0] == id {
			sides = append(sides, side[id])
		}
	}
	return sides
}

// Few lists the first six names and the number of the others.
func Few[T ~string](names []T) string {
	const most = 6
	words := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		words = append(words, string(name))
	}
	text := strings.Join(words, ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
