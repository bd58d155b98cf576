package placementtest

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/roost-cluster/roost/placement"
)

// patched is rendezvous hashing with a deliberate fault.
type patched struct {
	name   func() string
	assign func(nodes []placement.Node, owners []int) ([]int, error)
	rank   func(nodes []placement.Node, p placement.Partition, n int, ranked []int) []int
}

func (b patched) Name() string {
	if b.name != nil {
		return b.name()
	}
	return "patched"
}

func (b patched) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := placement.Rendezvous().Assign(nodes, partitions)
	if b.assign != nil {
		return b.assign(nodes, owners)
	}
	return owners, err
}

func (b patched) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	ranked := placement.Rendezvous().Rank(nodes, p, n)
	if b.rank != nil {
		return b.rank(nodes, p, n, ranked)
	}
	return ranked
}

// explained is a strategy that gives the same reason for every owner.
type explained struct {
	patched
	why func() string
}

func (e explained) Explain([]placement.Node, placement.Partition, int) string { return e.why() }

func explaining(why func() string) func() placement.Strategy { return always(explained{why: why}) }

// recalling is a strategy with a memory and a deliberate fault.
type recalling struct {
	patched
	keep  func(held []int)
	level func(nodes []placement.Node, owners []int) []placement.Move
}

func (r recalling) Keep(nodes []placement.Node, held []int) ([]int, error) {
	held = slices.Clone(held)
	if r.keep != nil {
		r.keep(held)
	}
	owners, err := r.Assign(nodes, len(held))
	for p, i := range held {
		if i >= 0 {
			owners[p] = i
		}
	}
	return owners, err
}

func (r recalling) Level(nodes []placement.Node, owners []int, _ []placement.Partition, _ bool) []placement.Move {
	if r.level == nil {
		return nil
	}
	return r.level(nodes, owners)
}

func keeping(f func(held []int)) func() placement.Strategy { return always(recalling{keep: f}) }

func levelling(f func(nodes []placement.Node, owners []int) []placement.Move) func() placement.Strategy {
	return always(recalling{level: f})
}

// always returns a constructor that always returns the same strategy.
func always(s placement.Strategy) func() placement.Strategy {
	return func() placement.Strategy { return s }
}

func named(names ...string) func() placement.Strategy {
	calls := 0
	return always(patched{name: func() string {
		calls++
		return names[min(calls, len(names))-1]
	}})
}

func assigning(f func(nodes []placement.Node, owners []int) ([]int, error)) func() placement.Strategy {
	return always(patched{assign: f})
}

func ranking(f func(nodes []placement.Node, p placement.Partition, n int, ranked []int) []int) func() placement.Strategy {
	return always(patched{rank: f})
}

// reranking changes the ranks of rendezvous hashing.
func reranking(f func(ranked []int)) func() placement.Strategy {
	return ranking(func(_ []placement.Node, _ placement.Partition, _ int, ranked []int) []int {
		f(ranked)
		return ranked
	})
}

func needsRole(nodes []placement.Node, owners []int) ([]int, error) {
	if !slices.ContainsFunc(nodes, func(n placement.Node) bool { return n.Labels["role"] == "sfu" }) {
		return nil, errors.New("nobody is an sfu")
	}
	return owners, nil
}

// overflows adds up thousandths of weights in 32 bits, which is too few.
func overflows(nodes []placement.Node, owners []int) ([]int, error) {
	sum := int32(0)
	for _, n := range nodes {
		sum += 1000 * int32(n.Weight)
	}
	if sum < 0 {
		owners[0] = int(sum)
	}
	return owners, nil
}

func random(nodes []placement.Node, owners []int) ([]int, error) {
	owners[0] = rand.IntN(len(nodes))
	return owners, nil
}

func mapOrder(nodes []placement.Node, owners []int) ([]int, error) {
	left := make(map[int]bool)
	for i := range nodes {
		left[i] = true
	}
	for i := range left {
		owners[0] = i
		break
	}
	return owners, nil
}

