package tour

import (
	"fmt"
	"maps"
	"testing"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// one damages the view of one agent. all damages the views of all agents.
func one(i int, f func(v *view)) func([]view) { return func(v []view) { f(&v[i]) } }

func all(f func(v *view)) func([]view) {
	return func(v []view) {
		for i := range v {
			f(&v[i])
		}
	}
}

// TestAgreement damages what the agents agree on, in every way that a check must notice.
func TestAgreement(t *testing.T) {
	rooms := []string{"lobby", "stage", "attic", "cellar", "yard"}
	for name, c := range map[string]struct {
		damage             func(v []view)
		table, owner, room string // a part of each problem; "" = held
	}{
		"sound": {all(func(*view) {}), "", "", ""},
		"another digest": {
			one(2, func(v *view) { v.digest = 0x0123456789abcdef }),
			"c has table 0123456789abcdef, a has 00c0ffee00c0ffee", "", "",
		},
		"no table":          {all(func(v *view) { v.digest = 0 }), "a has no table", "", ""},
		"digest of another": {one(1, func(v *view) { v.owners[3] = "c" }), "partition 3: a says a, b says c", "", ""},
		"a shorter table":   {one(1, func(v *view) { delete(v.owners, 7) }), "partition 7: a says b, b says none", "", ""},
		"a member less":     {one(2, func(v *view) { delete(v.members, "b") }), "member b: a says active, c says none", "", ""},
		"a member more":     {one(2, func(v *view) { v.members["d"] = lease.Active }), "member d: a says none, c says active", "", ""},
		"another member": {
			one(2, func(v *view) { delete(v.members, "b"); v.members["d"] = lease.Active }),
			"member b: a says active, c says none (and 1 more)", "", "",
		},
		"another state": {one(0, func(v *view) { v.members["b"] = lease.Draining }), "member b: a says draining, b says active", "", ""},
		"two owners":    {one(2, func(v *view) { v.owned = append(v.owned, 0) }), "", "partition 0 is owned by a and by c", ""},
		"claimed twice": {one(0, func(v *view) { v.owned = append(v.owned, 0) }), "", "partition 0 is owned by a and by a", ""},
		"no owner": {
			one(1, func(v *view) { v.owned = v.owned[1:] }), "",
			"owner of partition 1: in the table b, according to the agents themselves none", "",
		},
		"the wrong owner": {
			func(v []view) { v[0].owned, v[1].owned = []placement.Partition{0, 6}, append(v[1].owned, 3) }, "",
			"owner of partition 3: in the table a, according to the agents themselves b", "",
		},
		"partition of no table": {one(1, func(v *view) { v.owned = append(v.owned, 8) }), "", "owner of partition 8: in the table none", ""},
		"nothing at all": {
			all(func(v *view) { v.owners, v.owned = nil, nil }), "", "there are no partitions", "lobby has no owner in the table of a",
		},
		"a room elsewhere":        {one(2, func(v *view) { v.placed["stage"] = "d" }), "", "", "owner of stage: in the table "},
		"a room nowhere":          {one(0, func(v *view) { v.placed["lobby"] = "" }), "", "", "a says none"},
		"alike, not by the table": {all(func(v *view) { v.placed["yard"] = "d" }), "", "", "a says d (and 2 more)"},
		"a room not resolved":     {one(2, func(v *view) { delete(v.placed, "cellar") }), "", "", "owner of cellar: "},
	} {
		t.Run(name, func(t *testing.T) {
			views := fleet(abc, "abcabcab", nil, rooms...)
			c.damage(views)
			expectCheck(t, sameTable(views), c.table)
			expectCheck(t, oneOwner(views), c.owner)
			expectCheck(t, sameRooms(rooms, views), c.room)
		})
	}
}

// TestMoves tests the checks of which partitions moved, and which must not have moved.
func TestMoves(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		to, from      string // problems expected if d has joined, or b has left
		none          string // problem expected if nothing should have moved
	}{
		"a join":                  {"abcabc", "abdabd", "", "partition 2 moved from c to d", "partition 2 moved from c to d (and 1 more)"},
		"a join, and more":        {"abcabc", "abdbbc", "partition 3 moved from a to b", "(and 2 more)", "(and 1 more)"},
		"a leave":                 {"abcabc", "aacacc", "partition 1 moved from b to a (and 1 more)", "", "from b to a"},
		"a leave, and more":       {"abcabc", "aaccca", "(and 3 more)", "partition 3 moved from a to c (and 1 more)", "(and 3 more)"},
		"a partition left behind": {"abcabc", "abcacc", "partition 4 moved", "1 partitions still belong to b", "partition 4"},
		"a partition lost":        {"aacaca", "aaca.a", "partition 4 moved from c to none", "partition 4 moved from c to none", "none"},
		"nothing":                 {"aacc", "aacc", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := view{owners: ownersOf(c.after)}
			o := outcome{is: is, moves: diff(ownersOf(c.before), is.owners)}
			expectCheck(t, onlyTo("d", o.moves), c.to)
			expectCheck(t, onlyFrom("b", o), c.from)
			expectCheck(t, nothingMoved(o.moves), c.none)
		})
	}
	if got, want := fmt.Sprint(diff(ownersOf("ab.c"), ownersOf("aba"))), "[{2  a} {3 c }]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestShares(t *testing.T) {
	moves := func(to string, n int) []move { return diff(nil, ownersOf(evenly(to, n))) }
	// A fifth of 1,024 partitions is 205. Five standard deviations are 64.
	for moved, problem := range map[int]string{
		0: "0 moved, expected about 205", 139: "139 moved", 141: "", 205: "", 269: "", 271: "271 moved", 1024: "1024 moved",
	} {
		expectCheck(t, fairShare(moves("a", moved), 1024, 5), problem)
	}
	heirs := []lease.NodeID{"a", "b", "c", "d"}
	for _, c := range []struct {
		moves   []move
		problem string
	}{
		{moves("abcd", 200), ""},
		{moves("abcdabca", 200), ""},
		{moves("abc", 200), "d took 0, expected about 50"},
		{moves("a", 200), "a took 200, expected about 50 (and 3 more)"},
		{moves("abcdx", 200), "40 went to x, which should get none"},
		{append(moves("abcd", 200), move{1, "x", ""}), "1 went to none"},
		{moves("ab", 4), ""}, // four moves are too few for a judgment
		{nil, ""},
	} {
		expectCheck(t, spread(c.moves, heirs), c.problem)
	}
}

