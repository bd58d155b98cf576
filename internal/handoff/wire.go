package handoff

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// The wire form of an ask is its kind, the number, the view (fixed), and the partitions
// that are wanted and demanded. That of an answer is its kind, the number, the handle of
// the asker (fixed), and the partitions that are free and that run. A list is its
// length, the first partition, and the difference of each to the one before, less one.
// All other integers are varints. What stands behind the lists is of a later release.
const (
	kindAsk    = 1
	kindAnswer = 2
)

// maxListed is how many partitions one message names: it stays below a packet.
const maxListed = 256

// ErrMalformed is the error of [Decode].
var ErrMalformed = errors.New("handoff: malformed message")

// Encode returns the wire form of a, in several messages if it names many partitions.
func (a Ask) Encode() [][]byte {
	head := binary.AppendUvarint([]byte{kindAsk}, a.Number)
	return pack(binary.BigEndian.AppendUint64(head, a.View), a.Wants, a.Demands)
}

// Encode returns the wire form of a, in several messages if it names many partitions.
func (a Answer) Encode() [][]byte {
	head := binary.AppendUvarint([]byte{kindAnswer}, a.Number)
	return pack(binary.BigEndian.AppendUint64(head, uint64(a.To)), a.Free, a.Runs)
}

func pack(head []byte, first, second []placement.Partition) (messages [][]byte) {
	for len(first)+len(second) > 0 {
		f := first[:min(len(first), maxListed)]
		s := second[:min(len(second), maxListed-len(f))]
		messages = append(messages, appendList(appendList(slices.Clone(head), f), s))
		first, second = first[len(f):], second[len(s):]
	}
	return messages
}

func appendList(b []byte, list []placement.Partition) []byte {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	b = binary.AppendUvarint(b, uint64(len(list)))
	next := placement.Partition(0)
	for _, p := range list {
		b = binary.AppendUvarint(b, uint64(p-next))
		next = p + 1
	}
	return b
}

// Decode parses the wire form of an [Ask] or an [Answer]; the other one is nil. The
// receiver of an ask fills in To.
func Decode(b []byte) (*Ask, *Answer, error) {
	r := reader{b: b}
	kind := r.fixed(1)
	ask := Ask{Number: r.uvarint()}
	answer := Answer{Number: ask.Number}
	switch kind {
	case kindAsk:
		ask.View, ask.Wants, ask.Demands = r.fixed(8), r.list(), r.list()
	case kindAnswer:
		answer.To, answer.Free, answer.Runs = lease.Handle(r.fixed(8)), r.list(), r.list()
	default:
		r.fail()
	}
	switch {
	case r.err != nil:
		return nil, nil, r.err
	case kind == kindAsk:
		return &ask, nil, nil
	}
	return nil, &answer, nil
}

// reader reads values from b and keeps the first problem.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() uint64 {
	r.b, r.err = nil, ErrMalformed
	return 0
}

func (r *reader) fixed(size int) (v uint64) {
	if len(r.b) < size {
		return r.fail()
	}
	for _, b := range r.b[:size] {
		v = v<<8 | uint64(b)
	}
	r.b = r.b[size:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, size := binary.Uvarint(r.b)
	if size <= 0 {
		return r.fail()
	}
	r.b = r.b[size:]
	return v
}

func (r *reader) list() (list []placement.Partition) {
	n := r.uvarint()
	if n > uint64(min(len(r.b), placement.MaxPartitions)) {
		r.fail()
		return nil
	}
	for next := uint64(0); n > 0; n-- {
		skip := r.uvarint()
		if skip >= placement.MaxPartitions-next {
			r.fail()
			return nil
		}
		list = append(list, placement.Partition(next+skip))
		next += skip + 1
	}
	return list
}
