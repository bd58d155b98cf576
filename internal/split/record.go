package split

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Member is what a record needs to know of a live member.
type Member struct {
	lease.Incarnation
	Placed bool // it takes or took part in placement, so it votes, and newcomers follow it
	Owns   bool // it takes part in placement now

	Renewed time.Time // when it sent its latest heartbeat
}

// Record is the voters that a node knows. The zero Record with a Forget is empty.
type Record struct {
	// Forget is how long a silent voter keeps its seat.
	Forget time.Duration

	// Spread is the maximum time until the news of a member has reached all others.
	Spread time.Duration

	seats  map[lease.NodeID]*seat
	guests map[lease.NodeID]*seat // seats for members once no voter is missing
	elders map[lease.Incarnation]bool
	placed bool // this node is Placed, so its elders don't change any more

	returned time.Time // when a silent voter last became live again
}

// seat is what a record knows of a voter.
type seat struct {
	vote   uint64    // the incarnation whose seat all voters know; 0 = none yet
	latest uint64    // the latest incarnation that was live
	taken  time.Time // when the latest incarnation was first seen, or last seen not taking part in placement
	lost   time.Time // when the last incarnation was lost; zero = one is live

	refused bool // the voter is lost, and its processes seem to have ended
}

// process returns the process that the seat is for.
func (s *seat) process(id lease.NodeID) lease.Incarnation {
	return lease.Incarnation{Node: id, Number: cmp.Or(s.vote, s.latest)}
}

// seemsOver reports whether the process that the seat is for refused connections, and a later one with its id
// has ended, too.
func (s *seat) seemsOver(of lease.Incarnation, ends Ends) bool {
	latest := lease.Incarnation{Node: of.Node, Number: s.latest}
	return ends.Refused(of) && (of == latest || ends.Refused(latest) || ends.Left(latest))
}

// Ends is what is known about the ends of processes.
type Ends interface {
	// Left reports whether a process sent a leave message, so that it has certainly ended.
	Left(i lease.Incarnation) bool

	// Refused reports whether the address of a process refused connections. A firewall may have refused them.
	Refused(i lease.Incarnation) bool
}

// Verdict is the result of [Record.Decide].
type Verdict struct {
	Owns bool // this node may own partitions
	Why  Why

	Votes, Seats int // votes of live voters, and all seats
}

// Why is the reason of a verdict.
type Why uint8

// The reasons.
const (
	Whole    Why = iota // no voter is missing
	Majority            // most voters are live here, or half of them and the smallest id
	Minority            // most voters are missing
	Elders              // this node is new, so its elders decide
)

// Decide decides, given the live members including this node. agreed is the time of the oldest of their
// latest heartbeats. It must be zero unless all members with a table have this node's table, that table has
// all candidates that this node sees, and no heartbeat is from before the latest moment at which any of them
// missed a voter.
//
// Neither silence nor a later incarnation proves that a process has ended, because a later process may have
// been started because the earlier one is cut off.
func (r *Record) Decide(now time.Time, self lease.Incarnation, members []Member, agreed time.Time, ends Ends) Verdict {
	if r.seats == nil {
		r.seats, r.guests = make(map[lease.NodeID]*seat), make(map[lease.NodeID]*seat)
	}
	live := make(map[lease.NodeID]Member, len(members))
	for _, m := range members {
		live[m.Node] = m
	}
	r.review(now, live, ends)
	r.seat(now, live, agreed)
	r.meet(live[self.Node], members)
	v := r.count(live)
	if s := r.seats[self.Node]; (s == nil || s.vote != self.Number) && len(r.elders) > 0 {
		v = r.follow(v, live)
	}
	if v.Owns && r.believe(self, members) {
		r.seat(now, live, agreed) // do this before this node says that it misses no voter
	}
	return v
}

// review notes which voters are missing, and takes the seats away from voters that have ended or were silent
// for too long.
func (r *Record) review(now time.Time, live map[lease.NodeID]Member, ends Ends) {
	for id, s := range r.seats {
		m, here := live[id]
		switch {
		case here:
			if s.latest == m.Number && !s.lost.IsZero() {
				r.returned = now
			}
			if s.latest != m.Number {
				s.latest, s.taken = m.Number, now
			}
			s.lost = time.Time{}
		case s.lost.IsZero():
			s.lost = now
		}
		of := s.process(id)
		s.refused = !here && (s.refused || s.seemsOver(of, ends))
		if ends.Left(of) || (!here && now.Sub(s.lost) >= r.Forget) {
			delete(r.seats, id)
		}
	}
}

