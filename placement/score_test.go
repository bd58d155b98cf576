package placement

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// log2Digits is a simple reference model of the table. It returns the first binary digits of log2(1 + i/256), rounded
// down. Squaring x doubles log2 x, so the exponent after each squaring is the next digit. With 512 bits of precision,
// the rounding errors of the squares are far below the last digit.
func log2Digits(i, places int) *big.Int {
	x := new(big.Float).SetPrec(512).SetInt64(int64(256 + i))
	x.Quo(x, big.NewFloat(256))
	digits := new(big.Int)
	for range places {
		x.Mul(x, x)
		e := x.MantExp(nil) - 1 // 0 or 1: x was below 2
		digits.Lsh(digits, 1).Add(digits, big.NewInt(int64(e)))
		x.SetMantExp(x, -e)
	}
	return digits
}

func TestLog2Table(t *testing.T) {
	for i, got := range log2Table[:256] {
		want := log2Digits(i, logBits+1) // one more digit, to round
		want.Add(want, big.NewInt(1)).Rsh(want, 1)
		if got != want.Uint64() {
			t.Errorf("log2Table[%d] = %#x, want %#x", i, got, want)
		}
	}
	if log2Table[256] != 1<<logBits {
		t.Errorf("log2Table[256] = %#x, want 1", log2Table[256])
	}
}

// The reference model is the float64 logarithm. The results agree within the error of the interpolation.
func TestNegLog2(t *testing.T) {
	check := func(t *rapid.T, h uint64) {
		got := math.Ldexp(float64(negLog2(h)), -logBits)
		u, _ := new(big.Float).SetMantExp(new(big.Float).SetUint64(max(h, 1)), -64).Float64()
		want := -math.Log2(u)
		if h > 1<<63 { // near 1, the rounding of u to a float64 matters
			want = -math.Log1p(-math.Ldexp(float64(-h), -64)) / math.Ln2
		}
		if diff := math.Abs(got - want); diff > 2.8e-6 {
			t.Fatalf("negLog2(%#x) = %v, want %v: off by %g", h, got, want, diff)
		}
		if small := h > 1<<63 && -h > 1<<24; small && math.Abs(got/want-1) > 0.001 {
			t.Fatalf("negLog2(%#x) = %v, want %v: off by a factor of %v", h, got, want, got/want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		h := rapid.Uint64().Draw(t, "h")
		check(t, h)
		check(t, -h)
		check(t, h>>rapid.IntRange(0, 63).Draw(t, "shift"))
	})
	for h, want := range map[uint64]uint64{
		0:       64 << logBits,
		1:       64 << logBits,
		2:       63 << logBits,
		1 << 63: 1 << logBits,
		1 << 62: 2 << logBits,
	} {
		if got := negLog2(h); got != want {
			t.Errorf("negLog2(%d) = %#x, want %#x", h, got, want)
		}
	}
	if got := negLog2(math.MaxUint64); got == 0 {
		t.Error("the cost of the highest draw is 0: weights would not count")
	}
}

// negLog2 must never rise, because the order of ties within a class relies on it. It may be flat.
func TestNegLog2NeverRises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		if negLog2(min(a, b)) < negLog2(max(a, b)) {
			t.Fatalf("negLog2 rises between %#x and %#x", min(a, b), max(a, b))
		}
	})
	for exponent := range 64 { // where the pieces of the interpolation meet
		for i := range uint64(256) {
			h := uint64(1)<<exponent | i<<exponent>>8
			if negLog2(h-1) < negLog2(h) || negLog2(h) < negLog2(h+1) && h != math.MaxUint64 {
				t.Fatalf("negLog2 rises at %#x", h)
			}
		}
	}
}

// compareRat is a simple reference model of wins.
func compareRat(a, b score) int {
	rat := func(s score) *big.Rat {
		return new(big.Rat).SetFrac(new(big.Int).SetUint64(negLog2(s.draw)), new(big.Int).SetUint64(s.weight))
	}
	return cmp.Or(rat(a).Cmp(rat(b)), cmp.Compare(b.draw, a.draw), cmp.Compare(a.node, b.node))
}

func TestWins(t *testing.T) {
	draws := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 1 << 32, 1 << 48, 1 << 63, math.MaxUint64}))
	weights := rapid.OneOf(rapid.Uint32Range(1, 4), rapid.Uint32Range(1, math.MaxUint32))
	anyScore := func(node int) *rapid.Generator[score] {
		return rapid.Custom(func(t *rapid.T) score {
			return newScore(draws.Draw(t, "draw"), weights.Draw(t, "weight"), node)
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyScore(1).Draw(t, "a"), anyScore(2).Draw(t, "b")
		if rapid.IntRange(0, 3).Draw(t, "tie") == 0 {
			b = a
			b.node = 2
		}
		if a.wins(&b) != (compareRat(a, b) < 0) || b.wins(&a) != (compareRat(b, a) < 0) {
			t.Fatalf("%+v against %+v: wins %v and %v, exactly %d", a, b, a.wins(&b), b.wins(&a), compareRat(a, b))
		}
		if a.wins(&b) == b.wins(&a) || a.wins(&a) {
			t.Fatalf("%+v against %+v: not exactly one wins", a, b)
		}
	})
}

// A simple reference model of assignWeighted and Rank compares all pairs of nodes with exact fractions,
// without classes.
func TestAssignWeighted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(1, 3), rapid.Uint32Range(1, math.MaxUint32)), 1, 12).Draw(t, "weights")
		salt := rapid.Uint16().Draw(t, "salt")
		nodes := make([]Node, len(weights))
		for i, w := range weights {
			nodes[i] = Node{ID: lease.NodeID(fmt.Sprintf("n%05d-%02d", salt, i)), Weight: w}
		}
		const partitions = 20
		owners := assignWeighted(nodes, partitions)
		for p, owner := range owners {
			var bids []score
			for i, n := range nodes {
				bids = append(bids, newScore(draw(hashPartition(Partition(p)), hashNode(n)), n.Weight, i))
			}
			slices.SortFunc(bids, compareRat)
			if bids[0].node != owner {
				t.Fatalf("partition %d: owner %d, want %d", p, owner, bids[0].node)
			}
			for at, i := range Rendezvous().Rank(nodes, Partition(p), len(nodes)) {
				if bids[at].node != i {
					t.Fatalf("partition %d, rank %d: node %d, want %d", p, at, i, bids[at].node)
				}
			}
		}
	})
}

// If all weights are equal, both algorithms of Assign return the same owners. So no partition moves only because
// weights become equal.
func TestPathsAgreeOnEqualWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.Uint32Range(1, math.MaxUint32).Draw(t, "weight")
		nodes := make([]Node, rapid.IntRange(1, 40).Draw(t, "nodes"))
		salt := rapid.Uint16().Draw(t, "salt")
		for i := range nodes {
			nodes[i] = Node{ID: lease.NodeID(fmt.Sprintf("n%05d-%02d", salt, i)), Weight: weight}
		}
		if a, b := assignEqual(nodes, 100), assignWeighted(nodes, 100); !slices.Equal(a, b) {
			t.Fatalf("equal path %v\nweighted path %v", a, b)
		}
	})
}
