package tour

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// check is an invariant. If the invariant was violated, check also contains an example.
type check struct {
	what    string
	problem string // the contradiction; empty if it held
}

func (c check) held() bool { return c.problem == "" }

// problems collects contradictions. Only the first one is printed.
type problems []string

func (f *problems) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f *problems) result(what string, args ...any) check {
	c := check{what: fmt.Sprintf(what, args...)}
	if len(*f) > 0 {
		c.problem = (*f)[0]
	}
	if more := len(*f) - 1; more > 0 {
		c.problem += fmt.Sprintf(" (and %s more)", count(more))
	}
	return c
}

// difference is a key whose values in two maps differ. A zero value means that the key is missing from that
// map.
type difference[K, V comparable] struct {
	key     K
	was, is V
}

// move is a partition whose owner changed.
type move = difference[placement.Partition, lease.NodeID]

// diff returns the keys whose values in two maps differ, in order.
func diff[K cmp.Ordered, V comparable](was, is map[K]V) (changes []difference[K, V]) {
	all := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(is))
	slices.Sort(all)
	for _, key := range slices.Compact(all) {
		if was[key] != is[key] {
			changes = append(changes, difference[K, V]{key, was[key], is[key]})
		}
	}
	return changes
}

// differ adds a problem for each difference between two sources, such as "partition 7: node-1 says node-2,
// node-3 says none".
func differ[K cmp.Ordered, V comparable](f *problems, what, says string, was map[K]V, othersSay string, is map[K]V) {
	for _, d := range diff(was, is) {
		f.add("%s %v: %s %s, %s %s", what, d.key, says, orNone(d.was), othersSay, orNone(d.is))
	}
}

func orNone[V comparable](v V) string {
	var none V
	if v == none {
		return "none"
	}
	return fmt.Sprint(v)
}

func says(by lease.NodeID) string { return string(by) + " says" }

// sameTable checks that all agents agree on the owner of every partition and on the members.
func sameTable(views []view) check {
	var f problems
	first := views[0]
	for _, v := range views {
		switch {
		case v.digest == 0:
			f.add("%s has no table", v.by)
		case v.digest != first.digest:
			f.add("%s has table %v, %s has %v", v.by, v.digest, first.by, first.digest)
		}
		differ(&f, "partition", says(first.by), first.owners, says(v.by), v.owners)
		differ(&f, "member", says(first.by), first.members, says(v.by), v.members)
	}
	return f.result("all %d agents hold the same table, %.8s…", len(views), first.digest.String())
}

// oneOwner checks that each partition is owned by exactly one agent, as reported by that agent, and that this
// agent is also the owner in the table.
func oneOwner(views []view) check {
	var f problems
	claimed := make(map[placement.Partition]lease.NodeID)
	for _, v := range views {
		for _, p := range v.owned {
			if claimed[p] != "" {
				f.add("partition %d is owned by %s and by %s", p, claimed[p], v.by)
			}
			claimed[p] = v.by
		}
	}
	table := views[0].owners
	if len(table) == 0 {
		f.add("there are no partitions")
	}
	differ(&f, "owner of partition", "in the table", table, "according to the agents themselves", claimed)
	return f.result("each of %s partitions is owned by exactly one agent", count(len(table)))
}

// sameRooms checks that every agent resolves every room to the owner in the table.
func sameRooms(rooms []string, views []view) check {
	var f problems
	table := views[0].owners
	want := make(map[string]lease.NodeID)
	for _, room := range rooms {
		if want[room] = table[placement.Of(room, len(table))]; want[room] == "" {
			f.add("%s has no owner in the table of %s", room, views[0].by)
		}
	}
	for _, v := range views {
		differ(&f, "owner of", "in the table", want, says(v.by), v.placed)
	}
	return f.result("%s rooms have the same owner at all %d agents", count(len(rooms)), len(views))
}

// strays reports the moves for which may returns false.
func strays(moves []move, may func(move) bool) (f problems) {
	for _, m := range moves {
		if !may(m) {
			f.add("partition %d moved from %s to %s", m.key, orNone(m.was), orNone(m.is))
		}
	}
	return f
}

// onlyTo checks that every move was to the joiner.
func onlyTo(joiner lease.NodeID, moves []move) check {
	f := strays(moves, func(m move) bool { return m.is == joiner })
	return f.result("partitions moved only to %s", joiner)
}