// believe takes the seats away from voters that refused connections, on a side that may own even if it counts
// them as missing. It reports whether it took any. A firewall may refuse the connections between two sides,
// but it does not let heartbeats through, either. So once all live members have sent a heartbeat after a
// voter was lost, none of them is on the side of that voter. This side has then lost everything that it is
// cut off from, and if it is the smaller side, it does not own. Half a Spread is much longer than any
// difference between the clocks.
func (r *Record) believe(self lease.Incarnation, members []Member) (any bool) {
	for id, s := range r.seats {
		here := func(m Member) bool { return m.Incarnation == self || m.Renewed.After(s.lost.Add(r.Spread/2)) }
		if s.refused && !slices.ContainsFunc(members, func(m Member) bool { return !here(m) }) {
			delete(r.seats, id)
			any = true
		}
	}
	return any
}

// Misses reports whether this node says in each message that it misses a voter. It does while a voter is
// missing, and for a Spread after a silent voter has returned. For example, A was silent and C was restarted
// in the meantime. Until the end of the Spread, A may not have heard of the new process of C. A's table has
// the same ids, but relies on the old process, which may still run.
func (r *Record) Misses(now time.Time) bool {
	return r.short() || (!r.returned.IsZero() && !now.After(r.returned.Add(r.Spread)))
}

// short reports whether a voter is missing as of the last Decide. Then this node gives no seats, because a
// newcomer would believe that the cluster is complete and would not know of the missing voters.
func (r *Record) short() bool {
	for _, s := range r.seats {
		if !s.lost.IsZero() {
			return true
		}
	}
	return false
}

// seat gives a seat to each member that is placed, once no voter is missing. A seat becomes a vote once all
// members have agreed more than a Spread after its member was first seen placed. Each seat has its own time,
// which also runs while a voter is missing, because members that miss a voter do not agree, and give all
// seats before they agree again.
func (r *Record) seat(now time.Time, live map[lease.NodeID]Member, agreed time.Time) {
	short := r.short()
	for id, m := range live {
		s := cmp.Or(r.seats[id], r.guests[id])
		if s == nil {
			s = &seat{}
			r.guests[id] = s
		}
		if s.latest != m.Number || !m.Placed { // newcomers don't give it a seat before that
			s.latest, s.taken = m.Number, now
		}
		if m.Placed && !short {
			r.seats[id] = s
			delete(r.guests, id)
		}
		if m.Placed && !short && agreed.After(s.taken.Add(r.Spread)) {
			s.vote = m.Number
		}
	}
	maps.DeleteFunc(r.guests, func(id lease.NodeID, _ *seat) bool { _, here := live[id]; return !here })
}

// meet notes the elders of this node until it takes part in placement itself. Two nodes are never elders of
// each other, so newcomers cannot follow each other in a circle.
func (r *Record) meet(self Member, members []Member) {
	if r.placed {
		return
	}
	r.placed = self.Placed
	if r.placed {
		return
	}
	r.elders = make(map[lease.Incarnation]bool)
	for _, m := range members {
		if m.Placed {
			r.elders[m.Incarnation] = true
		}
	}
}

// count counts votes and seats.
func (r *Record) count(live map[lease.NodeID]Member) Verdict {
	v := Verdict{Owns: true, Why: Whole, Seats: len(r.seats)}
	first, firstVotes := lease.NodeID(""), false
	for id, s := range r.seats {
		votes := s.vote != 0 && live[id].Number == s.vote
		if votes {
			v.Votes++
		}
		if first == "" || id < first {
			first, firstVotes = id, votes
		}
	}
	if r.short() {
		v.Why = Majority
		if 2*v.Votes < v.Seats || (2*v.Votes == v.Seats && !firstVotes) {
			v.Owns, v.Why = false, Minority
		}
	}
	return v
}

// follow decides for a newcomer. It may own if an elder owns, or if it no longer has an elder and misses no
// voter.
func (r *Record) follow(v Verdict, live map[lease.NodeID]Member) Verdict {
	present := false
	for e := range r.elders {
		m, ok := live[e.Node]
		if !ok || m.Incarnation != e {
			continue
		}
		present = true
		if m.Owns {
			v.Owns, v.Why = true, Elders
			return v
		}
	}
	if present {
		v.Owns, v.Why = false, Elders
	}
	return v
}
