package tour

import (
	"fmt"
	"maps"
	"slices"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// samePins checks that all agents list the same pins, one for each room with people in it
// and no more.
func samePins(parties []party, answers []answer) check {
	var f problems
	first := answers[0]
	for _, a := range answers {
		for _, p := range parties {
			switch got, ok := a.pins[p.room]; {
			case !ok:
				f.add("%s has no pin, says %s", p.room, a.node)
			case got.size != p.size:
				f.add("%s is pinned for %d people says %s, %d are there", p.room, got.size, a.node, p.size)
			case got != first.pins[p.room]:
				f.add("%s is pinned to %s (epoch %d) says %s, to %s (epoch %d) says %s", p.room,
					got.node, got.epoch, a.node, name(first.pins[p.room].node), first.pins[p.room].epoch, first.node)
			}
		}
		for _, room := range slices.Sorted(maps.Keys(a.pins)) {
			p := a.pins[room]
			if !slices.ContainsFunc(parties, func(p party) bool { return p.room == room }) {
				f.add("%s is pinned to %s says %s, and is empty", room, p.node, a.node)
			}
		}
	}
	return f.result("all %d agents list the same %s pins, one for each room", len(answers), count(len(parties)))
}

// noOrphans checks that every pin names a node that is a member, by each agent.
func noOrphans(answers []answer) check {
	var f problems
	for _, a := range answers {
		for _, room := range slices.Sorted(maps.Keys(a.pins)) {
			p := a.pins[room]
			if state, ok := a.members[p.node]; !ok || state == lease.Left {
				f.add("%s is pinned to %s says %s, which is no member", room, name(p.node), a.node)
			}
		}
	}
	return f.result("no pin names a node that is gone")
}

// oneHome checks that every agent sends people to the node that their room is pinned to.
func oneHome(parties []party, visits []visit, pins map[string]pin) check {
	var f problems
	for _, v := range visits {
		if len(v.homes) != len(parties) {
			f.add("%s resolved %d of %d rooms", v.agent, len(v.homes), len(parties))
			continue
		}
		for i, h := range v.homes {
			room := parties[i].room
			switch {
			case h.source == affinity.Degraded:
				f.add("%s can only guess where %s is: %s", v.agent, room, h.reason)
			case h.node != pins[room].node:
				f.add("%s sends people of %s to %s, it is pinned to %s", v.agent, room, name(h.node), name(pins[room].node))
			}
		}
	}
	return f.result("%s pinned rooms resolve to their pins from all %d agents", count(len(parties)), len(visits))
}

// oneHost checks that only the agent of the node that a room is pinned to hosts it.
func oneHost(parties []party, visits []visit, pins map[string]pin) check {
	var f problems
	for i, p := range parties {
		hosts := 0
		for _, v := range visits {
			if i >= len(v.homes) || !v.homes[i].hosted {
				continue
			}
			hosts++
			if want := pins[p.room].node; v.agent != want {
				f.add("%s is hosted by %s, it is pinned to %s", p.room, v.agent, name(want))
			}
		}
		if hosts == 0 {
			f.add("%s has no host", p.room)
		}
	}
	return f.result("each is hosted by the node that it is pinned to, and by no other")
}

// oneAnswer checks that all people of the big room are sent to one node.
func oneAnswer(asks []visit) check {
	var f problems
	agents := make(map[lease.NodeID]bool)
	first := asks[0]
	for _, ask := range asks {
		agents[ask.agent] = true
		switch h := ask.homes[0]; {
		case h.source == affinity.Degraded:
			f.add("%s can only guess: %s", ask.agent, h.reason)
		case h.node == "" || h.node != first.homes[0].node:
			f.add("%s says %s, %s says %s", ask.agent, name(h.node), first.agent, name(first.homes[0].node))
		}
	}
	return f.result("all %d people are sent to one node, by all %d agents", len(asks), len(agents))
}

// overridden checks that the hash did not decide: the first question pinned the room to
// another node than its owner by the hash. A repeated question may find that pin.
func overridden(owner lease.NodeID, asks []visit) check {
	var f problems
	for i, ask := range asks {
		h := ask.homes[0]
		found := h.source == affinity.Pinned || h.source == affinity.Cached
		switch {
		case h.node == owner:
			f.add("%s sends people there", ask.agent)
		case i == 0 && h.source != affinity.Override && (!found || !h.again):
			f.add("the first answer, by %s, is %s", ask.agent, h.source)
		case i > 0 && !found:
			f.add("a later answer, by %s, is %s", ask.agent, h.source)
		}
	}
	return f.result("it is not %s, the owner by the hash: that one has no headroom", name(owner))
}

// movedPins returns the rooms with different pins.
func movedPins(before, after map[string]pin) []string {
	var rooms []string
	for room, p := range before {
		if after[room] != p {
			rooms = append(rooms, room)
		}
	}
	slices.Sort(rooms)
	return rooms
}

// pinsStay checks that no room got another pin, not even to the same node.
func pinsStay(before, after map[string]pin) check {
	var f problems
	for _, room := range movedPins(before, after) {
		f.add("%s was pinned to %s, now to %s%s", room, before[room].node, name(after[room].node), anew(before[room], after[room]))
	}
	return f.result("no pinned room moved")
}

// anew explains a move of a pin to the node that it names already.
func anew(was, is pin) string {
	switch {
	case was.node != is.node:
		return ""
	case was.epoch == is.epoch:
		return fmt.Sprintf(", with size %d instead of %d", is.size, was.size)
	}
	return fmt.Sprintf(" again, with epoch %d after %d: the node was fenced, or has restarted", is.epoch, was.epoch)
}

// onlyPinsOf checks that exactly the rooms of the node that is gone have new pins, of
// greater epochs.
func onlyPinsOf(gone lease.NodeID, before, after map[string]pin) check {
	var f problems
	for _, room := range movedPins(before, after) {
		was, is := before[room], after[room]
		switch {
		case was.node != gone:
			f.add("%s was pinned to %s, now to %s", room, was.node, name(is.node))
		case is.epoch <= was.epoch:
			f.add("%s has epoch %d, it had %d", room, is.epoch, was.epoch)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(after)) {
		if after[room].node == gone {
			f.add("%s is still pinned to %s", room, gone)
		}
	}
	return f.result("only pinned rooms of %s moved, and all of them", gone)
}

// restarted checks that a room that ended on a node that takes no new ones starts on
// another node, the same for all agents.
func restarted(room string, drained lease.NodeID, visits []visit) check {
	var f problems
	first := visits[0]
	for _, v := range visits {
		switch h := v.homes[0]; {
		case h.node == "" || h.node == drained:
			f.add("%s sends people of %s to %s", v.agent, room, name(h.node))
		case h.node != first.homes[0].node:
			f.add("%s sends people of %s to %s, %s to %s", v.agent, room, h.node, first.agent, name(first.homes[0].node))
		}
	}
	return f.result("a room that ends on %s starts again elsewhere", drained)
}