// onlyFrom checks that all partitions of the leaver moved, and no others.
func onlyFrom(leaver lease.NodeID, o outcome) check {
	f := strays(o.moves, func(m move) bool { return m.was == leaver })
	if n := tally(o.is.owners, leaver); n > 0 {
		f.add("%d partitions still belong to %s", n, leaver)
	}
	return f.result("all partitions of %s moved, and no others", leaver)
}

func nothingMoved(moves []move) check {
	f := strays(moves, func(move) bool { return false })
	return f.result("no partition moved")
}

// fairShare checks that about one in n partitions moved. Because owners are practically random, the check
// tolerates five standard deviations.
func fairShare(moves []move, partitions, n int) check {
	var f problems
	p := 1 / float64(n)
	expected := p * float64(partitions)
	if off := math.Abs(float64(len(moves)) - expected); off > 5*math.Sqrt(expected*(1-p))+1 {
		f.add("%d moved, expected about %.0f", len(moves), expected)
	}
	return f.result("the share that moved is near the expected %s", percent(1, n))
}

// spread checks that each heir received about the same number of partitions, so that no survivor takes over
// the whole load of a dead node.
func spread(moves []move, heirs []lease.NodeID) check {
	var f problems
	got := make(map[lease.NodeID]int)
	for _, m := range moves {
		got[m.is]++
	}
	mean := float64(len(moves)) / float64(max(1, len(heirs)))
	for _, id := range heirs {
		if off := math.Abs(float64(got[id]) - mean); off > 5*math.Sqrt(mean)+1 {
			f.add("%s took %d, expected about %.0f", id, got[id], mean)
		}
		delete(got, id)
	}
	for id, n := range got {
		f.add("%d went to %s, which should get none", n, orNone(id))
	}
	return f.result("its partitions are spread over the other %d nodes", len(heirs))
}

// idles checks that all agents see the node as a draining member that owns nothing.
func idles(node lease.NodeID, views []view) check {
	var f problems
	for _, v := range views {
		if state := v.members[node]; state != lease.Draining {
			f.add("%s sees it as %s", v.by, orNone(state))
		}
		if v.by == node && len(v.owned) > 0 {
			f.add("it says that it still owns %d partitions", len(v.owned))
		}
		if n := tally(v.owners, node); n > 0 {
			f.add("%d partitions still belong to it, says %s", n, v.by)
		}
	}
	return f.result("%s stays a member, draining, and owns nothing", node)
}

// noneExpired checks that no agent has recorded an expired lease of the node since the agent's earlier view.
func noneExpired(node lease.NodeID, earlier, views []view) check {
	was := make(map[lease.NodeID]int)
	for _, v := range earlier {
		was[v.by] = v.expired[node]
	}
	var f problems
	for _, v := range views {
		if v.expired[node] > was[v.by] {
			f.add("the lease of %s expired, says %s", node, v.by)
		}
	}
	return f.result("no node waited for a lease to expire")
}

// samePins checks that all agents list the same pins: exactly one for each room that has people in it.
func samePins(parties []party, views []view) check {
	var f problems
	people := make(map[string]int)
	for _, p := range parties {
		people[p.room] = p.size
	}
	first := views[0]
	for _, v := range views {
		pinned := make(map[string]int)
		for room, p := range v.pins {
			pinned[room] = p.size
		}
		differ(&f, "people in", "in fact", people, says(v.by), pinned)
		differ(&f, "pin of", says(first.by), first.pins, says(v.by), v.pins)
	}
	return f.result("all %d agents list the same %s pins, one per room", len(views), count(len(parties)))
}

// noOrphans checks that every pin in an agent's view names a member in that view.
func noOrphans(views []view) check {
	var f problems
	for _, v := range views {
		for _, room := range slices.Sorted(maps.Keys(v.pins)) {
			if home := v.pins[room].node; v.members[home] == 0 || v.members[home] == lease.Left {
				f.add("%s is pinned to %s says %s, which is no member", room, orNone(home), v.by)
			}
		}
	}
	return f.result("no pin names a node that is gone")
}

// homesOf returns the nodes that rooms are pinned to.
func homesOf(pins map[string]pin) map[string]lease.NodeID {
	homes := make(map[string]lease.NodeID, len(pins))
	for room, p := range pins {
		homes[room] = p.node
	}
	return homes
}

