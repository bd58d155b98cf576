package tour

import (
	"maps"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// asked returns the answers of agents that go by the pins.
func asked(parties []party, answers []answer) []visit {
	var visits []visit
	for _, a := range answers {
		v := visit{agent: a.node}
		for _, p := range parties {
			at := a.pins[p.room].node
			v.homes = append(v.homes, home{node: at, source: affinity.Pinned, hosted: at == a.node})
		}
		visits = append(visits, v)
	}
	return visits
}

// setPin has one agent list a pin.
func setPin(i int, room string, p pin) func([]answer) {
	return one(i, func(a *answer) { a.pins[room] = p })
}

// TestPins breaks what agents report of pinned rooms in every way that a check is to see
// .
func TestPins(t *testing.T) {
	for name, c := range map[string]struct {
		damage                          func(a []answer)
		mislead                         func(v []visit)
		pins, orphans, resolved, hosted string // a part of each problem; "" = held
	}{
		"sound":         {},
		"another home":  {damage: setPin(2, "attic", pin{"b", 17, 3}), pins: "attic is pinned to b (epoch 17) says c, to a (epoch 17) says a"},
		"another epoch": {damage: setPin(1, "attic", pin{"a", 18, 3}), pins: "attic is pinned to a (epoch 18) says b"},
		"a pin is lost": {
			damage: all(func(a *answer) { delete(a.pins, "stage") }), pins: "stage has no pin, says a (and 2 more)",
			resolved: "a sends people of stage to b, it is pinned to nobody", hosted: "stage is hosted by b, it is pinned to nobody",
		},
		"a pin is left over": {
			damage: all(func(a *answer) { a.pins["shed"] = pin{"b", 17, 3} }), pins: "shed is pinned to b says a, and is empty (and 2 more)",
		},
		"another size": {damage: setPin(0, "yard", pin{"c", 17, 4}), pins: "yard is pinned for 4 people says a, 3 are there"},
		"an orphan": {
			damage:   all(func(a *answer) { a.pins["yard"] = pin{"d", 17, 3} }),
			orphans:  "yard is pinned to d says a, which is no member (and 2 more)",
			resolved: "a sends people of yard to c, it is pinned to d",
			hosted:   "yard is hosted by c, it is pinned to d",
		},
		"an orphan by one agent": {
			damage:  one(1, func(a *answer) { delete(a.members, "c") }),
			orphans: "yard is pinned to c says b, which is no member",
		},
		"sent elsewhere": {mislead: func(v []visit) { v[1].homes[0].node = "b" }, resolved: "b sends people of attic to b, it is pinned to a"},
		"sent nowhere": {
			mislead:  func(v []visit) { v[0].homes[0], v[1].homes[0], v[2].homes[0] = home{}, home{}, home{} },
			resolved: "a sends people of attic to nobody", hosted: "attic has no host",
		},
		"a right guess": {
			mislead:  func(v []visit) { v[0].homes[0].source, v[0].homes[0].reason = affinity.Degraded, "the store is away" },
			resolved: "a can only guess where attic is: the store is away",
		},
		"not resolved": {
			mislead:  func(v []visit) { v[2].homes = v[2].homes[:2] },
			resolved: "c resolved 2 of 3 rooms", hosted: "yard has no host",
		},
		"two hosts": {mislead: func(v []visit) { v[2].homes[0].hosted = true }, hosted: "attic is hosted by c, it is pinned to a"},
		"no host":   {mislead: func(v []visit) { v[0].homes[0].hosted = false }, hosted: "attic has no host"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := fleet(abc, "abcabcab", nil)
			parties := people(answers, map[string]lease.NodeID{"attic": "a", "stage": "b", "yard": "c"})
			visits := asked(parties, answers)
			if c.damage != nil {
				c.damage(answers)
			}
			if c.mislead != nil {
				c.mislead(visits)
			}
			expectCheck(t, samePins(parties, answers), c.pins)
			expectCheck(t, noOrphans(answers), c.orphans)
			expectCheck(t, oneHome(parties, visits, answers[0].pins), c.resolved)
			expectCheck(t, oneHost(parties, visits, answers[0].pins), c.hosted)
		})
	}
}

