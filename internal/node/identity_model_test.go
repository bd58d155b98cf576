package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/roost-cluster/roost/internal/explore"
	"github.com/roost-cluster/roost/lease"
)

// Two fleets with the same name and settings share a network of a few addresses. Their processes start, together or one
// by one, crash, and start again at any free address. The network splits and heals. Seeds are names, so they only lead
// to processes of the same fleet.

// idProcess is a process of a fleet. Its handle is its index in the world, plus one.
type idProcess struct {
	fleet, addr int
	runs        bool
	joined      bool
	id          lease.ClusterID
	members     []int // indexes of the other members that it knows
	lost        []int // addresses
	callers     []int // whose full states came over streams while this process joined
	bound       []int // processes with which it exchanged a message since both have an identity
}

type idWorld struct {
	processes []idProcess
	split     bool // processes with even and odd indexes cannot reach each other
	splits    int
}

// idRules are the rules under test.
type idRules struct {
	meets  func(ours, theirs lease.ClusterID, seed, known bool) (lease.ClusterID, error)
	admits func(ours, theirs lease.ClusterID, stream, known bool) bool
	union  func(ours, theirs lease.ClusterID) lease.ClusterID
}

var theRules = idRules{meets, admits, lease.ClusterID.Union}

const idAddresses = 3

func (w *idWorld) clone() *idWorld {
	c := *w
	c.processes = slices.Clone(w.processes)
	for i := range c.processes {
		p := &c.processes[i]
		p.members, p.lost, p.bound, p.callers = slices.Clone(p.members), slices.Clone(p.lost), slices.Clone(p.bound), slices.Clone(p.callers)
	}
	return &c
}

func (w *idWorld) key() string {
	b := []byte{byte(w.splits)}
	if w.split {
		b[0] |= 0x80
	}
	for i := range w.processes {
		p := &w.processes[i]
		var is byte
		if p.runs {
			is |= 1
		}
		if p.joined {
			is |= 2
		}
		b = append(b, byte(p.fleet), byte(p.addr), is)
		for _, h := range p.id {
			b = append(b, byte(h))
		}
		for _, all := range [][]int{p.members, p.lost, p.callers, p.bound} {
			b = append(b, 0xff)
			for _, i := range all {
				b = append(b, byte(i))
			}
		}
		b = append(b, 0xfe)
	}
	return string(b)
}

// at returns the process that runs at an address, or -1.
func (w *idWorld) at(addr int) int {
	return slices.IndexFunc(w.processes, func(p idProcess) bool { return p.runs && p.addr == addr })
}

func (w *idWorld) reach(i, k int) bool { return !w.split || (i-k)%2 == 0 }

// exchange makes i exchange full states with k, which runs at the address that i dialed.
func (w *idWorld) exchange(r idRules, i, k int, seed bool) {
	p, q := &w.processes[i], &w.processes[k]
	id, err := r.meets(p.id, q.id, seed, slices.Contains(p.members, k) || slices.Contains(p.callers, k))
	if err != nil {
		return
	}
	p.id = id
	if !q.joined {
		add(&q.callers, i)
	}
	if r.admits(q.id, p.id, true, slices.Contains(q.members, i)) {
		w.learn(r, k, i)
	}
	if r.admits(p.id, q.id, true, slices.Contains(p.members, k)) {
		w.learn(r, i, k)
	}
}

// packet delivers a packet from i to k. If k does not know i, it challenges i, and i answers.
func (w *idWorld) packet(r idRules, i, k int) {
	p, q := &w.processes[i], &w.processes[k]
	known := slices.Contains(q.members, i)
	if !r.admits(q.id, p.id, false, known) {
		return
	}
	if !known && !r.admits(p.id, q.id, false, slices.Contains(p.members, k)) {
		return // the challenge is ignored
	}
	w.learn(r, k, i)
}

// learn makes i apply a message from k.
func (w *idWorld) learn(r idRules, i, k int) {
	p, q := &w.processes[i], &w.processes[k]
	p.id, p.joined = r.union(p.id, q.id), true
	p.callers = nil
	add(&p.members, k)
	if len(q.id) > 0 && len(p.id) > 0 {
		add(&p.bound, k)
		add(&q.bound, i)
	}
}

func add(all *[]int, i int) {
	if !slices.Contains(*all, i) {
		*all = append(*all, i)
		slices.Sort(*all)
	}
}

// tooEarly reports whether a process of the other fleet knows an address but has no identity yet. The model leaves this
// case out, because a fleet founds its cluster before it can lose an address to the other fleet.
func (w *idWorld) tooEarly(fleet, addr int) bool {
	for _, p := range w.processes {
		of := func(k int) bool { return w.processes[k].addr == addr }
		if p.runs && p.fleet != fleet && len(p.id) == 0 &&
			(slices.Contains(p.lost, addr) || slices.ContainsFunc(p.members, of) || slices.ContainsFunc(p.callers, of)) {
			return true
		}
	}
	return false
}

func (r idRules) next(starts, splits int) func(w *idWorld, visit func(string, *idWorld)) {
	return func(w *idWorld, visit func(string, *idWorld)) {
		try := func(do func(*idWorld), what string, args ...any) {
			n := w.clone()
			do(n)
			visit(fmt.Sprintf(what, args...), n)
		}
		if len(w.processes) < starts {
			for fleet := range 2 {
				for addr := range idAddresses {
					if w.at(addr) < 0 && !w.tooEarly(fleet, addr) {
						try(func(n *idWorld) {
							n.processes = append(n.processes, idProcess{fleet: fleet, addr: addr, runs: true})
						}, "a process of fleet %d starts at %d", fleet, addr)
					}
				}
			}
		}
		if w.split || w.splits < splits {
			try(func(n *idWorld) { n.split = !n.split; n.splits++ }, "split: %v", !w.split)
		}
		for i := range w.processes {
			if w.processes[i].runs {
				r.steps(w, i, try)
			}
		}
	}
}

