package tour

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fleet makes the answers of agents that agree on a table, which has one letter
// per partition: "abba" gives the first partition to a.
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
		if c == '.' {
			owners = append(owners, "")
		} else {
			owners = append(owners, lease.NodeID(c))
		}
	}
	return owners
}

// evenly returns a table of n partitions that goes round the nodes.
func evenly(nodes string, n int) string { return strings.Repeat(nodes, n/len(nodes)+1)[:n] }

func expectCheck(t *testing.T, got check, fault string) {
	t.Helper()
	switch {
	case got.what == "":
		t.Errorf("a check that says nothing: %+v", got)
	case fault == "" && !got.held():
		t.Errorf("%s: unexpected fault %q", got.what, got.fault)
	case fault != "" && !strings.Contains(got.fault, fault):
		t.Errorf("%s: fault %q, want one that says %q", got.what, got.fault, fault)
	}
}

// What agents agree on, each broken in every way that the check is to see.
func TestChecksOfAgreement(t *testing.T) {
	rooms := []string{"lobby", "stage", "attic", "cellar", "yard"}
	for _, c := range []struct {
		name   string
		damage func(a []answer)
		table  string // faults, part of each; "" = held
		owner  string
		room   string
	}{
		{name: "sound", damage: func([]answer) {}},
		{
			name:   "another digest",
			damage: func(a []answer) { a[2].digest = 0x0123456789abcdef },
			table:  "c has digest 0123456789abcdef, a has 00c0ffee00c0ffee",
		},
		{
			name: "no table",
			damage: func(a []answer) {
				for i := range a {
					a[i].digest = 0
				}
			},
			table: "a has no table",
		},
		{
			name:   "the same digest over another table",
			damage: func(a []answer) { a[1].owners[3] = "c" },
			table:  "partition 3 belongs to a says a, to c says b",
		},
		{
			name:   "a shorter table",
			damage: func(a []answer) { a[1].owners = a[1].owners[:7] },
			table:  "partition 7 belongs to b says a, to nobody says b",
		},
		{
			name:   "a member less",
			damage: func(a []answer) { delete(a[2].members, "b") },
			table:  "c sees 2 members, a sees 3 (and 1 more)",
		},
		{
			name:   "a member more",
			damage: func(a []answer) { a[2].members["d"] = lease.Active },
			table:  "c sees 4 members",
		},
		{
			name: "another member",
			damage: func(a []answer) {
				delete(a[2].members, "b")
				a[2].members["d"] = lease.Active
			},
			table: "b is no member says c",
		},
		{
			name:   "another state",
			damage: func(a []answer) { a[0].members["b"] = lease.Draining },
			table:  "b is draining says a, active says b",
		},
		{
			name:   "two owners",
			damage: func(a []answer) { a[2].owned = append(a[2].owned, 0) },
			owner:  "partition 0 is owned by a and by c",
		},
		{
			name:   "claimed twice by the same",
			damage: func(a []answer) { a[0].owned = append(a[0].owned, 0) },
			owner:  "partition 0 is owned by a and by a",
		},
		{
			name:   "no owner",
			damage: func(a []answer) { a[1].owned = a[1].owned[1:] },
			owner:  "nobody owns partition 1, which the table gives to b",
		},
		{
			name: "owned by the wrong one",
			damage: func(a []answer) {
				a[0].owned = slices.DeleteFunc(a[0].owned, func(p placement.Partition) bool { return p == 3 })
				a[1].owned = append(a[1].owned, 3)
			},
			owner: "b owns partition 3, which the table gives to a",
		},
		{
			name:   "a partition that is not in the table",
			damage: func(a []answer) { a[1].owned = append(a[1].owned, 8) },
			owner:  "b owns partition 8, there are 8",
		},
		{
			name: "nothing at all",
			damage: func(a []answer) {
				for i := range a {
					a[i].owners, a[i].owned = nil, nil
				}
			},
			owner: "there are no partitions",
			room:  "the table of a to nobody",
		},
		{
			name:   "a room elsewhere",
			damage: func(a []answer) { a[2].placed[1] = "d" },
			room:   "c resolves stage to d, the table of a to ",
		},
		{
			name:   "a room nowhere",
			damage: func(a []answer) { a[0].placed[0] = "" },
			room:   "a resolves lobby to nobody",
		},
		{
			name: "all agents alike, but not by the table",
			damage: func(a []answer) {
				for i := range a {
					a[i].placed[4] = "d"
				}
			},
			room: "a resolves yard to d, the table of a to",
		},
		{
			name:   "a room not resolved",
			damage: func(a []answer) { a[2].placed = a[2].placed[:4] },
			room:   "c resolved 4 of 5 rooms",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := fleet([]string{"a", "b", "c"}, "abcabcab", rooms)
			c.damage(answers)
			expectCheck(t, sameTable(answers), c.table)
			expectCheck(t, oneOwner(answers), c.owner)
			expectCheck(t, sameRooms(rooms, answers), c.room)
		})
	}
}