// TestMovedPins: which pins moved, and which must not have moved.
func TestMovedPins(t *testing.T) {
	before := map[string]pin{"attic": {"a", 17, 3}, "lobby": {"b", 18, 3}, "stage": {"b", 19, 3}}
	toA, toC := pin{"a", 20, 3}, pin{"c", 20, 3}
	for name, c := range map[string]struct {
		change     map[string]pin
		stay, from string // problems when nothing was to move, when b has gone
	}{
		"nothing moved":      {nil, "", "lobby is still pinned to b (and 1 more)"},
		"those of b":         {map[string]pin{"lobby": toA, "stage": toC}, "lobby was pinned to b, now to a (and 1 more)", ""},
		"one is left behind": {map[string]pin{"lobby": toA}, "lobby was pinned to b, now to a", "stage is still pinned to b"},
		"one moved along": {
			map[string]pin{"attic": toC, "lobby": toA, "stage": toC},
			"attic was pinned to a, now to c (and 2 more)", "attic was pinned to a, now to c",
		},
		"an old epoch": {map[string]pin{"lobby": {"a", 18, 3}, "stage": toC}, "lobby", "lobby has epoch 18, it had 18"},
		"lost":         {map[string]pin{"lobby": {}, "stage": toC}, "lobby was pinned to b, now to nobody", "lobby has epoch 0, it had 18"},
		"again where it was": {
			map[string]pin{"attic": toA, "lobby": toA, "stage": toC},
			"attic was pinned to a, now to a",
			"attic was pinned to a, now to a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			after := maps.Clone(before)
			for room, p := range c.change {
				if after[room] = p; p == (pin{}) {
					delete(after, room)
				}
			}
			expectCheck(t, pinsStay(before, after), c.stay)
			expectCheck(t, onlyPinsOf("b", before, after), c.from)
		})
	}
}

// TestBigRoom: the room that is too big for its owner by the hash.
func TestBigRoom(t *testing.T) {
	source := func(i int, s affinity.Source, again bool) func([]visit) {
		return func(v []visit) { v[i].homes[0].source, v[i].homes[0].again = s, again }
	}
	node := func(n lease.NodeID, agents ...int) func([]visit) {
		return func(v []visit) {
			for _, i := range agents {
				v[i].homes[0].node = n
			}
		}
	}
	for name, c := range map[string]struct {
		damage         func(v []visit)
		same, override string
	}{
		"sound":                   {func([]visit) {}, "", ""},
		"cached, too":             {source(2, affinity.Cached, false), "", ""},
		"one is sent elsewhere":   {node("a", 2), "c says a, a says b", ""},
		"all are sent nowhere":    {node("", 0, 1, 2), "a says nobody", ""},
		"all go by the hash":      {node("d", 0, 1, 2), "", "a sends people there (and 2 more)"},
		"elsewhere, by the hash":  {source(0, affinity.Hash, false), "", "the first answer, by a, is hash"},
		"found by the first":      {source(0, affinity.Pinned, false), "", "the first answer, by a, is pinned"},
		"found in a second try":   {source(0, affinity.Pinned, true), "", ""},
		"by the hash, second try": {source(0, affinity.Hash, true), "", "the first answer, by a, is hash"},
		"pinned twice":            {source(1, affinity.Override, false), "", "a later answer, by b, is override"},
		"a guess":                 {source(1, affinity.Degraded, false), "b can only guess: ", "a later answer, by b, is degraded"},
	} {
		t.Run(name, func(t *testing.T) {
			var asks []visit
			for i, agent := range []lease.NodeID{"a", "b", "c"} {
				h := home{node: "b", source: affinity.Pinned}
				if i == 0 {
					h.source = affinity.Override
				}
				asks = append(asks, visit{agent, []home{h}})
			}
			c.damage(asks)
			expectCheck(t, oneAnswer(asks), c.same)
			expectCheck(t, overridden("d", asks), c.override)
		})
	}
}

// TestRestarted: a room that ends on a drained node starts on another node.
func TestRestarted(t *testing.T) {
	for _, c := range []struct {
		a, b    lease.NodeID
		problem string
	}{
		{"c", "c", ""},
		{"b", "b", "a sends people of lobby to b (and 1 more)"},
		{"c", "b", "b sends people of lobby to b"},
		{"c", "a", "b sends people of lobby to a, a to c"},
		{"", "c", "a sends people of lobby to nobody (and 1 more)"},
	} {
		visits := []visit{{"a", []home{{node: c.a}}}, {"b", []home{{node: c.b}}}}
		expectCheck(t, restarted("lobby", "b", visits), c.problem)
	}
}
