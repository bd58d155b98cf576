package handoff

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func drawList(t *rapid.T, name string) []placement.Partition {
	draw := rapid.Map(rapid.IntRange(0, placement.MaxPartitions-1), func(i int) placement.Partition { return placement.Partition(i) })
	return rapid.SliceOfN(draw, 0, 1000).Draw(t, name)
}

// sorted returns the form in which a list arrives.
func sorted(list []placement.Partition) []placement.Partition {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number, view := rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "view")
		first, second := drawList(t, "first"), drawList(t, "second")
		var got [2][]placement.Partition
		for _, wire := range (Ask{Number: number, View: view, Wants: first, Demands: second}).Encode() {
			ask, answer, err := Decode(append(wire, "a later field"...))
			if err != nil || answer != nil || ask.Number != number || ask.View != view {
				t.Fatalf("ask %+v, answer %+v, %v", ask, answer, err)
			}
			got[0], got[1] = append(got[0], ask.Wants...), append(got[1], ask.Demands...)
		}
		check := func() {
			t.Helper()
			if !slices.Equal(sorted(got[0]), sorted(first)) || !slices.Equal(sorted(got[1]), sorted(second)) {
				t.Fatalf("got %v, sent %v and %v", got, first, second)
			}
			clear(got[:])
		}
		check()
		to := lease.Handle(view)
		for _, wire := range (Answer{To: to, Number: number, Free: first, Runs: second}).Encode() {
			ask, answer, err := Decode(wire)
			if err != nil || ask != nil || answer.Number != number || answer.To != to {
				t.Fatalf("ask %+v, answer %+v, %v", ask, answer, err)
			}
			if len(wire) > 1000 {
				t.Fatalf("a message of %d bytes", len(wire))
			}
			got[0], got[1] = append(got[0], answer.Free...), append(got[1], answer.Runs...)
		}
		check()
	})
}

func FuzzDecode(f *testing.F) {
	all := make([]placement.Partition, placement.MaxPartitions)
	for i := range all {
		all[i] = placement.Partition(i)
	}
	for _, wire := range slices.Concat(
		Ask{Number: 1, View: 2, Wants: all[:3], Demands: all[len(all)-2:]}.Encode(),
		Answer{To: 3, Number: 1 << 60, Free: all[7:8], Runs: all[100:300]}.Encode(),
		[][]byte{{}, {kindAsk}, {kindAnswer, 0xff}, {3}, append([]byte{kindAsk, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 3}, make([]byte, 1<<16)...)},
	) {
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		ask, answer, err := Decode(wire)
		if err != nil {
			if ask != nil || answer != nil || !errors.Is(err, ErrMalformed) {
				t.Fatalf("%+v, %+v, %v", ask, answer, err)
			}
			return
		}
		h := New()
		h.SetMembers(1, []lease.Handle{2})
		h.SetTable([]lease.Handle{1, 2})
		var again [][]byte
		if ask != nil {
			h.ReceiveAsk(2, *ask)
			again = ask.Encode()
		} else {
			h.ReceiveAnswer(2, *answer)
			again = answer.Encode()
		}
		if len(again) != 1 {
			return // it names no partition, or more than an encoder puts into a message
		}
		ask2, answer2, err := Decode(again[0])
		if err != nil || !reflect.DeepEqual(ask, ask2) || !reflect.DeepEqual(answer, answer2) {
			t.Fatalf("%+v, %+v; again %+v, %+v, %v", ask, answer, ask2, answer2, err)
		}
	})
}
