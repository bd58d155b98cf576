package tour

import (
	"fmt"
	"math"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// answer is everything that one agent reports.
type answer struct {
	node    lease.NodeID
	members map[lease.NodeID]lease.State
	digest  placement.Digest
	owners  []lease.NodeID        // by partition, by its table
	owned   []placement.Partition // its own partitions, by its own account
	placed  []lease.NodeID        // by room; nil before there are rooms
	pins    map[string]pin        // by room; nil before any is pinned
	expired map[lease.NodeID]int  // how often leases of a node expired, by its history
}

// check is one invariant, and whether it held.
type check struct {
	what    string
	problem string // the contradiction; empty if it held
}

func (c check) held() bool { return c.problem == "" }

// problems collects contradictions. One example is enough to print.
type problems struct {
	first string
	more  int
}

func (f *problems) add(format string, args ...any) {
	if f.first == "" {
		f.first = fmt.Sprintf(format, args...)
		return
	}
	f.more++
}

func (f *problems) result(what string, args ...any) check {
	c := check{what: fmt.Sprintf(what, args...), problem: f.first}
	if f.more > 0 {
		c.problem += fmt.Sprintf(" (and %s more)", count(f.more))
	}
	return c
}

// sameTable checks that all agents agree on every owner and on who is a member.
func sameTable(answers []answer) check {
	var f problems
	first := answers[0]
	for _, a := range answers {
		switch {
		case a.digest == 0:
			f.add("%s has no table", a.node)
		case a.digest != first.digest:
			f.add("%s has digest %v, %s has %v", a.node, a.digest, first.node, first.digest)
		}
		for _, m := range movesOf(first.owners, a.owners) {
			f.add("partition %d belongs to %s says %s, to %s says %s",
				m.partition, name(m.from), first.node, name(m.to), a.node)
		}
		if len(a.members) != len(first.members) {
			f.add("%s sees %d members, %s sees %d", a.node, len(a.members), first.node, len(first.members))
		}
		for id, state := range first.members {
			if got := a.members[id]; got != state && got != 0 {
				f.add("%s is %s says %s, %s says %s", id, state, first.node, got, a.node)
			} else if got == 0 {
				f.add("%s is no member says %s", id, a.node)
			}
		}
	}
	return f.result("all %d agents hold the same table, %.8s…", len(answers), first.digest.String())
}

// oneOwner checks that the partitions that the agents own, by their own account, are each
// partition once, as in the table.
func oneOwner(answers []answer) check {
	var f problems
	table := answers[0].owners
	claimed := make([]lease.NodeID, len(table))
	for _, a := range answers {
		for _, p := range a.owned {
			switch {
			case int(p) >= len(table):
				f.add("%s owns partition %d, there are %d", a.node, p, len(table))
			case claimed[p] != "":
				f.add("partition %d is owned by %s and by %s", p, claimed[p], a.node)
			default:
				claimed[p] = a.node
			}
		}
	}
	if len(table) == 0 {
		f.add("there are no partitions")
	}
	for _, m := range movesOf(table, claimed) {
		if m.to == "" {
			f.add("nobody owns partition %d, which the table gives to %s", m.partition, name(m.from))
		} else {
			f.add("%s owns partition %d, which the table gives to %s", m.to, m.partition, name(m.from))
		}
	}
	return f.result("each of %s partitions is owned by exactly one agent", count(len(table)))
}

// sameRooms checks that every agent resolves every room to the owner in the table.
func sameRooms(rooms []string, answers []answer) check {
	var f problems
	table := answers[0].owners
	for _, a := range answers {
		if len(a.placed) != len(rooms) {
			f.add("%s resolved %d of %d rooms", a.node, len(a.placed), len(rooms))
			continue
		}
		for i, owner := range a.placed {
			want := lease.NodeID("")
			if p := placement.Of(rooms[i], len(table)); int(p) < len(table) {
				want = table[p]
			}
			if owner == "" || owner != want {
				f.add("%s resolves %s to %s, the table of %s to %s", a.node, rooms[i], name(owner), answers[0].node, name(want))
			}
		}
	}
	return f.result("%s rooms resolve alike from all %d agents", count(len(rooms)), len(answers))
}

// move is one partition, or room, that changed its owner.
type move struct {
	partition placement.Partition
	from, to  lease.NodeID
}

// movesOf returns the difference of two lists of owners.
func movesOf(before, after []lease.NodeID) []move {
	at := func(owners []lease.NodeID, i int) lease.NodeID {
		if i < len(owners) {
			return owners[i]
		}
		return ""
	}
	var moves []move
	for i := range max(len(before), len(after)) {
		if from, to := at(before, i), at(after, i); from != to {
			moves = append(moves, move{placement.Partition(i), from, to})
		}
	}
	return moves
}

// strays returns the moves that should not have happened.
func strays(moves []move, may func(move) bool) (f problems) {
	for _, m := range moves {
		if !may(m) {
			f.add("partition %d moved from %s to %s", m.partition, name(m.from), name(m.to))
		}
	}
	return f
}

// onlyTo checks that every move was to the joiner.
func onlyTo(joiner lease.NodeID, moves []move) check {
	f := strays(moves, func(m move) bool { return m.to == joiner })
	return f.result("only partitions that %s now owns moved", joiner)
}

// onlyFrom checks that exactly the partitions of the leaver moved.
func onlyFrom(leaver lease.NodeID, moves []move, after []lease.NodeID) check {
	f := strays(moves, func(m move) bool { return m.from == leaver })
	for p, owner := range after {
		if owner == leaver {
			f.add("partition %d still belongs to %s", p, leaver)
		}
	}
	return f.result("only partitions that %s owned moved, and all of them", leaver)
}

func nothingMoved(moves []move) check {
	f := strays(moves, func(move) bool { return false })
	return f.result("no partition moved")
}

// fairShare checks that about one in n of the partitions moved: owners are as if drawn by
// lot, so the share may be some standard deviations off.
func fairShare(moves []move, partitions, n int) check {
	var f problems
	p := 1 / float64(n)
	expected := p * float64(partitions)
	if off := math.Abs(float64(len(moves)) - expected); off > 5*math.Sqrt(expected*(1-p))+1 {
		f.add("%d moved, expected about %.0f", len(moves), expected)
	}
	return f.result("the share that moved is near the expected %s", percent(1, n))
}

// spread checks that the partitions of the leaver moved to the others in about equal
// parts, so that no survivor takes the whole load of a dead node.
func spread(moves []move, heirs []lease.NodeID) check {
	var f problems
	got := make(map[lease.NodeID]int)
	for _, m := range moves {
		got[m.to]++
	}
	mean := float64(len(moves)) / float64(max(1, len(heirs)))
	for _, id := range heirs {
		if off := math.Abs(float64(got[id]) - mean); off > 5*math.Sqrt(mean)+1 {
			f.add("%s took %d, expected about %.0f", id, got[id], mean)
		}
		delete(got, id)
	}
	for id, n := range got {
		f.add("%d went to %s, which is not one of the heirs", n, name(id))
	}
	return f.result("its partitions spread over the other %d", len(heirs))
}

// idles checks that all agents see the node as a member in the given state that owns
// nothing.
func idles(node lease.NodeID, state lease.State, answers []answer) check {
	var f problems
	for _, a := range answers {
		switch got, ok := a.members[node]; {
		case !ok:
			f.add("%s does not see it as a member", a.node)
		case got != state:
			f.add("%s sees it as %s", a.node, got)
		}
		if a.node == node && len(a.owned) > 0 {
			f.add("it still owns %d partitions, by its own account", len(a.owned))
		}
		for p, owner := range a.owners {
			if owner == node {
				f.add("partition %d still belongs to it, says %s", p, a.node)
			}
		}
	}
	return f.result("%s stays a member, %s, and owns nothing", node, state)
}

// noneExpired checks that no agent waited for the lease of the node to expire, after its earlier answer.
func noneExpired(node lease.NodeID, earlier, answers []answer) check {
	was := make(map[lease.NodeID]int)
	for _, a := range earlier {
		was[a.node] = a.expired[node]
	}
	var f problems
	for _, a := range answers {
		if a.expired[node] > was[a.node] {
			f.add("the lease of %s expired, says %s", node, a.node)
		}
	}
	return f.result("no node waited for a lease to expire")
}

// name is how an owner is printed.
func name(id lease.NodeID) string {
	if id == "" {
		return "nobody"
	}
	return string(id)
}