// TestDraining: a draining node stays a member and owns nothing.
func TestDraining(t *testing.T) {
	for name, c := range map[string]struct {
		damage  func(v []view)
		problem string
	}{
		"sound":        {all(func(*view) {}), ""},
		"gone":         {one(0, func(v *view) { delete(v.members, "b") }), "a sees it as none"},
		"active":       {one(2, func(v *view) { v.members["b"] = lease.Active }), "c sees it as active"},
		"holds on":     {one(1, func(v *view) { v.owned = []placement.Partition{2} }), "it says that it still owns 1 partitions"},
		"in the table": {one(2, func(v *view) { v.owners[1] = "b" }), "1 partitions still belong to it, says c"},
	} {
		t.Run(name, func(t *testing.T) {
			views := fleet(abc, "aacc", nil)
			all(func(v *view) { v.members["b"] = lease.Draining })(views)
			c.damage(views)
			expectCheck(t, idles("b", views), c.problem)
		})
	}
}

// TestExpired: the check fails if the lease of the given node expires, but not if another node's lease expires.
func TestExpired(t *testing.T) {
	earlier, views := fleet(abc, "aacc", nil), fleet(abc, "aacc", nil)
	views[2].expired = map[lease.NodeID]int{"a": 1, "b": 2}
	expectCheck(t, noneExpired("b", earlier, views), "the lease of b expired, says c")
	expectCheck(t, noneExpired("c", earlier, views), "")
	earlier[2].expired = map[lease.NodeID]int{"b": 2} // these leases had already expired before
	expectCheck(t, noneExpired("b", earlier, views), "")
}

