package placement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/roost-cluster/roost/lease"
)

// assignmentFormat is the first byte of an encoded assignment.
const assignmentFormat = 1

// ErrAssignment is the error of an encoded assignment that cannot be read.
var ErrAssignment = errors.New("placement: malformed assignment")

// Encode returns the binary form of a, the same for equal assignments: the format,
// the number of partitions, the version, the ids that occur, and the entry of each
// partition as variable-length numbers, which refer to ids by their place. It takes
// about 6 bytes a partition.
func (a *Assignment) Encode() []byte {
	ids, index := a.ids()
	b := make([]byte, 0, 16+16*len(ids)+10*a.Partitions())
	b = append(b, assignmentFormat)
	b = binary.AppendUvarint(b, uint64(a.Partitions()))
	b = binary.AppendUvarint(b, a.Version())
	b = binary.AppendUvarint(b, uint64(len(ids)))
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(len(id)))
		b = append(b, id...)
	}
	if a == nil {
		return b
	}
	for i := range a.entries {
		e := &a.entries[i]
		if b = binary.AppendUvarint(b, index[e.owner]); e.owner == "" {
			continue
		}
		b = binary.AppendUvarint(b, e.version)
		b = binary.AppendUvarint(b, index[e.from])
		b = binary.AppendUvarint(b, index[e.by])
		b = append(b, byte(e.cause))
		if b = binary.AppendUvarint(b, index[e.deputy]); e.deputy != "" {
			b = binary.AppendUvarint(b, e.stand)
		}
	}
	return b
}

// ids returns the ids that occur in a, sorted, and the place of each, counted
// from 1; no id has place 0.
func (a *Assignment) ids() ([]lease.NodeID, map[lease.NodeID]uint64) {
	index := make(map[lease.NodeID]uint64)
	if a == nil {
		return nil, index
	}
	var ids []lease.NodeID
	for i := range a.entries {
		e := &a.entries[i]
		for _, id := range []lease.NodeID{e.owner, e.from, e.by, e.deputy} {
			if _, ok := index[id]; !ok && id != "" {
				index[id] = 0
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	for i, id := range ids {
		index[id] = uint64(i + 1)
	}
	return ids, index
}

// DecodeAssignment parses the binary form of an assignment of the given number of
// partitions. What it returns is valid in every part and shares no memory with b;
// it allocates at most a small multiple of what it was sent. It fails with
// ErrAssignment.
func DecodeAssignment(b []byte, partitions int) (*Assignment, error) {
	r := assignmentReader{b: b}
	if r.byte() != assignmentFormat {
		r.fail("unknown format")
	}
	if n := r.uvarint(MaxPartitions); r.err == nil && n != uint64(partitions) {
		r.fail("%d partitions, want %d", n, partitions)
	}
	r.version = r.uvarint(maxVersion)
	r.readIDs()
	if r.err == nil && len(r.b) < partitions {
		r.fail("cut short") // an entry takes a byte at least
	}
	if r.err != nil {
		return nil, r.err
	}
	entries := make([]entry, partitions)
	for p := range entries {
		entries[p] = r.entry()
	}
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.version == 0 {
		return nil, nil // nothing is assigned
	}
	return newAssignment(r.version, entries), nil
}

// assignmentReader keeps the first error; after it, every read returns zero.
type assignmentReader struct {
	b       []byte
	version uint64 // the assignment's
	ids     []lease.NodeID
	err     error
}

func (r *assignmentReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrAssignment}, args...)...)
	}
	r.b = nil
}

func (r *assignmentReader) byte() byte {
	if len(r.b) == 0 {
		r.fail("cut short")
		return 0
	}
	first := r.b[0]
	r.b = r.b[1:]
	return first
}

func (r *assignmentReader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.fail("a number is cut short or out of range")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *assignmentReader) readIDs() {
	count := r.uvarint(uint64(len(r.b))) // an id takes a byte at least
	for range count {
		n := int(r.uvarint(lease.MaxIDBytes))
		if n > len(r.b) {
			r.fail("cut short")
		}
		if r.err != nil {
			return
		}
		id := lease.NodeID(r.b[:n])
		r.b = r.b[n:]
		if err := id.Validate(); err != nil {
			r.fail("%v", err)
		}
		r.ids = append(r.ids, id)
	}
}

func (r *assignmentReader) id() lease.NodeID {
	if i := r.uvarint(uint64(len(r.ids))); i > 0 {
		return r.ids[i-1]
	}
	return ""
}

func (r *assignmentReader) entry() entry {
	e := entry{owner: r.id()}
	if e.owner == "" {
		return entry{}
	}
	e.version = r.uvarint(r.version)
	e.from, e.by = r.id(), r.id()
	e.cause = cause(r.byte())
	if e.deputy = r.id(); e.deputy != "" {
		e.stand = r.uvarint(r.version)
	}
	if r.err == nil && (e.version == 0 || e.cause >= causes || (e.deputy != "" && e.stand == 0)) {
		r.fail("an entry is out of range")
	}
	return e
}
