package placement

import "math/bits"

//go:generate go run gen_log2.go

// logBits is the number of binary places of a logarithm. With 57, the greatest logarithm, 64, still fits into
// a uint64.
const logBits = 57

// negLog2 returns −log2(h / 2^64) in fixed point, from 64 for h ≤ 1 down to just above 0. It never increases
// with h.
//
// negLog2 uses no floating point, because a different last bit would give a partition two owners. math.Log is
// written in assembly for some CPUs and uses fused operations on others. Instead, negLog2 interpolates
// linearly between 256 points. The error is at most 2.8e-6, or 0.1 % of a small result, which is far less
// than the random variation of the draws.
func negLog2(h uint64) uint64 {
	h = max(h, 1)
	zeros := bits.LeadingZeros64(h)
	mantissa := h << zeros     // in [1, 2), its leading 1 in bit 63
	i := uint8(mantissa >> 55) // the 8 bits below the leading 1
	remainder := mantissa << 9 // all bits below i
	step, _ := bits.Mul64(log2Table[int(i)+1]-log2Table[i], remainder)
	return uint64(zeros+1)<<logBits - (log2Table[i] + step)
}