// TestPins damages what the agents report about pinned rooms, in every way that a check must notice.
func TestPins(t *testing.T) {
	setPin := func(i int, room string, p pin) func([]view) { return one(i, func(v *view) { v.pins[room] = p }) }
	for name, c := range map[string]struct {
		damage                          func(v []view)
		mislead                         func(a []answer) []answer // each agent gives three answers: attic, stage, yard
		pins, orphans, resolved, hosted string                    // a part of each problem; "" = held
	}{
		"sound":         {},
		"another home":  {damage: setPin(2, "attic", pin{"b", 17, 3}), pins: "pin of attic: a says a (epoch 17, 3 people), c says b (epoch 17,"},
		"another epoch": {damage: setPin(1, "attic", pin{"a", 18, 3}), pins: "pin of attic: a says a (epoch 17, 3 people), b says a (epoch 18,"},
		"a pin is lost": {
			damage: all(func(v *view) { delete(v.pins, "stage") }), pins: "people in stage: in fact 3, a says none (and 2 more)",
			resolved: "home of stage: by its pin none, a says b", hosted: "host of stage: by its pin none, in fact b",
		},
		"a pin is left over": {
			damage: all(func(v *view) { v.pins["shed"] = pin{"b", 17, 3} }), pins: "people in shed: in fact none, a says 3 (and 2 more)",
			resolved: "home of shed: by its pin b, a says none (and 2 more)", hosted: "host of shed: by its pin b, in fact none",
		},
		"another size": {damage: setPin(0, "yard", pin{"c", 17, 4}), pins: "people in yard: in fact 3, a says 4"},
		"an orphan": {
			damage:   all(func(v *view) { v.pins["yard"] = pin{"d", 17, 3} }),
			orphans:  "yard is pinned to d says a, which is no member (and 2 more)",
			resolved: "home of yard: by its pin d, a says c",
			hosted:   "host of yard: by its pin d, in fact c",
		},
		"an orphan by one agent": {
			damage:  one(1, func(v *view) { delete(v.members, "c") }),
			orphans: "yard is pinned to c says b, which is no member",
		},
		"an orphan that left": {
			damage:  one(1, func(v *view) { v.members["c"] = lease.Left }),
			orphans: "yard is pinned to c says b, which is no member",
		},
		"sent elsewhere": {
			mislead:  func(a []answer) []answer { a[3].Node.ID = "b"; return a },
			resolved: "home of attic: by its pin a, b says b",
		},
		"sent nowhere": {
			mislead: func(a []answer) []answer {
				for i := range a {
					a[i].Node.ID, a[i].Hosted = "", false
				}
				return a
			},
			resolved: "home of attic: by its pin a, a says none", hosted: "host of attic: by its pin a, in fact none",
		},
		"a right guess": {
			mislead:  func(a []answer) []answer { a[0].Source, a[0].Reason = affinity.Degraded, "the store is away"; return a },
			resolved: "a can only guess where attic is: the store is away",
		},
		"not resolved": {
			mislead:  func(a []answer) []answer { return a[:8] },
			resolved: "home of yard: by its pin c, c says none", hosted: "host of yard: by its pin c, in fact none",
		},
		"two hosts": {mislead: func(a []answer) []answer { a[6].Hosted = true; return a }, hosted: "host of attic: by its pin a, in fact a and c"},
		"no host":   {mislead: func(a []answer) []answer { a[0].Hosted = false; return a }, hosted: "host of attic: by its pin a, in fact none"},
	} {
		t.Run(name, func(t *testing.T) {
			homes := map[string]lease.NodeID{"attic": "a", "stage": "b", "yard": "c"}
			views, parties := fleet(abc, "abcabcab", homes), partiesIn(homes)
			var answers []answer
			for _, v := range views {
				for _, p := range parties {
					answers = append(answers, answerOf(v, p.room, affinity.Pinned))
				}
			}
			if c.damage != nil {
				c.damage(views)
			}
			if c.mislead != nil {
				answers = c.mislead(answers)
			}
			expectCheck(t, samePins(parties, views), c.pins)
			expectCheck(t, noOrphans(views), c.orphans)
			expectCheck(t, oneHome(views[0].pins, answers), c.resolved)
			expectCheck(t, oneHost(views[0].pins, answers), c.hosted)
		})
	}
}

