package lease

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Member is a live node in a View.
type Member struct {
	*Record
	Handle   Handle
	Renewed  time.Time     // when the node renewed its lease, by the viewer's clock; the lease ends a TTL later
	Clock    time.Duration // the node's wall clock minus the viewer's
	Load     int64         // units, or NoLoad
	Table    uint32        // digest of the node's placement table
	State    State         // also Draining if the node is Active but cordoned, or if its planned drain has begun
	Cordoned bool          // the node is Active, but shown as Draining because it is cordoned
}

// Candidate reports whether the node can own partitions.
func (m *Member) Candidate() bool { return m.State == Active && m.Weight > 0 }

// View is the live set at one moment. It is immutable.
type View struct {
	Members  []Member // sorted by id; this node is always included
	Cordoned []Cordon // active cordons, sorted by id, including those of nodes that are not live

	// Crashed lists the incarnations whose failure was confirmed within about the last TTL, and whose
	// processes have certainly ended. It does not include nodes that may only be unreachable.
	Crashed []Incarnation

	// Left lists the incarnations that sent a leave message within the last minute or the last ten TTLs,
	// whichever is longer. Their processes have ended or are about to end.
	Left []Incarnation

	// Ahead lists the nodes whose heartbeats this node rejects, and how far their clocks are ahead of the
	// cluster's.
	Ahead map[NodeID]time.Duration

	// Spared means that cordons currently have no effect, because otherwise no node could own partitions.
	Spared bool

	time clusterTime
}

// Local converts a cluster time to the viewer's clock.
func (v *View) Local(at Stamp) time.Time { return v.time.local(at) }

// Reason is why an incarnation is no longer live.
type Reason string

// The reasons.
const (
	Departed Reason = "left"     // it sent a leave message
	Crashed  Reason = "crashed"  // watchers have confirmed its failure
	Expired  Reason = "expired"  // its lease ran out
	Replaced Reason = "replaced" // a later incarnation of the node is live
)

// Ended returns the ended incarnations that the set still remembers, and why each of them ended. It costs
// O(nodes), or O(1) if there are none.
func (t *table) Ended() map[Incarnation]Reason {
	if len(t.known) == len(t.live) {
		return nil
	}
	ended := make(map[Incarnation]Reason)
	for _, e := range t.known {
		if e.status != live && e.hadLease() {
			ended[e.incarnation()] = e.reason()
		}
	}
	return ended
}

func (e *entry) reason() Reason {
	switch {
	case e.left():
		return Departed
	case e.crashed:
		return Crashed
	case e.status == retired:
		return Replaced
	}
	return Expired
}

// View returns the live set. It costs O(n).
func (s *Set) View() *View {
	v := &View{
		Members: make([]Member, 0, len(s.live)), Cordoned: s.cordons.inForce,
		Crashed: s.crashed(), Left: incarnationsOf(s.departed()), Ahead: s.Ahead(), time: s.time,
	}
	v.Spared = len(v.Cordoned) > 0 && s.spared()
	for _, e := range s.nodes {
		if e.status == live {
			state := s.shownState(e, v.Spared)
			v.Members = append(v.Members, Member{
				Record: e.rec, Handle: e.handle, State: state, Cordoned: state != e.state && !s.drains.begun(e.rec),
				Renewed: s.time.local(e.renewed()), Clock: e.clock, Load: e.load, Table: e.table,
			})
		}
	}
	return v
}

func incarnationsOf(entries []*entry) []Incarnation {
	if len(entries) == 0 {
		return nil
	}
	all := make([]Incarnation, len(entries))
	for i, e := range entries {
		all[i] = e.incarnation()
	}
	return all
}

// shownState returns the state of a live node as a View shows it. The node is Draining once its planned drain
// has begun. It is also Draining while it is cordoned, except if spared is set.
func (s *Set) shownState(e *entry, spared bool) State {
	if e.state == Active && (s.drains.begun(e.rec) || !spared && s.cordons.holds(e.rec.ID)) {
		return Draining
	}
	return e.state
}

// States yields the records and states of the live nodes including this one, sorted by id, as in View. It
// costs O(nodes) and does not allocate.
func (s *Set) States(yield func(*Record, State) bool) {
	spared := len(s.cordons.inForce) > 0 && s.spared()
	for _, e := range s.nodes {
		if e.status == live && !yield(e.rec, s.shownState(e, spared)) {
			return
		}
	}
}

