package assignment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// format is the first byte of an encoded assignment.
const format = 1

// ErrMalformed is the error of an encoding that cannot be decoded.
var ErrMalformed = errors.New("assignment: malformed")

// Encode returns the binary form of a, the same for equal assignments: the format,
// the number of partitions, the version, the ids that occur, the genesis, the quorum,
// and the entry of each partition. Numbers are of variable length, and refer to ids
// by their place. It takes 6 to 10 bytes a partition. The encoding of nil is empty.
func (a *Assignment) Encode() []byte {
	if a == nil {
		return nil
	}
	ids, index := a.ids()
	b := make([]byte, 0, 32+16*len(ids)+10*len(a.entries))
	put := func(numbers ...uint64) {
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
	}
	b = append(b, format)
	put(uint64(len(a.entries)), a.version, uint64(len(ids)))
	for _, id := range ids {
		put(uint64(len(id)))
		b = append(b, id...)
	}
	put(a.genesis.since, index[a.genesis.by], a.quorum.version, a.quorum.active, uint64(len(a.quorum.voters)))
	for _, id := range a.quorum.voters {
		put(index[id])
	}
	for i := range a.entries {
		e := &a.entries[i]
		if put(index[e.owner]); e.owner == "" {
			continue
		}
		put(e.version, index[e.from], index[e.by], uint64(e.cause), index[e.deputy], e.stand)
	}
	return b
}

// ids returns the ids that occur in a, sorted, and the place of each, counted
// from 1; no id has place 0.
func (a *Assignment) ids() ([]lease.NodeID, map[lease.NodeID]uint64) {
	index := make(map[lease.NodeID]uint64)
	var ids []lease.NodeID
	add := func(all ...lease.NodeID) {
		for _, id := range all {
			if _, ok := index[id]; !ok && id != "" {
				index[id] = 0
				ids = append(ids, id)
			}
		}
	}
	add(a.genesis.by)
	add(a.quorum.voters...)
	for i := range a.entries {
		e := &a.entries[i]
		add(e.owner, e.from, e.by, e.deputy)
	}
	slices.Sort(ids)
	for i, id := range ids {
		index[id] = uint64(i + 1)
	}
	return ids, index
}

// Decode parses the binary form of an assignment of the given number of partitions.
// The result is valid in every part and shares no memory with b. It fails with
// ErrMalformed.
func Decode(b []byte, partitions int) (*Assignment, error) {
	r := reader{b: b}
	if r.byte() != format {
		r.fail("unknown format")
	}
	if n := r.uvarint(placement.MaxPartitions); r.err == nil && n != uint64(partitions) {
		r.fail("%d partitions, want %d", n, partitions)
	}
	a := r.head()
	if r.err == nil && len(r.b) < partitions {
		r.fail("cut short") // an entry takes a byte at least
	}
	if r.err != nil {
		return nil, r.err
	}
	a.entries = make([]entry, partitions)
	for p := range a.entries {
		a.entries[p] = r.entry()
	}
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	return a.finish(), nil
}

// reader keeps the first error; after it, every read returns zero.
type reader struct {
	b       []byte
	version uint64 // the assignment's
	ids     []lease.NodeID
	err     error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("cut short")
		return 0
	}
	first := r.b[0]
	r.b = r.b[1:]
	return first
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.fail("a number is cut short or out of range")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// head reads all but the entries.
func (r *reader) head() *Assignment {
	if r.version = r.uvarint(maxVersion); r.version == 0 {
		r.fail("version 0")
	}
	r.readIDs()
	a := &Assignment{version: r.version}
	a.genesis = genesis{r.uvarint(math.MaxUint64), r.id()}
	a.quorum = quorum{version: r.uvarint(a.version), active: r.uvarint(lease.MaxNodes)}
	a.quorum.voters = r.readVoters()
	if a.quorum.active > uint64(len(a.quorum.voters)) {
		r.fail("%d active members, of %d voters", a.quorum.active, len(a.quorum.voters))
	}
	return a
}

func (r *reader) readIDs() {
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

// readVoters reads ids that are sorted and distinct.
func (r *reader) readVoters() (voters []lease.NodeID) {
	for range r.uvarint(uint64(len(r.ids))) {
		id := r.id()
		if n := len(voters); id == "" || (n > 0 && id <= voters[n-1]) {
			r.fail("voters out of order")
			return nil
		}
		voters = append(voters, id)
	}
	return voters
}

func (r *reader) id() lease.NodeID {
	if i := r.uvarint(uint64(len(r.ids))); i > 0 {
		return r.ids[i-1]
	}
	return ""
}

func (r *reader) entry() entry {
	e := entry{owner: r.id()}
	if e.owner == "" {
		return entry{}
	}
	e.version = r.uvarint(r.version)
	e.from, e.by = r.id(), r.id()
	e.cause = cause(r.uvarint(uint64(causes - 1)))
	e.deputy, e.stand = r.id(), r.uvarint(r.version)
	if r.err == nil && (e.version == 0 || (e.deputy != "" && e.stand == 0)) {
		r.fail("an entry is out of range")
	}
	return e
}
