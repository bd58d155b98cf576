package split

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Member contains what a record needs to know about a live member.
type Member struct {
	lease.Incarnation
	Placed bool // takes or took part in placement, so it votes, and newcomers follow it
	Owns   bool // takes part in placement now

	Renewed time.Time // when it sent its latest heartbeat
}

// Record contains the voters that a node knows. A zero Record in which only Forget and Spread are set is
// empty and ready to use.
type Record struct {
	// Forget is how long a silent voter keeps its seat.
	Forget time.Duration

	// Spread is the maximum time until all other members have received the news of a member.
	Spread time.Duration

	seats  map[lease.NodeID]*seat
	guests map[lease.NodeID]*seat // seats for members once no voter is missing
	elders map[lease.Incarnation]bool
	placed bool // this node is Placed, so its elders don't change any more

	returned time.Time // when a silent voter last became live again
}

// seat is what a record knows about a voter.
type seat struct {
	vote   uint64    // the incarnation whose seat all voters know; 0 = none yet
	latest uint64    // the latest incarnation that was live
	taken  time.Time // when the latest incarnation was first seen, or was last seen outside placement
	lost   time.Time // when the last incarnation was lost; zero = an incarnation is live

	refused bool // the voter is lost, and its processes appear to have ended
}

// process returns the process to which the seat belongs.
func (s *seat) process(id lease.NodeID) lease.Incarnation {
	return lease.Incarnation{Node: id, Number: cmp.Or(s.vote, s.latest)}
}

// seemsOver reports whether the process of the seat has refused connections, and any later process with the
// same id has ended as well.
func (s *seat) seemsOver(of lease.Incarnation, ends Ends) bool {
	latest := lease.Incarnation{Node: of.Node, Number: s.latest}
	return ends.Refused(of) && (of == latest || ends.Refused(latest) || ends.Left(latest))
}

// Ends reports how processes have ended.
type Ends interface {
	// Left reports whether a process sent a leave message, which proves that it has ended.
	Left(i lease.Incarnation) bool

	// Refused reports whether the address of a process refused connections. A refusal does not prove that the
	// process has ended, because it may come from a firewall.
	Refused(i lease.Incarnation) bool
}

// Verdict is the result of [Record.Decide].
type Verdict struct {
	Owns bool // whether this node may own partitions
	Why  Why

	Votes, Seats int // votes of live voters, and all seats
}

// Why is the reason for a verdict.
type Why uint8

// The reasons.
const (
	Whole    Why = iota // no voter is missing
	Majority            // most voters are live here, or half of them including the smallest id
	Minority            // most voters are missing
	Elders              // this node is new, so its elders decide
)

// Decide returns whether this node may own partitions, given the live members including this node.
//
// The parameter agreed is the earliest of the members' latest heartbeat times. It must be zero unless three
// conditions are met:
//   - All members with a table have the same table as this node.
//   - That table contains all candidates that this node sees.
//   - All these heartbeats were sent after the last moment at which any of the members missed a voter.
//
// A silent process, or one whose id is used by a later process, has not necessarily ended. The later process
// may have been started because the earlier process is cut off.
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

// review records which voters are missing. It removes the seats of voters that have left or have been silent
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

// believe removes the seats of missing voters that refused connections. The caller must only call it if this
// side may own partitions without these voters. It reports whether it removed any seats.
//
// A firewall that refuses the connections between two sides also blocks heartbeats. So once all live members
// have sent a heartbeat after the voter was lost, none of these members is on the other side of such a
// firewall. At that point, this side has lost all members from which it is cut off. If this side were the
// smaller one, it would not own anything. The check uses half a Spread, which is much longer than any
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

// Misses reports whether this node must announce in each message that it misses a voter. A node does so while
// a voter is missing, and for another Spread after a silent voter has returned.
//
// The second case is needed, for example, if A was silent and C was restarted in the meantime. Until the end
// of the Spread, A may not know the new process of C. The table of A then has the same ids as other tables,
// but it relies on the old process of C, which may still be running.
func (r *Record) Misses(now time.Time) bool {
	return r.short() || (!r.returned.IsZero() && !now.After(r.returned.Add(r.Spread)))
}

// short reports whether a voter was missing at the last Decide. While a voter is missing, this node does not
// give seats. Otherwise a newcomer would assume that the cluster is complete, and would not know about the
// missing voter.
func (r *Record) short() bool {
	for _, s := range r.seats {
		if !s.lost.IsZero() {
			return true
		}
	}
	return false
}

// seat gives a seat to each placed member if no voter is missing. A seat becomes a vote when all members have
// agreed, more than a Spread after the member was first seen to take part in placement. Each seat has its own
// start time. The waiting time of a seat also passes while a voter is missing. That is safe, because members
// that miss a voter do not agree, and they give all seats before they agree again.
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

// meet records the elders of this node until the node takes part in placement itself. Two nodes are never
// elders of each other, so newcomers cannot follow each other in a circle.
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

// count counts votes and seats, and decides by majority.
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

// follow decides for a newcomer. The newcomer may own partitions if one of its elders owns partitions. If no
// elder is live, follow returns v unchanged.
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
