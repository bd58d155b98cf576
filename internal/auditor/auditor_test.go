package auditor_test

import (
	"fmt"
	"slices"
	"strings"
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
	loss          float64
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
	var owned [3][]int
	for p := range s.Partitions {
		table.Owners = append(table.Owners, table.Nodes[p%3].ID)
		owned[p%3] = append(owned[p%3], p)
	}
	for i, n := range f.nodes {
		n.Answer = &auditor.Answer{State: "active", Members: members, Table: table, Owned: owned[i]}
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
			At: f.at, Disturbed: f.disturbed, Hosts: 3, Cuts: f.cuts, Loss: f.loss, Orders: f.orders,
			Processes: f.nodes, Overlaps: f.overlaps,
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

// lose makes a node lose another.
func (f *fleet) lose(i int, id, reason string) {
	f.answer(i, func(a *auditor.Answer) {
		a.Members = slices.DeleteFunc(slices.Clone(a.Members), func(m auditor.Member) bool { return m.ID == id })
	})
	f.tell(i, auditor.Batch{Left: []string{id}, Reasons: map[string]string{id: reason}})
}

// release makes nodes release everything, and answer with this state.
func (f *fleet) release(state string, nodes ...int) {
	f.disturbed = f.at
	for _, i := range nodes {
		f.tell(i, auditor.Batch{Released: f.nodes[i].Answer.Owned})
		f.answer(i, func(a *auditor.Answer) { a.State, a.Owned = state, nil })
	}
}

// cordonB lets a cordon b for ten seconds.
func (f *fleet) cordonB() {
	c := auditor.Cordon{ID: "b", Until: f.at + 10*time.Second}
	f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: c.Until, Knows: true}}
	f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{c} })
}

// rejoin fences the node a, which b does not hear, for a second. Then it is active, with these members.
func (f *fleet) rejoin(members []auditor.Member) {
	f.cuts = []auditor.Cut{{From: "a", To: "b"}}
	f.pass(look)
	f.cuts = nil
	f.release("joining", 0)
	f.answer(0, func(a *auditor.Answer) { a.Fences, a.Members = a.Fences+1, members[:1] })
	f.pass(time.Second)
	f.answer(0, func(a *auditor.Answer) { a.State, a.Members = "active", members })
}

// holds puts a node into a state in which it owns nothing, and in which it loses c. A second later, it is active, and
// has c again.
func (f *fleet) holds(state string, fences uint64) {
	members := f.nodes[0].Answer.Members
	f.stop(2, auditor.Dead, look)
	f.release(state, 0)
	f.answer(0, func(a *auditor.Answer) { a.Fences += fences })
	f.lose(0, "c", "crashed")
	f.pass(time.Second)
	f.answer(0, func(a *auditor.Answer) { a.State, a.Members = "active", members })
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

// loseAll ends c, and b some time after it, while another process d joins.
func (f *fleet) loseAll(how auditor.Status, between, after time.Duration) {
	f.stop(2, how, between)
	f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "d", Weight: 100, Answer: &auditor.Answer{State: "joining"}})
	f.stop(1, auditor.Dead, after)
}

// stopAll stops all nodes for some time.
func (f *fleet) stopAll(s auditor.Status, d time.Duration) {
	for _, n := range f.nodes {
		n.Status = s
	}
	f.pass(d)
	for _, n := range f.nodes {
		n.Status = auditor.Running
	}
}

