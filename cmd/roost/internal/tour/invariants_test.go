package tour

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fleet returns the answers of agents that agree on a table, one letter for each
// partition: "abba" gives the first partition to a.
func fleet(nodes []string, table string, rooms []string) []answer {
	var answers []answer
	members := make(map[lease.NodeID]lease.State)
	for _, n := range nodes {
		members[lease.NodeID(n)] = lease.Active
	}
	for _, n := range nodes {
		a := answer{node: lease.NodeID(n), members: maps.Clone(members), digest: 0x00c0ffee00c0ffee, owners: ownersOf(table)}
		for p, owner := range a.owners {
			if owner == a.node {
				a.owned = append(a.owned, placement.Partition(p))
			}
		}
		for _, room := range rooms {
			a.placed = append(a.placed, a.owners[placement.Of(room, len(a.owners))])
		}
		answers = append(answers, a)
	}
	return answers
}

func ownersOf(table string) []lease.NodeID {
	var owners []lease.NodeID
	for _, c := range table {
		owners = append(owners, lease.NodeID(strings.Trim(string(c), ".")))
	}
	return owners
}

// evenly returns a table of n partitions that gives each node its turn.
func evenly(nodes string, n int) string { return strings.Repeat(nodes, n/len(nodes)+1)[:n] }

func expectCheck(t *testing.T, got check, problem string) {
	t.Helper()
	switch {
	case got.what == "":
		t.Errorf("a check without a name: %+v", got)
	case problem == "" && !got.held():
		t.Errorf("%s: problem %q", got.what, got.problem)
	case problem != "" && !strings.Contains(got.problem, problem):
		t.Errorf("%s: problem %q, want %q", got.what, got.problem, problem)
	}
}

// one damages the answer of one agent, all damages the answers of all agents.
func one(i int, f func(a *answer)) func([]answer) { return func(a []answer) { f(&a[i]) } }

func all(f func(a *answer)) func([]answer) {
	return func(a []answer) {
		for i := range a {
			f(&a[i])
		}
	}
}

// TestAgreement breaks what agents agree on in every way that a check is to see.
func TestAgreement(t *testing.T) {
	rooms := []string{"lobby", "stage", "attic", "cellar", "yard"}
	for name, c := range map[string]struct {
		damage             func(a []answer)
		table, owner, room string // a part of each problem; "" = held
	}{
		"sound": {all(func(*answer) {}), "", "", ""},
		"another digest": {
			one(2, func(a *answer) { a.digest = 0x0123456789abcdef }),
			"c has digest 0123456789abcdef, a has 00c0ffee00c0ffee", "", "",
		},
		"no table":          {all(func(a *answer) { a.digest = 0 }), "a has no table", "", ""},
		"digest of another": {one(1, func(a *answer) { a.owners[3] = "c" }), "partition 3 belongs to a says a, to c says b", "", ""},
		"a shorter table": {
			one(1, func(a *answer) { a.owners = a.owners[:7] }),
			"partition 7 belongs to b says a, to nobody says b", "", "",
		},
		"a member less": {one(2, func(a *answer) { delete(a.members, "b") }), "c sees 2 members, a sees 3 (and 1 more)", "", ""},
		"a member more": {one(2, func(a *answer) { a.members["d"] = lease.Active }), "c sees 4 members", "", ""},
		"another member": {
			one(2, func(a *answer) { delete(a.members, "b"); a.members["d"] = lease.Active }),
			"b is no member says c", "", "",
		},
		"another state": {one(0, func(a *answer) { a.members["b"] = lease.Draining }), "b is draining says a, active says b", "", ""},
		"two owners":    {one(2, func(a *answer) { a.owned = append(a.owned, 0) }), "", "partition 0 is owned by a and by c", ""},
		"claimed twice": {one(0, func(a *answer) { a.owned = append(a.owned, 0) }), "", "partition 0 is owned by a and by a", ""},
		"no owner": {
			one(1, func(a *answer) { a.owned = a.owned[1:] }), "",
			"nobody owns partition 1, which the table gives to b", "",
		},
		"the wrong owner": {
			func(a []answer) { a[0].owned, a[1].owned = []placement.Partition{0, 6}, append(a[1].owned, 3) }, "",
			"b owns partition 3, which the table gives to a", "",
		},
		"partition of no table": {one(1, func(a *answer) { a.owned = append(a.owned, 8) }), "", "b owns partition 8, there are 8", ""},
		"nothing at all": {
			all(func(a *answer) { a.owners, a.owned = nil, nil }), "", "there are no partitions",
			"the table of a to nobody",
		},
		"a room elsewhere":        {one(2, func(a *answer) { a.placed[1] = "d" }), "", "", "c resolves stage to d, the table of a to "},
		"a room nowhere":          {one(0, func(a *answer) { a.placed[0] = "" }), "", "", "a resolves lobby to nobody"},
		"alike, not by the table": {all(func(a *answer) { a.placed[4] = "d" }), "", "", "a resolves yard to d, the table of a to"},
		"a room not resolved":     {one(2, func(a *answer) { a.placed = a.placed[:4] }), "", "", "c resolved 4 of 5 rooms"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := fleet(abc, "abcabcab", rooms)
			c.damage(answers)
			expectCheck(t, sameTable(answers), c.table)
			expectCheck(t, oneOwner(answers), c.owner)
			expectCheck(t, sameRooms(rooms, answers), c.room)
		})
	}
}