// What moved, and what must not have. S3.9.
func TestChecksOfMoves(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after string
		to, from      string // faults when d joined, when b left
		none          string // fault when nothing should have moved
	}{
		{
			name:   "a join",
			before: "abcabc", after: "abdabd",
			from: "partition 2 moved from c to d", none: "partition 2 moved from c to d (and 1 more)",
		},
		{
			name:   "a join that moves something else",
			before: "abcabc", after: "abdbbc",
			to: "partition 3 moved from a to b", from: "(and 4 more)", none: "(and 1 more)",
		},
		{
			name:   "a leave",
			before: "abcabc", after: "aacacc",
			to: "partition 1 moved from b to a (and 1 more)", none: "from b to a",
		},
		{
			name:   "a leave that moves something else",
			before: "abcabc", after: "aaccca",
			to: "(and 3 more)", from: "partition 3 moved from a to c (and 1 more)", none: "(and 3 more)",
		},
		{
			name:   "a leave that leaves something behind",
			before: "abcabc", after: "abcacc",
			to: "partition 4 moved", from: "partition 1 still belongs to b", none: "partition 4",
		},
		{
			name:   "a leave that leaves a partition without owner",
			before: "aacaca", after: "aaca.a",
			to: "partition 4 moved from c to nobody", from: "partition 4 moved from c to nobody", none: "nobody",
		},
		{name: "nothing", before: "aacc", after: "aacc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := ownersOf(c.after)
			moves := movesOf(ownersOf(c.before), after)
			expectCheck(t, onlyTo("d", moves), c.to)
			expectCheck(t, onlyFrom("b", moves, after), c.from)
			expectCheck(t, nothingMoved(moves), c.none)
		})
	}
}

func TestChecksOfShares(t *testing.T) {
	moves := func(to string, n int) []move {
		var m []move
		for i, owner := range ownersOf(evenly(to, n)) {
			m = append(m, move{placement.Partition(i), "x", owner})
		}
		return m
	}
	// Of 1,024 partitions 205 are a fifth; five standard deviations are 64.
	for moved, fault := range map[int]string{
		0: "0 moved, expected about 205", 139: "139 moved", 141: "", 205: "", 269: "", 271: "271 moved", 1024: "1024 moved",
	} {
		expectCheck(t, fairShare(moves("a", moved), 1024, 5), fault)
	}
	heirs := []lease.NodeID{"a", "b", "c", "d"}
	for _, c := range []struct {
		moves []move
		fault string
	}{
		{moves("abcd", 200), ""},
		{moves("abcdabca", 200), ""},
		{moves("abc", 200), "d took 0, expected about 50"},
		{moves("a", 200), "a took 200, expected about 50 (and 3 more)"},
		{moves("abcdx", 200), "40 went to x, which is not one of the heirs"},
		{append(moves("abcd", 200), move{1, "x", ""}), "1 went to nobody"},
		{moves("ab", 4), ""}, // two each of four: too few to tell
		{nil, ""},
	} {
		expectCheck(t, spread(c.moves, heirs), c.fault)
	}
}

func TestCheckOfDraining(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(a []answer)
		fault  string
	}{
		{"sound", func([]answer) {}, ""},
		{"gone", func(a []answer) { delete(a[0].members, "b") }, "a does not see it as a member"},
		{"active", func(a []answer) { a[2].members["b"] = lease.Active }, "c sees it as active"},
		{"holds on", func(a []answer) { a[1].owned = []placement.Partition{2} }, "it still says that it owns 1 partitions"},
		{"in the table", func(a []answer) { a[2].owners[1] = "b" }, "partition 1 still belongs to it, says c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := fleet([]string{"a", "b", "c"}, "aacc", nil)
			for i := range answers {
				answers[i].members["b"] = lease.Draining
			}
			c.damage(answers)
			expectCheck(t, idles("b", lease.Draining, answers), c.fault)
		})
	}
}

func TestMovesOf(t *testing.T) {
	got := fmt.Sprint(movesOf(ownersOf("ab.c"), ownersOf("aba")))
	if want := "[{2  a} {3 c }]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
