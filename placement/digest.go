package placement

import (
	"fmt"
	"strconv"
)

// Digest identifies a table; see [Table.Digest]. As text, and so in JSON, it is
// 16 hexadecimal digits, since not every reader of JSON holds 64 bits.
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
