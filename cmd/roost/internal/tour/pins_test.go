package tour

import (
	"maps"
	"testing"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
)

// asked is what agents answer that go by the pins.
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

// What agents say of pinned rooms, each broken in every way that a check is to
// see. S0.1, S0.8.
func TestChecksOfPins(t *testing.T) {
	for _, c := range []struct {
		name             string
		damage           func(a []answer)
		mislead          func(v []visit)
		pins, orphans    string // faults, part of each; "" = held
		resolved, hosted string
	}{
		{name: "sound"},
		{
			name:   "one agent lists another home",
			damage: func(a []answer) { a[2].pins["attic"] = pin{"b", 17, 3} },
			pins:   "attic is pinned to b (epoch 17) says c, to a (epoch 17) says a",
		},
		{
			name:   "one agent lists another epoch",
			damage: func(a []answer) { a[1].pins["attic"] = pin{"a", 18, 3} },
			pins:   "attic is pinned to a (epoch 18) says b",
		},
		{
			name: "a pin is lost, all agents agree",
			damage: func(a []answer) {
				for i := range a {
					delete(a[i].pins, "stage")
				}
			},
			pins: "stage has no pin, says a (and 2 more)", resolved: "a sends people of stage to b, it is pinned to nobody", hosted: "stage is hosted by b, it is pinned to nobody",
		},
		{
			name: "a pin is left over, all agents agree",
			damage: func(a []answer) {
				for i := range a {
					a[i].pins["shed"] = pin{"b", 17, 3}
				}
			},
			pins: "shed is pinned to b says a, and nobody is there (and 2 more)",
		},
		{
			name:   "another size",
			damage: func(a []answer) { a[0].pins["yard"] = pin{"c", 17, 4} },
			pins:   "yard is pinned for 4 people says a, 3 are there",
		},
		{
			name: "an orphan, all agents agree",
			damage: func(a []answer) {
				for i := range a {
					a[i].pins["yard"] = pin{"d", 17, 3}
				}
			},
			orphans: "yard is pinned to d says a, which is no member (and 2 more)", resolved: "a sends people of yard to c, it is pinned to d", hosted: "yard is hosted by c, it is pinned to d",
		},
		{
			name:    "an orphan by one agent, which has lost the member",
			damage:  func(a []answer) { delete(a[1].members, "c") },
			orphans: "yard is pinned to c says b, which is no member",
		},
		{
			name:     "sent elsewhere by one agent",
			mislead:  func(v []visit) { v[1].homes[0].node = "b" },
			resolved: "b sends people of attic to b, it is pinned to a",
		},
		{
			name: "sent nowhere by all agents",
			mislead: func(v []visit) {
				for i := range v {
					v[i].homes[0] = home{}
				}
			},
			resolved: "a sends people of attic to nobody", hosted: "attic is hosted by nobody",
		},
		{
			name:     "a right guess",
			mislead:  func(v []visit) { v[0].homes[0].source, v[0].homes[0].reason = affinity.Degraded, "the store is away" },
			resolved: "a can only guess where attic is: the store is away",
		},
		{
			name:     "a room not resolved",
			mislead:  func(v []visit) { v[2].homes = v[2].homes[:2] },
			resolved: "c resolved 2 of 3 rooms", hosted: "yard is hosted by nobody",
		},
		{
			name:    "two hosts",
			mislead: func(v []visit) { v[2].homes[0].hosted = true },
			hosted:  "attic is hosted by c, it is pinned to a",
		},
		{
			name:    "no host",
			mislead: func(v []visit) { v[0].homes[0].hosted = false },
			hosted:  "attic is hosted by nobody",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := fleet([]string{"a", "b", "c"}, "abcabcab", nil)
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

// What moved of the pins, and what must not have. S0.8.
func TestChecksOfMovedPins(t *testing.T) {
	before := map[string]pin{"attic": {"a", 17, 3}, "lobby": {"b", 18, 3}, "stage": {"b", 19, 3}}
	for _, c := range []struct {
		name       string
		change     map[string]pin
		stay, from string // faults when nothing was to move, when b has gone
	}{
		{name: "nothing moved", from: "lobby is still pinned to b (and 1 more)"},
		{
			name:   "just those of b",
			change: map[string]pin{"lobby": {"a", 20, 3}, "stage": {"c", 20, 3}},
			stay:   "lobby was pinned to b, now to a (and 1 more)",
		},
		{
			name:   "one is left behind",
			change: map[string]pin{"lobby": {"a", 20, 3}},
			stay:   "lobby was pinned to b, now to a", from: "stage is still pinned to b",
		},
		{
			name:   "one moved along",
			change: map[string]pin{"attic": {"c", 20, 3}, "lobby": {"a", 20, 3}, "stage": {"c", 20, 3}},
			stay:   "attic was pinned to a, now to c (and 2 more)", from: "attic was pinned to a, now to c",
		},
		{
			name:   "an old epoch",
			change: map[string]pin{"lobby": {"a", 18, 3}, "stage": {"c", 20, 3}},
			stay:   "lobby", from: "lobby has epoch 18, it had 18",
		},
		{
			name:   "lost",
			change: map[string]pin{"lobby": {}, "stage": {"c", 20, 3}},
			stay:   "lobby was pinned to b, now to nobody", from: "lobby has epoch 0, it had 18",
		},
		{
			name:   "pinned anew where it was",
			change: map[string]pin{"attic": {"a", 20, 3}, "lobby": {"a", 20, 3}, "stage": {"c", 20, 3}},
			stay:   "attic was pinned to a, now to a", from: "attic was pinned to a, now to a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
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

// The room that is too big for its owner by the hash. S0.2.
func TestChecksOfTheBigRoom(t *testing.T) {
	for _, c := range []struct {
		name           string
		damage         func(v []visit)
		same, override string
	}{
		{name: "sound", damage: func([]visit) {}},
		{
			name:   "cached, too",
			damage: func(v []visit) { v[2].homes[0].source = affinity.Cached },
		},
		{
			name:   "somebody is sent elsewhere",
			damage: func(v []visit) { v[2].homes[0].node = "a" },
			same:   "c says a, a says b",
		},
		{
			name: "all are sent nowhere",
			damage: func(v []visit) {
				for i := range v {
					v[i].homes[0].node = ""
				}
			},
			same: "a says nobody",
		},
		{
			name: "all go by the hash",
			damage: func(v []visit) {
				for i := range v {
					v[i].homes[0].node = "d"
				}
				v[0].homes[0].source = affinity.Hash
			},
			override: "a sends people there (and 2 more)",
		},
		{
			name:     "elsewhere, and yet by the hash",
			damage:   func(v []visit) { v[0].homes[0].source = affinity.Hash },
			override: "the first answer, by a, is hash",
		},
		{
			name:     "found by the first one",
			damage:   func(v []visit) { v[0].homes[0].source = affinity.Pinned },
			override: "the first answer, by a, is pinned",
		},
		{
			name:   "found by the first one, when it asked again",
			damage: func(v []visit) { v[0].homes[0].source, v[0].homes[0].again = affinity.Pinned, true },
		},
		{
			name:     "by the hash, when it asked again",
			damage:   func(v []visit) { v[0].homes[0].source, v[0].homes[0].again = affinity.Hash, true },
			override: "the first answer, by a, is hash",
		},
		{
			name:     "pinned twice",
			damage:   func(v []visit) { v[1].homes[0].source = affinity.Override },
			override: "a later answer, by b, is override",
		},
		{
			name:   "a guess",
			damage: func(v []visit) { v[1].homes[0].source, v[1].homes[0].reason = affinity.Degraded, "it is away" },
			same:   "b can only guess: it is away", override: "a later answer, by b, is degraded",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
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

func TestCheckOfARoomThatBeginsAnew(t *testing.T) {
	for _, c := range []struct {
		homes []lease.NodeID
		fault string
	}{
		{[]lease.NodeID{"c", "c"}, ""},
		{[]lease.NodeID{"b", "b"}, "a sends people of lobby to b (and 1 more)"},
		{[]lease.NodeID{"c", "b"}, "b sends people of lobby to b"},
		{[]lease.NodeID{"c", "a"}, "b sends people of lobby to a, a to c"},
		{[]lease.NodeID{"", "c"}, "a sends people of lobby to nobody (and 1 more)"},
	} {
		visits := []visit{{"a", []home{{node: c.homes[0]}}}, {"b", []home{{node: c.homes[1]}}}}
		expectCheck(t, anew("lobby", "b", visits), c.fault)
	}
}

func TestCheckOfLoads(t *testing.T) {
	expectCheck(t, fullLoads(""), "")
	expectCheck(t, fullLoads("a has heard nothing"), "a has heard nothing")
}
