package placement

import "github.com/cespare/xxhash/v2"

// Partition is the number of one slice of the key space, from 0 to the table's
// Partitions()-1. Keys never move between partitions; partitions move between
// nodes.
type Partition uint32

const (
	// DefaultPartitions suits fleets of up to about ten nodes: the share of a
	// node then varies by some 10 % (see [Balance]). With 64 partitions it would
	// vary by 36 %, which is why a small number is a setting and not the default.
	DefaultPartitions = 1024

	// MaxPartitions bounds the memory of a table (4 bytes a partition) and the
	// time to compute one. 65,536 partitions still keep the shares of a
	// thousand nodes within 12 %.
	MaxPartitions = 65536
)

// Of returns the partition of key: xxHash64(key) mod partitions. It is the same
// on every node with the same number of partitions. It does not allocate. With
// partitions < 1 it returns 0, for which an empty table has no owner either.
func Of(key string, partitions int) Partition {
	if partitions < 1 {
		return 0
	}
	return Partition(xxhash.Sum64String(key) % uint64(partitions))
}
