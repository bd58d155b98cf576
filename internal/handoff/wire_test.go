package handoff

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func drawList(t *rapid.T, name string) []placement.Partition {
	draw := rapid.Map(rapid.IntRange(0, placement.MaxPartitions-1), func(i int) placement.Partition { return placement.Partition(i) })
	return rapid.SliceOfN(draw, 0, 1000).Draw(t, name)
}

// sorted returns a list in the form in which the receiver gets it.
func sorted(list []placement.Partition) []placement.Partition {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number, view := rapid.Uint64().Draw(t, "number"), rapid.Uint64().Draw(t, "view")
		first, second := drawList(t, "first"), drawList(t, "second")
		var got [2][]placement.Partition
		for _, wire := range (Ask{Number: number, View: view, Wants: first, Demands: second}).Encode() {
			if wire[0] != 0x95 {
				t.Fatalf("% x is no array of five fields", wire)
			}
			grown := append([]byte{0x97}, wire[1:]...)
			ask, answer, err := Decode(append(grown, 0xc0, 0x92, 1, 0xa1, 'x'))
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
		to := lease.Handle(view >> 16)
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

// hostile returns messages that no agent sends.
func hostile() [][]byte {
	return [][]byte{
		nil,
		{0x90},
		{0x91, kindAsk},
		{0x95, 3, 0, 0, 0x90, 0x90},
		{0x95, 0xff, 0, 0, 0x90, 0x90},
		{0x95, kindAsk, 0xff, 0, 0x90, 0x90},
		{0x95, kindAsk, 0xc0, 0, 0x90, 0x90},
		{0x95, kindAsk, 0, 0xca, 0, 0, 0, 0, 0x90, 0x90},
		{0x95, kindAnswer, 0, 7, 0x90, 0x90},
		{0x95, kindAnswer, 0, 0xc4, 5, 0, 0, 0, 0, 0, 0x90, 0x90},
		{0x95, kindAsk, 0, 0, 0x92, 1, 1, 0x90},                                               // twice
		{0x95, kindAsk, 0, 0, 0x92, 2, 1, 0x90},                                               // out of order
		{0x95, kindAsk, 0, 0, 0x91, 0xce, 0, 1, 0, 0, 0x90},                                   // partition 65,536
		{0x95, kindAsk, 0, 0, 0x91, 0xff, 0x90},                                               // partition -1
		{0x95, kindAsk, 0, 0, 0xdd, 0xff, 0xff, 0xff, 0xff, 0x90},                             // 2^32-1 partitions
		{0x95, kindAsk, 0, 0, 0xdd, 0, 1, 0, 1, 0x90},                                         // more than there are bytes
		append([]byte{0x96, kindAsk, 0, 0, 0x90, 0x90}, bytes.Repeat([]byte{0x91}, 6<<20)...), // nested
		append([]byte{0x95, kindAsk, 0, 0, 0x90}, bytes.Repeat([]byte{0x91}, 6<<20)...),
		{0x95, kindAsk, 0, 0, 0x90, 0x90, 0},
	}
}

// For any malformed message, Decode allocates at most 4 KiB.
func TestDecodeOfHostileMessages(t *testing.T) {
	for i, wire := range hostile() {
		ask, answer, err := Decode(wire)
		if ask != nil || answer != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%d: %+v, %+v, %v", i, ask, answer, err)
		}
		least := uint64(math.MaxUint64)
		for range 3 { // the garbage collector may have freed memory that is kept for reuse
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, _ = Decode(wire)
			runtime.ReadMemStats(&after)
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		if least > 4<<10 {
			t.Errorf("%d: %d bytes take %d", i, len(wire), least)
		}
	}
}

// An independent decoder finds the fields where the documentation of the wire format says.
func TestAnotherDecoderReadsIt(t *testing.T) {
	for want, wire := range map[string][]byte{
		"[1 7 1234 [3 300] [5]]": Ask{
			Number:  7,
			View:    1234,
			Wants:   []placement.Partition{300, 3},
			Demands: []placement.Partition{5},
		}.Encode()[0],
		"[2 7 [1 2 3 4 5 6] [] [65535]]": Answer{Number: 7, To: 0x010203040506, Runs: []placement.Partition{65535}}.Encode()[0],
	} {
		var v any
		if err := codec.NewDecoderBytes(wire, &codec.MsgpackHandle{}).Decode(&v); err != nil || fmt.Sprint(v) != want {
			t.Errorf("%v, %v, want %s", v, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	all := make([]placement.Partition, placement.MaxPartitions)
	for i := range all {
		all[i] = placement.Partition(i)
	}
	for _, wire := range slices.Concat(
		Ask{Number: 1, View: 2, Wants: all[:3], Demands: all[len(all)-2:]}.Encode(),
		Answer{To: 3, Number: 1 << 60, Free: all[7:8], Runs: all[100:300]}.Encode(),
		hostile(),
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
			return // the message names no partitions, or more than Encode puts into one message
		}
		ask2, answer2, err := Decode(again[0])
		if err != nil || !reflect.DeepEqual(ask, ask2) || !reflect.DeepEqual(answer, answer2) {
			t.Fatalf("%+v, %+v; again %+v, %+v, %v", ask, answer, ask2, answer2, err)
		}
	})
}
