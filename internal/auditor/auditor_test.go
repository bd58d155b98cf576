package auditor_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/auditor"
)

const (
	partitions = 12
	ttl        = 6 * time.Second
	look       = 100 * time.Millisecond
)

// fleet is a healthy fleet of three nodes, each of which owns a third of the partitions. Tests break it.
type fleet struct {
	*auditor.Auditor
	at, disturbed time.Duration
	nodes         []*auditor.Process
	cuts          []auditor.Cut
	orders        []auditor.Order
	overlaps      []auditor.Overlap
}

func newFleet(t *testing.T, change func(*auditor.Settings)) *fleet {
	t.Helper()
	s := auditor.Settings{TTL: ttl, Partitions: partitions, Settle: 20 * time.Second}
	if change != nil {
		change(&s)
	}
	f := &fleet{Auditor: auditor.New(s)}
	table := &auditor.Table{}
	var members []auditor.Member
	for i := range 3 {
		id := string(rune('a' + i))
		table.Nodes = append(table.Nodes, auditor.Node{ID: id, Weight: 100})
		members = append(members, auditor.Member{ID: id, Incarnation: 1})
		f.nodes = append(f.nodes, &auditor.Process{Run: i + 1, ID: id, Incarnation: 1, Seed: true, Weight: 100})
	}
	for p := range partitions {
		table.Owners = append(table.Owners, table.Nodes[p%3].ID)
	}
	for i, n := range f.nodes {
		n.Answer = &auditor.Answer{State: "active", Members: members, Table: table, Owned: []int{i, i + 3, i + 6, i + 9}}
		n.News = []auditor.Batch{{Full: true, Acquired: n.Answer.Owned, Joined: []string{"a", "b", "c"}}}
		if s.Handoff > 0 {
			n.Runs = n.Answer.Owned
		}
	}
	f.pass(time.Minute)
	if len(f.Objections) > 0 {
		t.Fatalf("a healthy fleet: %v", f.Objections)
	}
	return f
}

// pass lets the auditor observe the fleet for some time.
func (f *fleet) pass(d time.Duration) {
	for ; d > 0; d -= look {
		f.at += look
		f.Observe(&auditor.Observation{
			At: f.at, Disturbed: f.disturbed, Hosts: 3, Cuts: f.cuts, Orders: f.orders, Processes: f.nodes,
			Overlaps: f.overlaps,
		})
		f.orders, f.overlaps = nil, nil
		for i, p := range f.nodes {
			next := *p
			next.News, next.Late = nil, nil
			f.nodes[i] = &next
		}
		f.nodes = slices.DeleteFunc(f.nodes, func(p *auditor.Process) bool { return p.Status >= auditor.Left })
	}
}

// answer changes the answer of a node from now on.
func (f *fleet) answer(i int, change func(*auditor.Answer)) {
	a := *f.nodes[i].Answer
	change(&a)
	f.nodes[i].Answer = &a
}

func (f *fleet) tell(i int, b auditor.Batch) { f.nodes[i].News = append(f.nodes[i].News, b) }

// lose makes the first node lose another.
func (f *fleet) lose(id, reason string) {
	f.answer(0, func(a *auditor.Answer) {
		a.Members = slices.DeleteFunc(slices.Clone(a.Members), func(m auditor.Member) bool { return m.ID == id })
	})
	f.tell(0, auditor.Batch{Left: []string{id}, Reasons: map[string]string{id: reason}})
}

// stop stops or ends a node for some time.
func (f *fleet) stop(i int, s auditor.Status, d time.Duration) {
	f.disturbed = f.at
	f.nodes[i].Status = s
	f.pass(d)
	if i < len(f.nodes) && f.nodes[i].Status == s {
		f.nodes[i].Status = auditor.Running
	}
}

