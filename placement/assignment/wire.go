package assignment

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// format is the first field of an encoded assignment. The encoding has no optional fields, because nodes that
// know different fields could not merge assignments.
const (
	format = 1
	fields = 10
)

// ErrMalformed means that an encoding cannot be decoded.
var ErrMalformed = errors.New("assignment: malformed")

// Encode returns the wire form of a, which docs/dev/design/wire.md describes. Equal assignments have equal
// wire forms. The wire form contains each id once, and entries refer to ids by number. It takes 4 to 16 bytes
// per partition. The wire form of a nil Assignment is empty.
func (a *Assignment) Encode() []byte {
	if a == nil {
		return nil
	}
	ids, index := a.ids()
	return wire.Append(make([]byte, 0, 32+16*len(ids)+16*len(a.entries)), func(w *wire.Writer) {
		w.Array(fields)
		w.Uint(format)
		w.Uint(uint64(len(a.entries)))
		w.Uint(a.version)
		w.Array(len(ids))
		for _, id := range ids {
			w.Text(string(id))
		}
		w.Uint(a.genesis.since)
		w.Uint(index[a.genesis.by])
		w.Uint(a.quorum.version)
		w.Uint(a.quorum.active)
		w.Array(len(a.quorum.voters))
		for _, id := range a.quorum.voters {
			w.Uint(index[id])
		}
		w.Array(len(a.entries))
		for i := range a.entries {
			a.entries[i].write(w, index)
		}
	})
}

// write writes an entry, or nil for a partition without an owner.
func (e *entry) write(w *wire.Writer, index map[lease.NodeID]uint64) {
	if e.owner == "" {
		w.Nil()
		return
	}
	f := w.Fields(3)
	w.Uint(index[e.owner])
	w.Uint(e.version)
	w.Uint(index[e.by])
	f.Optional(e.from != "", func() { w.Uint(index[e.from]) })
	f.Optional(e.cause != 0, func() { w.Uint(uint64(e.cause)) })
	f.Optional(e.deputy != "", func() { w.Uint(index[e.deputy]) })
	f.Optional(e.stand != 0, func() { w.Uint(e.stand) })
	f.End(nil)
}

// ids returns the sorted ids that occur in a, and the place of each id, counted from 1. Place 0 means no id.
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

// Decode parses the wire form of an assignment with the given number of partitions. The result is valid and
// shares no memory with b. Decode fails with ErrMalformed.
func Decode(b []byte, partitions int) (*Assignment, error) {
	a := new(Assignment)
	err := wire.Read(b, func(r *wire.Reader) {
		d := decoder{Reader: r}
		d.Fields(fields, func() { d.assignment(a, partitions) })
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return a.finish(), nil
}

// decoder reads an assignment.
type decoder struct {
	*wire.Reader
	version uint64 // version of the assignment
	ids     []lease.NodeID
}

func (d *decoder) assignment(a *Assignment, partitions int) {
	if d.Uint(math.MaxUint64) != format || d.Left() != fields-1 {
		d.Fail("unknown format")
	}
	if n := d.Uint(placement.MaxPartitions); n != uint64(partitions) {
		d.Fail(fmt.Sprintf("%d partitions, want %d", n, partitions))
	}
	if d.version = d.Uint(maxVersion); d.version == 0 {
		d.Fail("version 0")
	}
	d.List(4*partitions+lease.MaxNodes+1, d.readID) // ids of entries, voters and the writer
	a.version = d.version
	a.genesis = genesis{d.Uint(math.MaxUint64), d.id()}
	a.quorum = quorum{version: d.Uint(a.version), active: d.Uint(lease.MaxNodes)}
	a.quorum.voters = d.voters()
	if a.quorum.active > uint64(len(a.quorum.voters)) {
		d.Fail(fmt.Sprintf("%d active members, of %d voters", a.quorum.active, len(a.quorum.voters)))
	}
	d.Fields(partitions, func() {
		if d.Left() != partitions {
			d.Fail("more entries than partitions")
			return
		}
		a.entries = make([]entry, partitions)
		for p := range a.entries {
			d.Optional(func() { a.entries[p] = d.entry() })
		}
	})
}

func (d *decoder) readID() {
	id := lease.NodeID(d.Text(lease.MaxIDBytes))
	if err := id.Validate(); err != nil {
		d.Fail(err.Error())
	}
	if n := len(d.ids); n > 0 && id <= d.ids[n-1] {
		d.Fail("ids out of order")
	}
	d.ids = append(d.ids, id)
}

// voters reads ids, which must be sorted and distinct.
func (d *decoder) voters() (voters []lease.NodeID) {
	d.List(len(d.ids), func() {
		id := d.id()
		if n := len(voters); id == "" || (n > 0 && id <= voters[n-1]) {
			d.Fail("voters out of order")
		}
		voters = append(voters, id)
	})
	return voters
}

// id reads the place of an id, and returns the id.
func (d *decoder) id() lease.NodeID {
	if i := d.Uint(uint64(len(d.ids))); i > 0 {
		return d.ids[i-1]
	}
	return ""
}

func (d *decoder) entry() (e entry) {
	d.Fields(3, func() {
		e.owner, e.version, e.by = d.id(), d.Uint(d.version), d.id()
		d.Optional(func() { e.from = d.id() })
		d.Optional(func() { e.cause = cause(d.Uint(uint64(causes - 1))) })
		d.Optional(func() { e.deputy = d.id() })
		d.Optional(func() { e.stand = d.Uint(d.version) })
		if d.Left() > 0 || e.owner == "" || e.version == 0 || (e.deputy != "" && e.stand == 0) {
			d.Fail("an entry is out of range")
		}
	})
	return e
}
