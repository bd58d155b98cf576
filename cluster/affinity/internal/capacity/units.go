package capacity

import (
	"math"
	"math/bits"
	"strconv"
)

// total is an exact sum of units. total uses 128 bits, because a saturated sum could not be reduced again.
type total struct{ high, low uint64 }

func (t *total) add(units int64) {
	var carry uint64
	t.low, carry = bits.Add64(t.low, uint64(units), 0)
	t.high += carry
}

func (t *total) reduce(units int64) {
	var borrow uint64
	t.low, borrow = bits.Sub64(t.low, uint64(units), 0)
	t.high -= borrow
}

// units returns the total, or the greatest int64.
func (t *total) units() int64 { return saturated(t.high, t.low) }

// saturated converts a 128-bit number to an int64. If the number is too large, it returns the greatest int64.
func saturated(high, low uint64) int64 {
	if high > 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// Plus returns a + b. If the sum is too large, it returns the greatest int64, because an overflow would look
// like headroom. a and b must not be negative.
func Plus(a, b int64) int64 {
	var t total
	t.add(a)
	t.add(b)
	return t.units()
}

// Times returns a · b. If the product is too large, it returns the greatest int64. a and b must not be
// negative.
func Times(a, b int64) int64 { return saturated(bits.Mul64(uint64(a), uint64(b))) }

// Percent returns share percent of n, which must not be negative. If the result is too large, Percent returns the
// greatest int64.
func Percent(n int64, share int) int64 {
	const whole = 100
	return Scale(n, int64(share), whole)
}

// Scale returns n · part / whole. If the result is too large, Scale returns the greatest int64. n and part must
// not be negative, and whole must be positive.
func Scale(n, part, whole int64) int64 {
	high, low := bits.Mul64(uint64(n), uint64(part))
	if high >= uint64(whole) { // bits.Div64 would panic
		return math.MaxInt64
	}
	low, _ = bits.Div64(high, low, uint64(whole))
	return saturated(0, low)
}

// grouped formats units, which must not be negative, for people: 2450 becomes 2,450.
func grouped(units int64) string {
	s := strconv.FormatInt(units, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
