package handoff

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// A message is an array of five fields. The fields are the kind, the number, the view (of an ask) or the
// handle of the asker (of an answer), and two lists of partitions in ascending order. The lists of an ask are
// the wanted and the demanded partitions. The lists of an answer are the free and the running partitions. A
// reader skips further fields, which a later release may add. docs/dev/design/wire.md describes the format.
const (
	kindAsk    = 1
	kindAnswer = 2
)

// maxListed is the maximum number of partitions in a message, so that the message fits into a packet.
const maxListed = 256

// ErrMalformed is the error that [Decode] returns.
var ErrMalformed = errors.New("handoff: malformed message")

// Encode returns the wire form of a. The result has several messages if there are many partitions.
func (a Ask) Encode() [][]byte {
	return pack(func(w *wire.Writer) {
		w.Uint(kindAsk)
		w.Uint(a.Number)
		w.Uint(a.View)
	}, a.Wants, a.Demands)
}

// Encode returns the wire form of a. The result has several messages if there are many partitions.
func (a Answer) Encode() [][]byte {
	return pack(func(w *wire.Writer) {
		w.Uint(kindAnswer)
		w.Uint(a.Number)
		w.Handle(uint64(a.To))
	}, a.Free, a.Runs)
}

func pack(head func(w *wire.Writer), first, second []placement.Partition) (messages [][]byte) {
	for len(first)+len(second) > 0 {
		f := first[:min(len(first), maxListed)]
		s := second[:min(len(second), maxListed-len(f))]
		messages = append(messages, wire.Append(nil, func(w *wire.Writer) {
			w.Array(5)
			head(w)
			writeList(w, f)
			writeList(w, s)
		}))
		first, second = first[len(f):], second[len(s):]
	}
	return messages
}

func writeList(w *wire.Writer, list []placement.Partition) {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	w.Array(len(list))
	for _, p := range list {
		w.Uint(uint64(p))
	}
}

// Decode parses the wire form of an [Ask] or an [Answer]. One of ask and answer is always nil. The receiver
// of an Ask must set the field To.
func Decode(b []byte) (ask *Ask, answer *Answer, err error) {
	err = wire.Read(b, func(r *wire.Reader) {
		r.Fields(5, func() {
			switch kind, number := r.Uint(kindAnswer), r.Uint(math.MaxUint64); kind {
			case kindAsk:
				ask = &Ask{Number: number, View: r.Uint(math.MaxUint64), Wants: readList(r), Demands: readList(r)}
			case kindAnswer:
				answer = &Answer{Number: number, To: lease.Handle(r.Handle()), Free: readList(r), Runs: readList(r)}
			default:
				r.Fail("no kind of message")
			}
		})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return ask, answer, nil
}

// readList reads a list of partitions in ascending order.
func readList(r *wire.Reader) (list []placement.Partition) {
	next := uint64(0)
	r.List(maxListed, func() {
		p := r.Uint(placement.MaxPartitions - 1)
		if p < next {
			r.Fail("partitions out of order")
		}
		list = append(list, placement.Partition(p))
		next = p + 1
	})
	return list
}