// TestMovedPins tests the checks of which pins moved, and which must not have moved.
func TestMovedPins(t *testing.T) {
	before := map[string]pin{"attic": {"a", 17, 3}, "lobby": {"b", 18, 3}, "stage": {"b", 19, 3}}
	toA, toC := pin{"a", 20, 3}, pin{"c", 20, 3}
	const moved = " was pinned to "
	for name, c := range map[string]struct {
		change     map[string]pin
		stay, from string // problems expected if no pin should have moved, or if b is gone
	}{
		"nothing moved":      {nil, "", "lobby is still pinned to b (and 1 more)"},
		"those of b":         {map[string]pin{"lobby": toA, "stage": toC}, "lobby" + moved + "b (epoch 18, 3 people), now to a (epoch 20,", ""},
		"one is left behind": {map[string]pin{"lobby": toA}, "lobby" + moved, "stage is still pinned to b"},
		"one moved along":    {map[string]pin{"attic": toC, "lobby": toA, "stage": toC}, "(and 2 more)", "attic" + moved + "a (epoch 17,"},
		"an old epoch":       {map[string]pin{"lobby": {"a", 18, 3}, "stage": toC}, "lobby", "lobby" + moved + "b (epoch 18, 3 people), now to a (epoch 18,"},
		"lost":               {map[string]pin{"lobby": {}, "stage": toC}, "lobby", "lobby" + moved + "b (epoch 18, 3 people), now to none"},
		"again where it was": {map[string]pin{"attic": toA, "lobby": toA, "stage": toC}, "attic" + moved, "attic" + moved},
		"a further one":      {map[string]pin{"lobby": toA, "stage": toC, "yard": {"a", 21, 3}}, "lobby", ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := merged(before, c.change)
			maps.DeleteFunc(after, func(_ string, p pin) bool { return p == pin{} })
			expectCheck(t, pinsStay(before, after), c.stay)
			expectCheck(t, onlyPinsOf("b", before, after), c.from)
		})
	}
	expectCheck(t, pinsStay(before, merged(before, map[string]pin{"yard": toA})), "")
}

// TestBigRoom tests the checks of a room that is too big for its owner by hash.
func TestBigRoom(t *testing.T) {
	source := func(i int, s affinity.Source, again bool) func([]answer) {
		return func(a []answer) { a[i].Source, a[i].again = s, again }
	}
	node := func(n lease.NodeID, agents ...int) func([]answer) {
		return func(a []answer) {
			for _, i := range agents {
				a[i].Node.ID = n
			}
		}
	}
	for name, c := range map[string]struct {
		damage         func(a []answer)
		same, override string
	}{
		"sound":                   {func([]answer) {}, "", ""},
		"cached, too":             {source(2, affinity.Cached, false), "", ""},
		"one is sent elsewhere":   {node("a", 2), "c sends people of all-hands to a, a to b", ""},
		"all are sent nowhere":    {node("", 0, 1, 2), "a sends people of all-hands to none", ""},
		"all go by the hash":      {node("d", 0, 1, 2), "", "a sends people there (and 2 more)"},
		"elsewhere, by the hash":  {source(0, affinity.Hash, false), "", "the first answer, by a, is hash"},
		"found by the first":      {source(0, affinity.Pinned, false), "", "the first answer, by a, is pinned"},
		"found in a second try":   {source(0, affinity.Pinned, true), "", ""},
		"by the hash, second try": {source(0, affinity.Hash, true), "", "the first answer, by a, is hash"},
		"pinned twice":            {source(1, affinity.Override, false), "", "a later answer, by b, is override"},
		"a guess":                 {source(1, affinity.Degraded, false), "b can only guess: ", "a later answer, by b, is degraded"},
	} {
		t.Run(name, func(t *testing.T) {
			var answers []answer
			for _, v := range fleet(abc, "abc", map[string]lease.NodeID{bigRoom: "b"}) {
				answers = append(answers, answerOf(v, bigRoom, affinity.Pinned))
			}
			answers[0].Source = affinity.Override
			c.damage(answers)
			expectCheck(t, oneAnswer(answers), c.same)
			expectCheck(t, overridden("d", answers), c.override)
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
		{"", "c", "a sends people of lobby to none"},
	} {
		answers := []answer{{by: "a"}, {by: "b"}}
		answers[0].Room, answers[0].Node.ID, answers[1].Room, answers[1].Node.ID = "lobby", c.a, "lobby", c.b
		expectCheck(t, restarted("b", answers), c.problem)
	}
}