// steps tries everything that process i may do, and everything that may happen to it.
func (r idRules) steps(w *idWorld, i int, try func(func(*idWorld), string, ...any)) {
	p := w.processes[i]
	try(func(n *idWorld) { n.processes[i] = idProcess{fleet: p.fleet, addr: p.addr} }, "%d crashes", i)
	smallest := !slices.ContainsFunc(p.members, func(k int) bool { return k < i })
	held := len(p.members) == 0 || slices.ContainsFunc(p.members, func(k int) bool {
		return slices.Contains(w.processes[k].members, i)
	})
	if founds(p.id, p.joined, smallest, held) {
		try(func(n *idWorld) { n.processes[i].id = lease.ClusterID{lease.Handle(i + 1)} }, "%d founds", i)
	}
	if !p.joined {
		try(func(n *idWorld) { n.processes[i].joined = true }, "%d goes on alone", i)
	}
	for _, k := range p.members {
		if q := w.processes[k]; !q.runs || !w.reach(i, k) {
			try(func(n *idWorld) {
				p := &n.processes[i]
				p.members = slices.DeleteFunc(p.members, func(o int) bool { return o == k })
				add(&p.lost, q.addr)
			}, "%d loses %d", i, k)
		}
	}
	for k, q := range w.processes {
		if k == i || !q.runs || !w.reach(i, k) {
			continue
		}
		if q.fleet == p.fleet {
			try(func(n *idWorld) { n.exchange(r, i, k, true) }, "%d joins %d through a seed", i, k)
		}
		if slices.Contains(p.lost, q.addr) {
			try(func(n *idWorld) { n.exchange(r, i, k, false) }, "%d tries the lost address of %d", i, k)
		}
		called := func(m int) bool { return w.processes[m].addr == q.addr }
		if !p.joined && slices.ContainsFunc(p.callers, called) {
			try(func(n *idWorld) { n.exchange(r, i, k, false) }, "%d dials its caller's address, where %d is", i, k)
		}
		isMember := func(m int) bool { return w.processes[m].addr == q.addr }
		if slices.Contains(p.lost, q.addr) || slices.ContainsFunc(p.members, isMember) {
			try(func(n *idWorld) { n.packet(r, i, k) }, "%d sends a packet to the address of %d", i, k)
		}
	}
}

func (r idRules) explore(starts, splits int) explore.Result[string] {
	apart := func(w *idWorld) bool {
		for _, p := range w.processes {
			if slices.ContainsFunc(p.members, func(k int) bool { return w.processes[k].fleet != p.fleet && w.processes[k].runs }) {
				return false
			}
			if slices.ContainsFunc(p.id, func(h lease.Handle) bool { return w.processes[h-1].fleet != p.fleet }) {
				return false
			}
		}
		return true
	}
	heals := func(w *idWorld) bool {
		for _, p := range w.processes {
			if p.runs && slices.ContainsFunc(p.bound, func(k int) bool { return w.processes[k].runs && !p.id.Same(w.processes[k].id) }) {
				return false
			}
		}
		return true
	}
	return explore.Model[*idWorld, string]{
		Start: []*idWorld{{}}, Key: (*idWorld).key, Next: r.next(starts, splits), MaxStates: 3_000_000,
		Invariants: []explore.Invariant[*idWorld]{
			{Name: "two fleets stay apart", Holds: apart},
			{Name: "parts of a fleet that knew each other recognize each other", Holds: heals},
		},
	}.Run()
}

func TestIdentityModel(t *testing.T) {
	got := theRules.explore(3, 1)
	if got.Broken != "" || !got.Whole {
		t.Fatal(got)
	}
	t.Log(got)
}

// The model must find each broken rule.
func TestIdentityModelRejects(t *testing.T) {
	for name, broken := range map[string]struct {
		change func(*idRules)
		want   string
	}{
		"lost addresses are trusted": {func(r *idRules) {
			r.meets = func(ours, theirs lease.ClusterID, _, known bool) (lease.ClusterID, error) {
				return meets(ours, theirs, true, known)
			}
		}, "two fleets stay apart"},
		"packets are trusted by newcomers": {func(r *idRules) {
			r.admits = func(ours, theirs lease.ClusterID, _, known bool) bool { return admits(ours, theirs, true, known) }
		}, "two fleets stay apart"},
		"the smallest founder alone stays": {func(r *idRules) {
			one := func(c lease.ClusterID) lease.ClusterID { return c[:min(len(c), 1)] }
			r.meets = func(ours, theirs lease.ClusterID, seed, known bool) (lease.ClusterID, error) {
				id, err := meets(ours, theirs, seed, known)
				return one(id), err
			}
			r.union = func(ours, theirs lease.ClusterID) lease.ClusterID { return one(ours.Union(theirs)) }
		}, "parts of a fleet that knew each other recognize each other"},
	} {
		t.Run(name, func(t *testing.T) {
			r := theRules
			broken.change(&r)
			if got := r.explore(4, 1); got.Broken != broken.want {
				t.Errorf("%v, want broken: %s", got, broken.want)
			}
		})
	}
}
