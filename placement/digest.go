package placement

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Digest identifies a table; see [Table.Digest]. In text and JSON, a Digest has 16 hexadecimal digits,
// because some JSON readers cannot represent 64-bit numbers exactly.
type Digest uint64

// String returns d as 16 hexadecimal digits.
func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Digest) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return fmt.Errorf("placement: %.40q is not a digest of 16 hexadecimal digits", b)
	}
	*d = Digest(v)
	return nil
}

// digest hashes an unambiguous encoding of t, so different tables never have the same encoding. The encoding
// numbers owners in the order in which they first occur, and contains each owner's id after its first
// occurrence. It does not use indexes into Nodes, because these indexes depend on nodes without partitions.
func digest(t *Table) Digest {
	b := make([]byte, 0, 2*t.partitions)
	add := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(t.partitions))
	add(t.name)
	numbers := make([]uint64, len(t.nodes)) // 0 = not seen yet
	seen := uint64(0)
	for _, owner := range t.owners {
		if numbers[owner] > 0 {
			b = binary.AppendUvarint(b, numbers[owner])
			continue
		}
		seen++
		numbers[owner] = seen
		b = binary.AppendUvarint(b, seen)
		add(string(t.nodes[owner].ID))
	}
	return Digest(max(1, xxhash.Sum64(b))) // 0 means that there is no table
}