// A rule objects if it does not hold, and to nothing else: the first objection is about this rule.
func TestRules(t *testing.T) {
	handoff := func(s *auditor.Settings) { s.Handoff = 10 * time.Second }
	for _, c := range []struct {
		rule, name string
		settings   func(*auditor.Settings)
		breaks     func(*fleet)
	}{
		{"sum", "owns what it did not acquire", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
		}},
		{"sum", "acquires twice", nil, func(f *fleet) { f.tell(0, auditor.Batch{Acquired: []int{0}}) }},
		{"sum", "a watcher that reads seldom misses a loss", nil, func(f *fleet) {
			f.nodes[0].Late = &auditor.Batch{Full: true, Acquired: f.nodes[0].Answer.Owned, Joined: []string{"a", "b", "c"}}
			f.pass(look)
			f.tell(0, auditor.Batch{Released: []int{0}})
			f.tell(0, auditor.Batch{Acquired: []int{0}})
			f.nodes[0].Late = &auditor.Batch{}
		}},
		{"reason", "left without an order", nil, func(f *fleet) {
			f.stop(2, auditor.Dead, time.Second)
			f.lose("c", "left")
		}},
		{"reason", "crashed instead of left", nil, func(f *fleet) {
			f.stop(2, auditor.Left, look)
			f.lose("c", "crashed")
		}},
		{"fence", "keeps its partitions after a pause", nil, func(f *fleet) { f.stop(0, auditor.Paused, 7*time.Second) }},
		{"fence", "counts a fence without a release", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
		}},
		{"awake", "keeps what another node has taken over", nil, func(f *fleet) {
			f.nodes[1].Status, f.disturbed = auditor.Suspended, f.at
			f.pass(10 * time.Second)
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
			f.tell(0, auditor.Batch{Acquired: []int{1}})
			f.pass(look)
			f.nodes[1].Status = auditor.Running
		}},
		{"idle", "draining", nil, func(f *fleet) { f.nodes[0].Draining = true }},
		{"idle", "not active", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.State = "settling" })
		}},
		{"runs", "two nodes run a partition", handoff, func(f *fleet) {
			f.overlaps = []auditor.Overlap{{Partition: 1, Begins: 1, Runs: 2}}
		}},
		{"wait", "waits too long", handoff, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Waiting = []int{1} })
		}},
		{"alive", "loses a running node", nil, func(f *fleet) { f.lose("b", "expired") }},
		{"gone", "a dead process stays", nil, func(f *fleet) { f.stop(2, auditor.Dead, look) }},
		{"gone", "a process that hangs stays", nil, func(f *fleet) { f.stop(2, auditor.Paused, 20*time.Second) }},
		{"gone", "a dead process returns", nil, func(f *fleet) {
			members := f.nodes[0].Answer.Members
			f.stop(2, auditor.Dead, look)
			f.lose("c", "crashed")
			f.pass(time.Second)
			f.answer(0, func(a *auditor.Answer) { a.Members = members })
		}},
		{"invented", "a member that never ran", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Members = append(slices.Clone(a.Members), auditor.Member{ID: "d"}) })
		}},
		{"cordon", "without an order", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{{ID: "b", Until: 2 * time.Hour}} })
		}},
		{"cordon", "does not end", nil, func(f *fleet) {
			c := auditor.Cordon{ID: "b", Until: f.at + 10*time.Second}
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: c.Until, Knows: true}}
			f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{c} })
		}},
		{"cordon", "comes back", nil, func(f *fleet) {
			c := auditor.Cordon{ID: "b", Until: f.at + time.Hour}
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: c.Until, Knows: true}}
			for _, all := range [][]auditor.Cordon{{c}, nil, {c}} {
				f.answer(0, func(a *auditor.Answer) { a.Cordons = all })
				f.pass(look)
			}
		}},
		{"cordon", "a node does not obey", nil, func(f *fleet) {
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: f.at + time.Hour}}
		}},
		{"twin", "two processes of a node run", nil, func(f *fleet) {
			f.nodes[0].Status = auditor.Paused
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "a", Incarnation: 2, Weight: 100})
			f.pass(look)
			f.nodes[3].Answer = &auditor.Answer{State: "active", Members: f.nodes[1].Answer.Members}
			f.nodes[0].Status = auditor.Running
		}},
		{"table", "two tables of the same nodes", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Table = swap(a.Table, 0, "b") })
		}},
		{"table", "a candidate that is no member", nil, func(f *fleet) {
			f.stop(2, auditor.Dead, look)
			f.lose("c", "crashed")
		}},
		{"movement", "a partition moves between nodes that have not changed", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) {
				a.Table = swap(a.Table, 0, "b")
				a.Table.Nodes[2].Weight = 200
			})
		}},
		{"double", "two owners", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
			f.tell(0, auditor.Batch{Acquired: []int{1}})
		}},
		{"agree", "a node that drains is a candidate", nil, func(f *fleet) {
			f.disturbed = f.at
			f.nodes[0].Weight = 50
		}},
		{"agree", "no owner", nil, func(f *fleet) {
			f.disturbed = f.at
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{3, 6, 9} })
			f.tell(0, auditor.Batch{Released: []int{0}})
		}},
		{"agree", "too few members own partitions", func(s *auditor.Settings) { s.MinMembers = 3 }, func(f *fleet) {
			f.disturbed = f.at
			f.cuts = []auditor.Cut{{From: "a", To: "b"}, {From: "b", To: "a"}, {From: "a", To: "c"}, {From: "c", To: "a"}}
		}},
		{"shares", "a share is too large", func(s *auditor.Settings) { s.Even = true }, func(f *fleet) {
			f.disturbed = f.at
			for i, owned := range [][]int{{0, 1, 3, 4, 6, 7, 9, 10}, nil, {2, 5, 8, 11}} {
				f.tell(i, auditor.Batch{Released: f.nodes[i].Answer.Owned, Acquired: owned})
				f.answer(i, func(a *auditor.Answer) {
					a.Owned = owned
					for p := 1; p < partitions; p += 3 {
						a.Table = swap(a.Table, p, "a")
					}
				})
			}
		}},
		{"rest", "something moves", nil, func(f *fleet) {
			f.tell(0, auditor.Batch{Released: []int{0}, Acquired: []int{0}})
		}},
	} {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			f := newFleet(t, c.settings)
			if c.breaks(f); c.rule != "rest" && f.disturbed == 0 {
				f.disturbed = f.at // so that it is not the rule rest that objects
			}
			f.pass(25 * time.Second)
			if len(f.Objections) == 0 || f.Objections[0].Rule != c.rule {
				t.Errorf("objections: %v", f.Objections)
			} else {
				t.Log(f.Objections[0].Text)
			}
		})
	}
}

// swap returns a table with another owner of a partition.
func swap(t *auditor.Table, p int, owner string) *auditor.Table {
	next := &auditor.Table{Nodes: slices.Clone(t.Nodes), Owners: slices.Clone(t.Owners)}
	next.Owners[p] = owner
	return next
}

func ExampleAuditor() {
	a := auditor.New(auditor.Settings{TTL: 6 * time.Second, Partitions: 2})
	node := &auditor.Process{Run: 1, ID: "a", Incarnation: 1, Answer: &auditor.Answer{Owned: []int{0}}}
	a.Observe(&auditor.Observation{At: time.Second, Hosts: 1, Processes: []*auditor.Process{node}})
	fmt.Println(a.Objections[0].Text)
	// Output: a owns [0], and its batches add up to []
}