func sortsByWeight(nodes []placement.Node, owners []int) ([]int, error) {
	slices.SortFunc(nodes, func(a, b placement.Node) int { return int(a.Weight) - int(b.Weight) })
	return owners, nil
}

func writesLabels(nodes []placement.Node, owners []int) ([]int, error) {
	for _, n := range nodes {
		if n.Labels != nil {
			n.Labels["seen"] = "yes"
		}
	}
	return owners, nil
}

// bySeed distributes partitions with a hash of package hash/maphash.
func bySeed(seed maphash.Seed) placement.Strategy {
	owner := func(nodes []placement.Node, p placement.Partition) int {
		return int(maphash.Comparable(seed, p) % uint64(len(nodes)))
	}
	return patched{
		assign: func(nodes []placement.Node, owners []int) ([]int, error) {
			for p := range owners {
				owners[p] = owner(nodes, placement.Partition(p))
			}
			return owners, nil
		},
		rank: func(nodes []placement.Node, p placement.Partition, n int, _ []int) []int {
			ranked := []int{}
			for k := range max(0, min(n, len(nodes))) {
				ranked = append(ranked, (owner(nodes, p)+k)%len(nodes))
			}
			return ranked
		},
	}
}

func newSeeded() placement.Strategy { return bySeed(maphash.MakeSeed()) }

// processSeed differs between processes. No test within a single process can notice this mistake.
var processSeed = maphash.MakeSeed()

// sticky leaves a partition at its last owner as long as that node is in the list.
type sticky struct {
	patched
	last atomic.Pointer[[]string]
}

func (s *sticky) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := s.patched.Assign(nodes, partitions)
	if last := s.last.Load(); last != nil && len(*last) == partitions {
		for p, id := range *last {
			if i := slices.IndexFunc(nodes, func(n placement.Node) bool { return string(n.ID) == id }); i >= 0 {
				owners[p] = i
			}
		}
	}
	var ids []string
	for _, i := range owners {
		ids = append(ids, string(nodes[i].ID))
	}
	s.last.Store(&ids)
	return owners, err
}

// keeper returns its last result again if the nodes look the same.
type keeper struct {
	patched
	byID   bool // compare ids only, on a copy of the slice, so that only weights can differ
	nodes  []placement.Node
	owners []int
}

func (k *keeper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	same := func(a, b placement.Node) bool { return a.ID == b.ID && (k.byID || a.Weight == b.Weight) }
	if len(k.owners) == partitions && slices.EqualFunc(k.nodes, nodes, same) {
		return slices.Clone(k.owners), nil
	}
	owners, err := k.patched.Assign(nodes, partitions)
	k.nodes, k.owners = nodes, slices.Clone(owners)
	if k.byID {
		k.nodes = slices.Clone(nodes)
	}
	return owners, err
}

// rankKeeper ranks the nodes of its first call.
type rankKeeper struct {
	patched
	nodes []placement.Node
}

func (k *rankKeeper) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	if k.nodes == nil {
		k.nodes = slices.Clone(nodes)
	}
	return k.patched.Assign(nodes, partitions)
}

func (k *rankKeeper) Rank(nodes []placement.Node, p placement.Partition, n int) []int {
	if len(k.nodes) == len(nodes) {
		nodes = k.nodes
	}
	return k.patched.Rank(nodes, p, n)
}

// scratch returns wrong results if another call runs at the same time, as if all calls shared a buffer. A real shared
// buffer would be a data race, which would end the test.
type scratch struct {
	patched
	inside atomic.Int32
}

func (s *scratch) Assign(nodes []placement.Node, partitions int) ([]int, error) {
	owners, err := s.patched.Assign(nodes, partitions)
	alone := s.inside.Add(1) == 1
	for range 1000 {
		alone = alone && s.inside.Load() == 1
		runtime.Gosched()
	}
	s.inside.Add(-1)
	if !alone {
		slices.Reverse(owners)
	}
	return owners, err
}
