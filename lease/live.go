package lease

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// vitals is the part of an entry that most messages read or write, for all live nodes.
type vitals struct {
	at          Stamp         // of the latest heartbeat that is known of; rounded down if only its age was received
	grace       Stamp         // how much later the lease ends here, because cluster time has stepped
	clock       time.Duration // the node's wall clock minus this node's
	agesSent    int32         // copies of the latest age sent by this node
	rowsSent    int32         // copies of the latest row with news sent by this node
	recordsSent int32         // copies of the record sent by this node
	table       uint32        // of the latest heartbeat whose table is known
	state       State         // in the latest heartbeat that was received whole, as clock
	inDigest    bool          // the news in the row is part of digests
	status      status
}

// renewed returns when the lease was renewed.
func (v *vitals) renewed() Stamp { return v.at + v.grace }

// gather puts the vitals of live nodes next to each other, in the order in which messages
// go through them: a message about a thousand nodes then waits far less for memory.
func (s *Set) gather() {
	if !s.scattered {
		return
	}
	s.scattered = false
	together := make([]vitals, len(s.live))
	for i, e := range s.live {
		together[i] = *e.vitals
		e.vitals, s.vitals[i] = &together[i], &together[i]
	}
}

// become changes the status of e.
func (s *Set) become(e *entry, status status) {
	if (e.status == live) == (status == live) {
		e.status = status
		return
	}
	s.differsIn(e)
	s.tally(e, -1)
	e.status = status
	s.tally(e, 1)
	if status == live {
		s.begun = append(s.begun, e)
		if !s.applying {
			s.placeBegun()
		}
		return
	}
	s.placeBegun()
	s.reordered++
	i, _ := slices.BinarySearch(s.order, e.handle)
	s.live, s.order = slices.Delete(s.live, i, i+1), slices.Delete(s.order, i, i+1)
	s.vitals = slices.Delete(s.vitals, i, i+1)
	alone := *e.vitals
	e.vitals = &alone // e must not keep those of all others in memory
	s.lost = true
}

// placeBegun gives the leases that have just begun their places among the live ones:
// O(nodes), for one lease as for all of a message. In a mass start, each message begins some.
func (s *Set) placeBegun() {
	if len(s.begun) == 0 {
		return
	}
	slices.SortFunc(s.begun, func(a, b *entry) int { return cmp.Compare(a.handle, b.handle) })
	places := make([]int, len(s.begun))
	handles, all := make([]Handle, len(s.begun)), make([]*vitals, len(s.begun))
	for i, e := range s.begun {
		places[i], _ = slices.BinarySearch(s.order, e.handle)
		handles[i], all[i] = e.handle, e.vitals
	}
	s.live, s.order, s.vitals = insert(s.live, places, s.begun), insert(s.order, places, handles), insert(s.vitals, places, all)
	s.scattered = true
	s.reordered++
	clear(s.begun)
	s.begun = s.begun[:0]
}

// insert inserts added[i] before all[places[i]], for all i at once. The places ascend.
func insert[E any](all []E, places []int, added []E) []E {
	end := len(all)
	all = slices.Grow(all, len(added))[:end+len(added)]
	for i, place := range slices.Backward(places) {
		copy(all[place+i+1:], all[place:end])
		all[place+i] = added[i]
		end = place
	}
	return all
}

// census counts the live nodes, without this one, for questions of every turn, and their
// clocks relative to the cluster's.
type census struct {
	all            int
	active         int // Active or Draining
	reachable      int // have an address
	earlier, equal int // clocks
}

// tally adds e to the census, or takes it out, if e is another live node. Call it around
// each change of its status, state, clock and record.
func (s *Set) tally(e *entry, by int) {
	if e != s.self && e.status == live {
		s.census.all += by
		if e.state == Active || e.state == Draining {
			s.census.active += by
		}
		if e.rec.Addr != "" {
			s.census.reachable += by
		}
		s.census.clock(e.clock, s.clock, by)
	}
}

// Peers appends to dst the gossip addresses of the other live nodes, by id, and of a
// process that seems to run under this node's id: the answer of that process
// proves that it runs, even if no other node can reach it. O(nodes).
func (s *Set) Peers(dst []string) []string {
	n := s.PeerCount()
	dst = slices.Grow(dst, n)
	for i := range n {
		dst = append(dst, s.Peer(i))
	}
	return dst
}

// PeerCount returns how many addresses Peers returns: O(1).
func (s *Set) PeerCount() int {
	if s.addrOfDuplicate() != "" {
		return s.census.reachable + 1
	}
	return s.census.reachable
}

// Peer returns one of the addresses that Peers returns: O(1), but after a change of the live
// set O(log n), or O(nodes) if nodes are remembered that are not live.
func (s *Set) Peer(i int) string {
	switch all := len(s.nodes) == len(s.live) && s.census.reachable == len(s.live)-1; {
	case i == s.census.reachable:
		return s.addrOfDuplicate()
	case !all:
		return s.reachable()[i].rec.Addr
	}
	if s.place < 0 {
		s.place, _ = s.searchNode(s.self.rec.ID)
	}
	if i >= s.place {
		i++
	}
	return s.nodes[i].rec.Addr
}

// reachable returns the other live nodes with an address, by id.
func (s *Set) reachable() []*entry {
	if s.peers == nil {
		s.peers = make([]*entry, 0, s.census.reachable)
		for _, e := range s.nodes {
			if e.status == live && e != s.self && e.rec.Addr != "" {
				s.peers = append(s.peers, e)
			}
		}
	}
	return s.peers
}

func (s *Set) addrOfDuplicate() string {
	if r := s.duplicate.entry; r != nil && r.rec.Addr != s.self.rec.Addr {
		return r.rec.Addr
	}
	return ""
}

// candidate is a node that a message may be about. Of many, those come first that were sent
// least, then those with the latest rows. It has no pointer: most candidates of a large set
// are replaced, which would cost the garbage collector more than the comparison.
type candidate struct {
	sent   int32
	at     Stamp
	handle Handle
	place  int // among the live nodes, or behind them, among the departed ones
}

func (c candidate) before(o candidate) bool {
	switch {
	case c.sent != o.sent:
		return c.sent < o.sent
	case c.at != o.at:
		return c.at > o.at
	}
	return c.handle < o.handle
}

// consider adds c to the candidates, which are at most maxRows.
func (s *Set) consider(c candidate) {
	if len(s.candidates) == maxRows {
		if !c.before(s.candidates[maxRows-1]) {
			return
		}
		s.candidates = s.candidates[:maxRows-1]
	}
	place := sort.Search(len(s.candidates), func(i int) bool { return c.before(s.candidates[i]) })
	s.candidates = slices.Insert(s.candidates, place, c)
}

// selected returns the candidates in order. The result is valid until the next call.
func (s *Set) selected(departed []*entry) []*entry {
	clear(s.rows) // do not keep forgotten nodes in memory
	s.rows = s.rows[:0]
	for _, c := range s.candidates {
		if c.place < len(s.live) {
			s.rows = append(s.rows, s.live[c.place])
		} else {
			s.rows = append(s.rows, departed[c.place-len(s.live)])
		}
	}
	return s.rows
}

// departed returns the nodes that have sent a leave message: O(1) while all nodes that are
// remembered are live, otherwise O(nodes).
func (s *Set) departed() (left []*entry) {
	if len(s.nodes) == len(s.live) {
		return nil
	}
	for _, e := range s.nodes {
		if e.left() {
			left = append(left, e)
		}
	}
	return left
}