// A rule objects if it does not hold, and to nothing else: the first objection is about this rule.
func TestRules(t *testing.T) {
	handoff := func(s *auditor.Settings) { s.Handoff = 10 * time.Second }
	for _, c := range []struct {
		rule, says string // a part of the sentence
		settings   func(*auditor.Settings)
		breaks     func(*fleet)
	}{
		{"sum", "its batches add up to [0 3 6 9]", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
		}},
		{"sum", "acquired twice", nil, func(f *fleet) { f.tell(0, auditor.Batch{Acquired: []int{0}}) }},
		{"sum", "was not told", nil, func(f *fleet) {
			f.nodes[0].Late = &auditor.Batch{Full: true, Acquired: f.nodes[0].Answer.Owned, Joined: []string{"a", "b", "c"}}
			f.pass(look)
			f.tell(0, auditor.Batch{Released: []int{0}})
			f.tell(0, auditor.Batch{Acquired: []int{0}})
			f.nodes[0].Late = &auditor.Batch{}
		}},
		{"sum", "a has lost [0 3 6 9] for", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = nil })
		}},
		{"sum", "owns partition 99 of 12", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 99} })
		}},
		{"sum", "tells its application of partition -1", nil, func(f *fleet) { f.tell(0, auditor.Batch{Acquired: []int{-1}}) }},
		{"sum", "reads seldom of partition 12", nil, func(f *fleet) { f.nodes[0].Late = &auditor.Batch{Full: true, Acquired: []int{12}} }},
		{"reason", "although it was not told to leave", nil, func(f *fleet) {
			f.stop(2, auditor.Dead, time.Second)
			f.lose(0, "c", "left")
		}},
		{"reason", "was told to leave, and is crashed", nil, func(f *fleet) {
			f.stop(2, auditor.Left, look)
			f.lose(0, "c", "crashed")
		}},
		{"fence", "lost its lease", nil, func(f *fleet) { f.stop(0, auditor.Paused, 7*time.Second) }},
		{"fence", "lost its lease, and", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
		}},
		{"fence", "lost its lease, and", nil, func(f *fleet) { // for the second time
			owned := f.nodes[0].Answer.Owned
			f.release("joining", 0)
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
			f.pass(look)
			f.tell(0, auditor.Batch{Acquired: owned})
			f.answer(0, func(a *auditor.Answer) { a.State, a.Owned = "active", owned })
			f.pass(look)
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
		}},
		{"awake", "b was suspended", nil, func(f *fleet) {
			f.nodes[1].Status, f.disturbed = auditor.Suspended, f.at
			f.pass(10 * time.Second)
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
			f.tell(0, auditor.Batch{Acquired: []int{1}})
			f.pass(look)
			f.nodes[1].Status = auditor.Running
		}},
		{"idle", "draining true", nil, func(f *fleet) { f.nodes[0].Draining = true }},
		{"idle", "a is settling", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.State = "settling" })
		}},
		{"runs", "a begins to run partition 1, which b runs", handoff, func(f *fleet) {
			f.overlaps = []auditor.Overlap{{Partition: 1, Begins: 1, Runs: 2}}
		}},
		{"runs", "which b runs", handoff, func(f *fleet) { // after b has taken a later incarnation
			f.nodes[1].Incarnation = 2
			for i := range f.nodes {
				f.answer(i, func(a *auditor.Answer) {
					a.Members = slices.Clone(a.Members)
					a.Members[1].Incarnation = 2
				})
			}
			f.pass(time.Minute)
			f.overlaps = []auditor.Overlap{{Partition: 1, Begins: 1, Runs: 2}}
		}},
		{"runs", "d begins to run", handoff, func(f *fleet) { // a has a member d before the incarnation of d is known
			members := f.nodes[0].Answer.Members
			f.nodes = append(f.nodes, &auditor.Process{
				Run: 9, ID: "d", Weight: 100, Answer: &auditor.Answer{State: "joining", Members: members},
			})
			f.answer(0, func(a *auditor.Answer) {
				a.Members = append(slices.Clone(members), auditor.Member{ID: "d", Incarnation: 4})
			})
			f.pass(look)
			f.nodes[3].Incarnation = 4
			f.pass(look)
			f.overlaps = []auditor.Overlap{{Partition: 0, Begins: 9, Runs: 1}}
		}},
		{"wait", "to run partition 1", handoff, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Waiting = []int{1} })
		}},
		{"alive", "a lost b, which runs", nil, func(f *fleet) { f.lose(0, "b", "expired") }},
		{"alive", "a lost b, which runs", nil, func(f *fleet) { // between two answers
			f.tell(0, auditor.Batch{Left: []string{"b"}, Reasons: map[string]string{"b": "expired"}})
			f.pass(look)
			f.tell(0, auditor.Batch{Joined: []string{"b"}})
		}},
		{"gone", "a has a member {c 1}", nil, func(f *fleet) { f.stop(2, auditor.Dead, look) }},
		{"gone", "a has a member {c 1}, which", nil, func(f *fleet) { f.stop(2, auditor.Paused, 20*time.Second) }},
		{"gone", "a has a member {c 1}, which", nil, func(f *fleet) { // for 10 seconds, although b ended four seconds later
			f.loseAll(auditor.Dead, 4*time.Second, 6*time.Second)
			f.lose(0, "c", "expired")
		}},
		{"gone", "a has a member {c 1}, which", nil, func(f *fleet) { // for 3 seconds, although it left, and no link was cut
			f.loss = 0.1
			f.stop(2, auditor.Left, 3*time.Second)
			f.lose(0, "c", "left")
		}},
		{"gone", "a has a member {c 1}, which", nil, func(f *fleet) { // for 2.5 seconds, although it left
			f.loseAll(auditor.Left, time.Second, 1500*time.Millisecond)
			f.lose(0, "c", "left")
		}},
		{"gone", "a has a member {c 1}, which", nil, func(f *fleet) { // for 9 seconds, although b runs
			f.stop(2, auditor.Dead, 9*time.Second)
			f.lose(0, "c", "expired")
		}},
		{"gone", "a takes c back", nil, func(f *fleet) {
			members := f.nodes[0].Answer.Members
			f.stop(2, auditor.Dead, look)
			f.lose(0, "c", "crashed")
			f.pass(time.Second)
			f.answer(0, func(a *auditor.Answer) { a.Members = members })
		}},
		{"gone", "a takes c back", nil, func(f *fleet) { f.holds("isolated", 0) }},
		{"gone", "a takes c back", nil, func(f *fleet) { // in a fence, before which it had lost c
			members := f.nodes[0].Answer.Members
			f.stop(2, auditor.Dead, look)
			f.lose(0, "c", "crashed")
			f.pass(look)
			f.rejoin(members)
		}},
		{"gone", "a takes c back", nil, func(f *fleet) { f.holds("clock_ahead", 1) }},
		{"reason", "b left, although it was not told", nil, func(f *fleet) { // between two answers
			f.nodes[0].Lossy = true
			f.tell(0, auditor.Batch{Left: []string{"b"}, Reasons: map[string]string{"b": "left"}})
			f.pass(look)
			f.tell(0, auditor.Batch{Joined: []string{"b"}})
		}},
		{"invented", "which never ran", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Members = append(slices.Clone(a.Members), auditor.Member{ID: "d"}) })
		}},
		{"invented", "no process has this incarnation", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) {
				a.Members = slices.Insert(slices.Clone(a.Members), 2, auditor.Member{ID: "b", Incarnation: 7})
			})
		}},
		{"cordon", "which nobody has ordered", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{{ID: "b", Until: 2 * time.Hour}} })
		}},
		{"cordon", "that ended", nil, func(f *fleet) {
			f.cordonB()
		}},
		{"cordon", "that ended", nil, func(f *fleet) { // although no host was suspended
			f.cordonB()
			f.stopAll(auditor.Paused, 4*time.Second)
		}},
		{"cordon", "that ended", nil, func(f *fleet) { // although all hosts slept, but not for that long
			f.cordonB()
			f.pass(look)
			f.stopAll(auditor.Suspended, look)
		}},
		{"cordon", "that ended", nil, func(f *fleet) { // although not all hosts were suspended
			f.cordonB()
			f.nodes[1].Status = auditor.Suspended
			f.stop(2, auditor.Suspended, time.Minute)
		}},
		{"cordon", "which it has seen end", nil, func(f *fleet) {
			c := auditor.Cordon{ID: "b", Until: f.at + time.Hour}
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: c.Until, Knows: true}}
			for _, all := range [][]auditor.Cordon{{c}, nil, {c}} {
				f.answer(0, func(a *auditor.Answer) { a.Cordons = all })
				f.pass(look)
			}
		}},
		{"cordon", "which it has seen end", nil, func(f *fleet) { // because a later cordon replaced it
			c, d := auditor.Cordon{ID: "b", Until: f.at + time.Hour}, auditor.Cordon{ID: "b", Until: f.at + 2*time.Hour}
			for _, known := range []auditor.Cordon{c, d, c} {
				f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: known.Until, Knows: true}}
				f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{known} })
				f.pass(look)
			}
		}},
		{"cordon", "then knows a cordon: false", nil, func(f *fleet) {
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: f.at + time.Hour}}
		}},
		{"cordon", "then knows a cordon: true", nil, func(f *fleet) { // long after a cordon has ended
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: f.at + time.Second, Knows: true}}
			f.pass(time.Minute)
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: f.at, Knows: true}}
		}},
		{"alive", "a lost c, which runs", nil, func(f *fleet) { // a fence, long after a suspension of another host
			f.stop(1, auditor.Suspended, look)
			f.pass(time.Minute)
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
			f.release("joining", 0)
			f.lose(0, "c", "expired")
		}},
		{"twin", "two processes of a run", nil, func(f *fleet) {
			f.nodes[0].Status = auditor.Paused
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "a", Incarnation: 2, Weight: 100})
			f.pass(look)
			f.nodes[3].Answer = &auditor.Answer{State: "active", Members: f.nodes[1].Answer.Members}
			f.nodes[0].Status = auditor.Running
		}},
		{"table", "another table of a:100 b:100 c:100", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Table = swap(a.Table, 0, "b") })
		}},
		{"table", "is no member", nil, func(f *fleet) {
			f.stop(2, auditor.Dead, look)
			f.lose(0, "c", "crashed")
		}},
		{"table", "a table of 1 partitions", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Table = &auditor.Table{Nodes: a.Table.Nodes, Owners: []string{"a"}} })
		}},
		{"movement", "partition 2 moved from c", nil, func(f *fleet) { // although c may own more
			f.answer(0, func(a *auditor.Answer) {
				a.Table = swap(a.Table, 2, "a")
				a.Table.Nodes[2].Weight = 200
			})
		}},
		{"movement", "partition 0 moved from a,", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) {
				a.Table = swap(a.Table, 0, "b")
				a.Table.Nodes[2].Weight = 200
			})
		}},
		{"double", "a and b own [1]", nil, func(f *fleet) {
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{0, 1, 3, 6, 9} })
			f.tell(0, auditor.Batch{Acquired: []int{1}})
		}},
		{"agree", "should be [{a 50}", nil, func(f *fleet) {
			f.disturbed = f.at
			f.nodes[0].Weight = 50
		}},
		{"agree", "a owns [3 6 9]", nil, func(f *fleet) {
			f.disturbed = f.at
			f.answer(0, func(a *auditor.Answer) { a.Owned = []int{3, 6, 9} })
			f.tell(0, auditor.Batch{Released: []int{0}})
		}},
		{"agree", "[a] run", func(s *auditor.Settings) { s.MinMembers = 3 }, func(f *fleet) {
			f.disturbed = f.at
			f.cuts = []auditor.Cut{{From: "a", To: "b"}, {From: "b", To: "a"}, {From: "a", To: "c"}, {From: "c", To: "a"}}
		}},
		{"shares", "its fair share is 4.0", func(s *auditor.Settings) { s.Even = true }, func(f *fleet) {
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
		{"shares", "b owns 0 partitions, and its fair share is 19.9", func(s *auditor.Settings) { s.Partitions = 60 }, func(f *fleet) {
			f.disturbed = f.at
			moved := f.nodes[1].Answer.Owned
			f.nodes[2].Weight = 101
			f.release("active", 1)
			f.tell(2, auditor.Batch{Acquired: moved})
			table := f.nodes[0].Answer.Table
			for _, p := range moved {
				table = swap(table, p, "c")
			}
			table.Nodes[2].Weight = 101
			for i := range f.nodes {
				f.answer(i, func(a *auditor.Answer) { a.Table = table })
			}
			f.answer(2, func(a *auditor.Answer) {
				a.Owned = append(slices.Clone(a.Owned), moved...)
				slices.Sort(a.Owned)
			})
		}},
		{"rest", "after the last fault", nil, func(f *fleet) {
			f.tell(0, auditor.Batch{Released: []int{0}, Acquired: []int{0}})
		}},
		{"sum", "for a watcher that reads seldom: partition 0 was acquired twice", nil, func(f *fleet) {
			f.nodes[0].Late = &auditor.Batch{Full: true, Acquired: f.nodes[0].Answer.Owned}
			f.pass(look)
			f.nodes[0].Late = &auditor.Batch{Acquired: []int{0}}
		}},
		{"sum", "two watchers different sums", nil, func(f *fleet) {
			f.nodes[0].Late = &auditor.Batch{Full: true, Acquired: []int{0}}
		}},
		{"gone", "has a new member", nil, func(f *fleet) {
			members := f.nodes[0].Answer.Members
			f.stop(2, auditor.Dead, look)
			f.lose(0, "c", "crashed")
			f.lose(1, "c", "crashed")
			f.nodes[0].Answer.Table, f.nodes[1].Answer.Table = nil, nil
			f.pass(15 * time.Second)
			f.answer(0, func(a *auditor.Answer) { a.Members = members })
		}},
		{"twin", "two processes of a own [0 3 6 9]", nil, func(f *fleet) {
			f.nodes[0].Status = auditor.Paused
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "a", Incarnation: 2, Weight: 100})
			f.pass(look)
			f.nodes[3].Answer = &auditor.Answer{State: "active", Members: f.nodes[1].Answer.Members, Owned: f.nodes[0].Answer.Owned}
			f.nodes[3].News = []auditor.Batch{{Full: true, Acquired: f.nodes[0].Answer.Owned}}
			f.nodes[0].Status = auditor.Running
		}},
		{"agree", "a has members [a c]", nil, func(f *fleet) {
			f.cuts = []auditor.Cut{{From: "a", To: "b"}}
			f.pass(look)
			f.disturbed = f.at
			f.lose(0, "b", "expired")
			f.nodes[0].Answer.Table = nil
			f.pass(look)
			f.cuts = nil
		}},
		{"agree", "batches of a add up to members [a c]", nil, func(f *fleet) {
			f.disturbed = f.at
			f.tell(0, auditor.Batch{Left: []string{"b"}})
		}},
		{"agree", "knows cordons", nil, func(f *fleet) {
			c := auditor.Cordon{ID: "b", Until: f.at + time.Hour}
			f.orders = []auditor.Order{{By: "a", ID: "b", At: f.at, Until: c.Until, Knows: true}}
			f.answer(0, func(a *auditor.Answer) { a.Cordons = []auditor.Cordon{c} })
		}},
		{"agree", "a runs [0], and owns", handoff, func(f *fleet) {
			f.disturbed = f.at
			f.nodes[0].Runs = []int{0}
		}},
		{"agree", "a is isolated in a group of 3", nil, func(f *fleet) { f.release("isolated", 0) }},
		{"agree", "a is still settling", nil, func(f *fleet) { f.release("settling", 0) }},
		{"agree", "2 of 3 nodes are flapping", nil, func(f *fleet) {
			f.release("flapping", 0, 1)
			for i := range 2 {
				f.answer(i, func(a *auditor.Answer) {
					a.Members = slices.Clone(a.Members)
					a.Members[i].Flapping = true
				})
			}
		}},
		{"agree", "has no table", nil, func(f *fleet) {
			f.disturbed = f.at
			f.answer(0, func(a *auditor.Answer) { a.Table = nil })
		}},
		{"agree", "different tables", func(s *auditor.Settings) { s.Even = true }, func(f *fleet) {
			f.disturbed = f.at
			f.answer(0, func(a *auditor.Answer) { a.Table = swap(a.Table, 0, "b") })
		}},
		{"agree", "1 partitions have no owner", func(s *auditor.Settings) { s.Even = true }, func(f *fleet) {
			f.disturbed = f.at
			f.tell(0, auditor.Batch{Released: []int{0}})
			for i := range 3 {
				f.answer(i, func(a *auditor.Answer) {
					a.Table = swap(a.Table, 0, "")
					a.Owned = slices.DeleteFunc(slices.Clone(a.Owned), func(p int) bool { return p == 0 })
				})
			}
		}},
	} {
		t.Run(c.rule+": "+c.says, func(t *testing.T) {
			f := newFleet(t, c.settings)
			if c.breaks(f); c.rule != "rest" && f.disturbed == 0 {
				f.disturbed = f.at // so that it is not the rule rest that objects
			}
			f.pass(25 * time.Second)
			if len(f.Objections) == 0 || f.Objections[0].Rule != c.rule || !strings.Contains(f.Objections[0].Text, c.says) {
				t.Errorf("objections: %v", f.Objections)
			}
		})
	}
}

