package split

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A member that restarted, and is not placed yet, does not age towards a vote: newcomers give it no seat before it is placed.
func TestVoteAfterPlacement(t *testing.T) { // S5.2
	r := Record{Forget: time.Hour, Spread: 6 * time.Second}
	self := lease.Incarnation{Node: "a", Number: 1}
	for _, look := range []struct {
		second int64
		number uint64 // the incarnation of b
		placed bool   // likewise
		votes  int    // of two members that agree
	}{
		{0, 1, true, 0},
		{7, 1, true, 2},
		{10, 2, false, 1},
		{30, 2, false, 1},
		{31, 2, true, 1},
		{36, 2, true, 1},
		{37, 2, true, 2},
	} {
		now := time.Unix(look.second, 0)
		members := []Member{{self, true, true, now}, {lease.Incarnation{Node: "b", Number: look.number}, look.placed, look.placed, now}}
		v := r.Judge(now, self, members, now, nobody{})
		if v.Votes != look.votes || v.Seats != 2 {
			t.Errorf("after %d s: %d votes of %d, want %d of 2", look.second, v.Votes, v.Seats, look.votes)
		}
	}
}

// nobody has ended.
type nobody struct{}

func (nobody) Left(lease.Incarnation) bool    { return false }
func (nobody) Refused(lease.Incarnation) bool { return false }