// Members yields the records of the live nodes including this one, sorted by id. It costs O(nodes) and needs
// no View.
func (t *table) Members(yield func(*Record) bool) {
	for _, e := range t.nodes {
		if e.status == live && !yield(e.rec) {
			return
		}
	}
}

// Live returns the number of live nodes including this one. It costs O(1).
func (t *table) Live() int { return len(t.live) }

// Handles returns the handles of the live nodes including this one, in order. The next change of the set
// overwrites the slice. It costs O(1).
func (t *table) Handles() []Handle { return t.order }

// Differing returns how many other members have a table whose digest differs from the given digest. It
// ignores Settling members, which have no table yet. It costs O(n).
func (t *table) Differing(table uint32) (members int) {
	for _, v := range t.vitals {
		if v != t.self.vitals && v.state != Settling && v.table != table {
			members++
		}
	}
	return members
}

// Left reports whether an incarnation sent a leave message. The process has then ended or is about to end.
func (t *table) Left(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.left()
}

// Refused reports whether the lease of an incarnation ended because its watchers were refused connections. It
// does not prove that the process has ended, because a firewall can refuse connections in its place.
func (t *table) Refused(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.crashed && e.refused
}

// Candidates returns how many other live nodes can own partitions now, and how many live nodes, including
// this node, have a weight above 0. It costs O(n).
func (s *Set) Candidates() (others, all int) {
	spared := s.spared()
	for _, e := range s.live {
		if e.rec.Weight == 0 {
			continue
		}
		all++
		if e != s.self && s.shownState(e, spared) == Active {
			others++
		}
	}
	return others, all
}

// OthersActive reports whether another live node is Active or Draining. It costs O(1).
func (t *table) OthersActive() bool { return t.census.active > 0 }

// Active returns the other live nodes that are Active or Draining. It costs O(n).
func (t *table) Active() (ids []NodeID) {
	for _, e := range t.live {
		if e != t.self && (e.state == Active || e.state == Draining) {
			ids = append(ids, e.rec.ID)
		}
	}
	return ids
}

// Outnumbered reports whether this side of a split is probably the minority, because more nodes have expired
// than are live. If the numbers are equal, the side without the smallest id is the minority. Outnumbered
// costs O(1) while few leases have ended, otherwise O(nodes).
func (t *table) Outnumbered() bool {
	if len(t.known)-len(t.live) < len(t.live) {
		return false
	}
	ended, first := 0, NodeID("")
	for _, e := range slices.Backward(t.nodes) {
		if e.status == expired {
			ended++
		}
		if e.status == expired || e.status == live {
			first = e.rec.ID
		}
	}
	return ended > len(t.live) || (ended == len(t.live) && t.latest(first).status == expired)
}

// Lost reports whether, since the last call, the lease of a member ended, or a member changed its record or stopped
// being Active.
func (t *table) Lost() (lost bool) {
	lost, t.lost = t.lost, false
	return lost
}

// Digest returns a hash of the members' ids, incarnations, record versions and states. It costs O(n).
func (v *View) Digest() uint64 {
	var d xxhash.Digest
	d.Reset()
	for i := range v.Members {
		m := &v.Members[i]
		var b [14]byte
		b[0] = byte(len(m.ID))
		binary.BigEndian.PutUint64(b[1:], m.Incarnation)
		binary.BigEndian.PutUint32(b[9:], m.Version)
		b[13] = byte(m.State)
		_, _ = d.Write(b[:])
		_, _ = d.WriteString(string(m.ID))
	}
	return d.Sum64()
}

// ExpiredAddrs appends to dst the gossip addresses of the expired nodes that the set still remembers. Nodes
// contact these addresses to end a network split.
func (t *table) ExpiredAddrs(dst []string) []string {
	for _, e := range t.nodes {
		if e.status == expired && e.rec.Addr != "" {
			dst = append(dst, e.rec.Addr)
		}
	}
	return dst
}

// ExpiredHandles returns the handles of the expired nodes that the set still remembers. It costs O(nodes).
func (t *table) ExpiredHandles() []Handle {
	var missing []Handle
	for _, e := range t.nodes {
		if e.status == expired {
			missing = append(missing, e.handle)
		}
	}
	return missing
}