// TestMoves: what moved, and what must not have moved.
func TestMoves(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		to, from      string // problems when d joined, when b left
		none          string // problem when nothing should have moved
	}{
		"a join":                  {"abcabc", "abdabd", "", "partition 2 moved from c to d", "partition 2 moved from c to d (and 1 more)"},
		"a join, and more":        {"abcabc", "abdbbc", "partition 3 moved from a to b", "(and 4 more)", "(and 1 more)"},
		"a leave":                 {"abcabc", "aacacc", "partition 1 moved from b to a (and 1 more)", "", "from b to a"},
		"a leave, and more":       {"abcabc", "aaccca", "(and 3 more)", "partition 3 moved from a to c (and 1 more)", "(and 3 more)"},
		"a partition left behind": {"abcabc", "abcacc", "partition 4 moved", "partition 1 still belongs to b", "partition 4"},
		"a partition lost":        {"aacaca", "aaca.a", "partition 4 moved from c to nobody", "partition 4 moved from c to nobody", "nobody"},
		"nothing":                 {"aacc", "aacc", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			after := ownersOf(c.after)
			moves := movesOf(ownersOf(c.before), after)
			expectCheck(t, onlyTo("d", moves), c.to)
			expectCheck(t, onlyFrom("b", moves, after), c.from)
			expectCheck(t, nothingMoved(moves), c.none)
		})
	}
	if got, want := fmt.Sprint(movesOf(ownersOf("ab.c"), ownersOf("aba"))), "[{2  a} {3 c }]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestShares(t *testing.T) {
	moves := func(to string, n int) []move {
		var m []move
		for i, owner := range ownersOf(evenly(to, n)) {
			m = append(m, move{placement.Partition(i), "x", owner})
		}
		return m
	}
	// Of 1,024 partitions 205 are a fifth; five standard deviations are 64.
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
		{moves("abcdx", 200), "40 went to x, which is not one of the heirs"},
		{append(moves("abcd", 200), move{1, "x", ""}), "1 went to nobody"},
		{moves("ab", 4), ""}, // two each of four: too few to judge
		{nil, ""},
	} {
		expectCheck(t, spread(c.moves, heirs), c.problem)
	}
}

// TestDraining: a drained node stays a member and owns nothing.
func TestDraining(t *testing.T) {
	for name, c := range map[string]struct {
		damage  func(a []answer)
		problem string
	}{
		"sound":        {all(func(*answer) {}), ""},
		"gone":         {one(0, func(a *answer) { delete(a.members, "b") }), "a does not see it as a member"},
		"active":       {one(2, func(a *answer) { a.members["b"] = lease.Active }), "c sees it as active"},
		"holds on":     {one(1, func(a *answer) { a.owned = []placement.Partition{2} }), "it still owns 1 partitions, by its own account"},
		"in the table": {one(2, func(a *answer) { a.owners[1] = "b" }), "partition 1 still belongs to it, says c"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := fleet(abc, "aacc", nil)
			all(func(a *answer) { a.members["b"] = lease.Draining })(answers)
			c.damage(answers)
			expectCheck(t, idles("b", lease.Draining, answers), c.problem)
		})
	}
}

// TestExpired: another node's lease may expire.
func TestExpired(t *testing.T) {
	earlier, answers := fleet(abc, "aacc", nil), fleet(abc, "aacc", nil)
	answers[2].expired = map[lease.NodeID]int{"a": 1, "b": 2}
	expectCheck(t, noneExpired("b", earlier, answers), "the lease of b expired, says c")
	expectCheck(t, noneExpired("c", earlier, answers), "")
	earlier[2].expired = map[lease.NodeID]int{"b": 2} // it has come back since
	expectCheck(t, noneExpired("b", earlier, answers), "")
}