// What looks like a fault, but has a reason that the auditor can see.
func TestExcuses(t *testing.T) {
	for _, c := range []struct {
		rule    string // that must not object; "" = all rules
		what    string
		happens func(*fleet)
	}{
		{"reason", "a has not told its application of a second c", func(f *fleet) {
			f.stop(2, auditor.Left, look)
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "c", Incarnation: 2, Weight: 100})
			for _, number := range []uint64{2, 3} {
				f.answer(0, func(a *auditor.Answer) {
					a.Members = slices.Clone(a.Members)
					a.Members[2].Incarnation = number
				})
				f.nodes[2].Incarnation = number
				f.pass(look)
			}
			f.lose(0, "c", "left")
		}},
		{"reason", "a was cut off when c left", func(f *fleet) {
			f.cuts = []auditor.Cut{{From: "a", To: "b"}, {From: "a", To: "c"}}
			f.stop(2, auditor.Left, 15*time.Second)
			f.cuts = nil
			f.pass(15 * time.Second)
			f.lose(0, "c", "expired")
		}},
		{"cordon", "a was paused when a cordon ended", func(f *fleet) {
			f.orders = []auditor.Order{{By: "b", ID: "c", At: f.at, Until: f.at + 10*time.Second, Knows: true}}
			f.stop(0, auditor.Paused, 20*time.Second)
			f.orders = []auditor.Order{{By: "a", ID: "c", At: f.at, Until: f.at, Knows: true}}
		}},
		{"alive", "a finds out that its host was suspended a minute ago", func(f *fleet) {
			f.stop(0, auditor.Suspended, 10*time.Second)
			f.pass(time.Minute)
			f.answer(0, func(a *auditor.Answer) { a.Fences++ })
			f.lose(0, "b", "expired")
		}},
		{"runs", "a loses b, and has it again before its next answer", func(f *fleet) {
			f.nodes[0].Lossy = true
			f.tell(0, auditor.Batch{Left: []string{"b"}, Reasons: map[string]string{"b": "expired"}})
			f.overlaps = []auditor.Overlap{{Partition: 1, Begins: 1, Runs: 2}}
		}},
		{"cordon", "all hosts were suspended before the cordon ended", func(f *fleet) {
			f.cordonB()
			f.pass(look)
			f.stopAll(auditor.Suspended, time.Minute)
			f.pass(9 * time.Second)
		}},
		{"gone", "c leaves, cut off from b, and its messages to a are lost", func(f *fleet) {
			f.loss, f.cuts = 0.1, []auditor.Cut{{From: "b", To: "c"}}
			f.stop(2, auditor.Left, 6*time.Second)
		}},
		{"reason", "c expires, returns and leaves between two answers of a, and another c runs", func(f *fleet) {
			f.nodes[0].Lossy = true
			f.stop(2, auditor.Left, look)
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "c", Incarnation: 2, Weight: 100})
			f.answer(0, func(a *auditor.Answer) {
				a.Members = slices.Clone(a.Members)
				a.Members[2].Incarnation = 2
			})
			for _, reason := range []string{"expired", "left"} {
				f.tell(0, auditor.Batch{Left: []string{"c"}, Joined: []string{"c"}, Reasons: map[string]string{"c": reason}})
			}
		}},
		{"reason", "a was cut off when c left, and learns of it later", func(f *fleet) {
			f.cuts = []auditor.Cut{{From: "a", To: "b"}, {From: "a", To: "c"}}
			f.stop(2, auditor.Left, 13*time.Second)
			f.cuts = nil
			f.lose(0, "c", "left")
		}},
		{"reason", "a has the c that leaves only between two answers, and another c before", func(f *fleet) {
			f.nodes = append(f.nodes, &auditor.Process{Run: 9, ID: "c", Incarnation: 2, Weight: 100})
			f.nodes[2].Status = auditor.Dead
			f.nodes[3].Status = auditor.Left
			f.lose(0, "c", "left")
		}},
		{"gone", "b ends two seconds after c, so a may be cut off", func(f *fleet) { f.loseAll(auditor.Dead, 2*time.Second, 6*time.Second) }},
		{"alive", "b takes two incarnations between two answers of a", func(f *fleet) {
			f.nodes[1].Incarnation = 3
			f.answer(0, func(a *auditor.Answer) {
				a.Members = slices.Clone(a.Members)
				a.Members[1].Incarnation = 3
			})
			for range 2 {
				f.tell(0, auditor.Batch{Left: []string{"b"}, Joined: []string{"b"}, Reasons: map[string]string{"b": "replaced"}})
			}
		}},
		{"", "a forgets c in a fence, and learns of its lease again", func(f *fleet) {
			f.stop(2, auditor.Dead, look)
			f.rejoin(f.nodes[0].Answer.Members)
		}},
	} {
		f := newFleet(t, nil)
		c.happens(f)
		f.pass(look)
		for _, o := range f.Objections {
			if c.rule == "" || o.Rule == c.rule {
				t.Errorf("%s: %+v", c.what, o)
			}
		}
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