// oneHome checks that every agent sends people to the node that the room is pinned to.
func oneHome(pins map[string]pin, answers []answer) check {
	var f problems
	sent := make(map[lease.NodeID]map[string]lease.NodeID) // by agent and room
	for _, a := range answers {
		if a.Source == affinity.Degraded {
			f.add("%s can only guess where %s is: %s", a.by, a.Room, a.Reason)
		}
		if sent[a.by] == nil {
			sent[a.by] = make(map[string]lease.NodeID)
		}
		sent[a.by][a.Room] = a.Node.ID
	}
	for _, by := range slices.Sorted(maps.Keys(sent)) {
		differ(&f, "home of", "by its pin", homesOf(pins), says(by), sent[by])
	}
	return f.result("%s pinned rooms resolve to their pins at all %d agents", count(len(pins)), len(sent))
}

// oneHost checks that each room is hosted only by the agent of the node that the room is pinned to.
func oneHost(pins map[string]pin, answers []answer) check {
	var f problems
	hosts := make(map[string]lease.NodeID)
	for _, a := range answers {
		switch {
		case a.Hosted && hosts[a.Room] != "":
			hosts[a.Room] += " and " + a.by
		case a.Hosted:
			hosts[a.Room] = a.by
		}
	}
	differ(&f, "host of", "by its pin", homesOf(pins), "in fact", hosts)
	return f.result("each room is hosted by the node that it is pinned to, and by no other node")
}

// alike reports each answer that sends people of a room to a different node than the first answer, or to no node.
func alike(answers []answer) (f problems) {
	first := answers[0]
	for _, a := range answers {
		if a.Node.ID == "" || a.Node.ID != first.Node.ID {
			f.add("%s sends people of %s to %s, %s to %s", a.by, a.Room, orNone(a.Node.ID), first.by, orNone(first.Node.ID))
		}
	}
	return f
}

// oneAnswer checks that all people of the big room are sent to the same node.
func oneAnswer(answers []answer) check {
	f := alike(answers)
	agents := make(map[lease.NodeID]bool)
	for _, a := range answers {
		agents[a.by] = true
		if a.Source == affinity.Degraded {
			f.add("%s can only guess: %s", a.by, a.Reason)
		}
	}
	return f.result("all %d people are sent to the same node, by all %d agents", len(answers), len(agents))
}

// overridden checks that the first question pinned the room to a node other than the owner that the hash
// chose. Only the first answer can be an override. If the first question was repeated, its answer can instead
// be the pin that an earlier attempt created.
func overridden(owner lease.NodeID, answers []answer) check {
	var f problems
	for i, a := range answers {
		found := a.Source == affinity.Pinned || a.Source == affinity.Cached
		switch {
		case a.Node.ID == owner:
			f.add("%s sends people there", a.by)
		case i == 0 && a.Source != affinity.Override && (!found || !a.again):
			f.add("the first answer, by %s, is %s", a.by, a.Source)
		case i > 0 && !found:
			f.add("a later answer, by %s, is %s", a.by, a.Source)
		}
	}
	return f.result("that node is not %s, the owner by hash, which has no headroom", orNone(owner))
}

// restarted checks that a room that ended on a draining node starts on another node, and that all agents name
// the same node.
func restarted(drained lease.NodeID, answers []answer) check {
	f := alike(answers)
	for _, a := range answers {
		if a.Node.ID == drained {
			f.add("%s sends people of %s to %s", a.by, a.Room, drained)
		}
	}
	return f.result("a room that ends on %s begins again on another node", drained)
}

// pinsStay checks that no pin of an earlier room changed. A new epoch on the same node also fails the check,
// because it means that the node was fenced or restarted.
func pinsStay(before, after map[string]pin) check {
	var f problems
	for _, d := range movedPins(before, after) {
		f.add("%s was pinned to %v, now to %s", d.key, d.was, orNone(d.is))
	}
	return f.result("no pinned room moved")
}

// movedPins returns the rooms that had a pin before and now have a different pin or none.
func movedPins(before, after map[string]pin) []difference[string, pin] {
	return slices.DeleteFunc(diff(before, after), func(d difference[string, pin]) bool { return d.was == pin{} })
}

// onlyPinsOf checks that all rooms of the node that is gone, and no other rooms, were repinned with greater
// epochs.
func onlyPinsOf(gone lease.NodeID, before, after map[string]pin) check {
	var f problems
	for _, d := range movedPins(before, after) {
		if d.was.node != gone || d.is.epoch <= d.was.epoch {
			f.add("%s was pinned to %v, now to %s", d.key, d.was, orNone(d.is))
		}
	}
	for _, room := range slices.Sorted(maps.Keys(after)) {
		if after[room].node == gone {
			f.add("%s is still pinned to %s", room, gone)
		}
	}
	return f.result("all pinned rooms of %s moved, and no others", gone)
}
