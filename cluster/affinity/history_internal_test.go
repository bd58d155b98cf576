package affinity

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Events of the same kind, node and reason share an entry, unless there is a pause between them or the entry has lasted
// too long. If too many nodes have such events, the remaining nodes share an entry.
func TestHistoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		count := func(want int) {
			t.Helper()
			if len(h.events) != want {
				t.Errorf("%d events, want %d: %+v", len(h.events), want, h.events)
			}
		}
		for range 1_000_000 {
			h.rooms(EventRoomsMoved, "a", "why", 1)
		}
		count(1)
		time.Sleep(maxGap - 1)
		h.rooms(EventRoomsMoved, "a", "why", 1)
		count(1)
		time.Sleep(maxGap)
		h.rooms(EventRoomsMoved, "a", "why", 1)
		h.rooms(EventRoomsMoved, "a", "another reason", 1)
		h.rooms(EventConflict, "a", "why", 1)
		count(4)
		for range 20 {
			time.Sleep(maxGap - time.Second)
			h.rooms(EventRoomsMoved, "a", "why", 1)
		}
		count(4)
		time.Sleep(maxGap - time.Second)
		h.rooms(EventRoomsMoved, "a", "why", 1)
		count(5)
		if first, second := h.events[0], h.events[1]; first.Rooms != 1_000_001 || first.Lasted != maxGap-1 || second.Rooms != 21 {
			t.Errorf("%+v, %+v", first, second)
		}

		h.events = nil
		for range 2 {
			for i := range 500 {
				h.rooms(EventRoomsMoved, lease.NodeID(fmt.Sprint(i)), "why", 2)
			}
		}
		count(maxNodes + 1)
		if last := h.events[maxNodes]; last.Member != "" || last.Rooms != 2*2*(500-maxNodes) {
			t.Errorf("%+v", last)
		}

		for i := range 2 * maxEvents {
			h.rooms(EventRoomsMoved, "", fmt.Sprint(i), 1)
		}
		count(maxEvents)
		if last := h.events[maxEvents-1]; last.Reason != fmt.Sprint(2*maxEvents-1) {
			t.Errorf("%+v", last)
		}
	})
}
