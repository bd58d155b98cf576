package split

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// After a restart, the time until a member gets a vote only starts when the member is placed, because newcomers do not
// give it a seat before.
func TestVoteAfterPlacement(t *testing.T) {
	r := Record{Forget: time.Hour, Spread: 6 * time.Second}
	self := lease.Incarnation{Node: "a", Number: 1}
	for _, look := range []struct {
		second int64
		number uint64 // the incarnation of b
		placed bool   // whether b is placed
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
		v := r.Decide(now, self, members, now, nobody{})
		if v.Votes != look.votes || v.Seats != 2 {
			t.Errorf("after %d s: %d votes of %d, want %d of 2", look.second, v.Votes, v.Seats, look.votes)
		}
	}
}

// nobody implements Ends, and reports that no process has ended.
type nobody struct{}

func (nobody) Left(lease.Incarnation) bool    { return false }
func (nobody) Refused(lease.Incarnation) bool { return false }

// A member that joined while a voter was missing has a seat as soon as this node reports that no voter is missing.
func TestSeatOnceNoneIsMissing(t *testing.T) {
	r := Record{Forget: time.Hour, Spread: 6 * time.Second}
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	member := func(id lease.NodeID, renewed time.Time) Member {
		return Member{lease.Incarnation{Node: id, Number: 1}, true, true, renewed}
	}
	self := member("a", time.Time{}).Incarnation
	for _, second := range []int64{0, 7} {
		r.Decide(at(second), self, []Member{member("a", at(second)), member("b", at(second)), member("c", at(second))}, at(second), nobody{})
	}
	for _, look := range []struct {
		second, heard int64
		short         bool
		seats         int
	}{{10, 9, true, 3}, {12, 12, true, 3}, {13, 13, true, 3}, {14, 14, false, 3}} {
		r.Decide(at(look.second), self,
			[]Member{member("a", at(look.second)), member("b", at(look.heard)), member("d", at(look.heard))},
			time.Time{}, refused{})
		if r.short() != look.short || len(r.seats) != look.seats || (r.seats["d"] != nil) == look.short {
			t.Errorf("after %d s: short %v, seats %v", look.second, r.short(), r.seats)
		}
	}
}

// refused implements Ends, and reports that every process has refused connections.
type refused struct{ nobody }

func (refused) Refused(lease.Incarnation) bool { return true }

// If a silent process returns, a node misses a voter for another Spread. This is not the case if a later process with
// the same id returns instead, because this process heard of all members when it joined.
func TestMissesAfterReturn(t *testing.T) {
	for _, c := range []struct {
		what     string
		returned uint64 // the incarnation of b after its silence
		last     int64  // the last second at which a misses a voter
	}{
		{"the same process", 1, 26},
		{"a later process", 2, 19},
	} {
		r := Record{Forget: time.Hour, Spread: 6 * time.Second}
		for second := range int64(40) {
			now := time.Unix(second, 0)
			members := []Member{{lease.Incarnation{Node: "a", Number: 1}, true, true, now}}
			switch {
			case second < 10:
				members = append(members, Member{lease.Incarnation{Node: "b", Number: 1}, true, true, now})
			case second >= 20:
				members = append(members, Member{lease.Incarnation{Node: "b", Number: c.returned}, true, true, now})
			}
			r.Decide(now, members[0].Incarnation, members, now, nobody{})
			if want := second >= 10 && second <= c.last; r.Misses(now) != want {
				t.Errorf("%s returns: after %d s, misses a voter: %v, want %v", c.what, second, !want, want)
			}
		}
	}
}
