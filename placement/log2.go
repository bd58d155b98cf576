package placement

import "math/bits"

//go:generate go run gen_log2.go

// logBits is the number of binary places of a logarithm. With 57 the greatest
// one, 64, still fits into a uint64.
const logBits = 57

// negLog2 returns −log2(h / 2^64) in fixed point, from 64 for h ≤ 1 down to just
// above 0. It never rises with h.
//
// It uses no floating point: math.Log is assembly on some CPUs and fused on
// others, and one differing last bit would give a partition two owners. A table
// of the logarithms at 256 points is interpolated linearly, which is off by at
// most 2.8e-6, or by 0.1 % of the result where that is small: far less than the
// chance of the draws.
func negLog2(h uint64) uint64 {
	h = max(h, 1)
	zeros := bits.LeadingZeros64(h)
	mantissa := h << zeros     // in [1, 2), its leading 1 in bit 63
	i := uint8(mantissa >> 55) // the 8 bits below that 1
	remainder := mantissa << 9 // all the bits below those
	step, _ := bits.Mul64(log2Table[int(i)+1]-log2Table[i], remainder)
	return uint64(zeros+1)<<logBits - (log2Table[i] + step)
}
