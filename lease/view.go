package lease

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Member is one live node in a View.
type Member struct {
	*Record
	Handle   Handle
	Renewed  time.Time     // of the lease, by the viewer's clock: without news, it ends a TTL later
	Clock    time.Duration // the node's wall clock minus the viewer's
	Load     int64         // units, or NoLoad
	Table    uint32        // digest of the node's placement table
	State    State         // Draining if the node is active, and cordoned or due to drain by its record
	Cordoned bool          // it is active, and shows as Draining because it is cordoned
}

// Candidate reports whether the node may own partitions.
func (m *Member) Candidate() bool { return m.State == Active && m.Weight > 0 }

// View is the live set at one moment. It is immutable.
type View struct {
	Members  []Member // sorted by id; this node is always included
	Cordoned []Cordon // in force, by id, also of nodes that are not live

	// Crashed are incarnations whose failure was confirmed within the last TTL or so: their
	// processes have ended. Nodes that may merely be out of reach are not among them.
	Crashed []Incarnation

	// Left are incarnations that sent a leave message, and that are not forgotten yet: for a minute, or for ten TTLs if
	// those are longer. Their processes are certain to end, if they have not yet.
	Left []Incarnation

	// Ahead has the nodes with heartbeats that are rejected, and by how much their clocks are ahead of the cluster's.
	Ahead map[NodeID]time.Duration

	// Spared says that cordons have no effect at present: they would leave no candidate.
	Spared bool

	time clusterTime
}

// Local returns when it is a moment of cluster time, by the viewer's clock.
func (v *View) Local(at Stamp) time.Time { return v.time.local(at) }

// Reason is why an incarnation is not live any more.
type Reason string

// The reasons.
const (
	Departed Reason = "left"     // it sent a leave message
	Crashed  Reason = "crashed"  // watchers have confirmed its failure
	Expired  Reason = "expired"  // its lease ran out
	Replaced Reason = "replaced" // a later incarnation of the node is live
)

// Ended returns why incarnations ended that are not forgotten yet: O(1) if there are none,
// otherwise O(nodes).
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

// View returns the live set: O(n).
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

// shownState returns the state of a live node to which its planned drain applies, and cordons unless they are spared.
func (s *Set) shownState(e *entry, spared bool) State {
	if e.state == Active && (s.drains.begun(e.rec) || !spared && s.cordons.holds(e.rec.ID)) {
		return Draining
	}
	return e.state
}

// States yields the records and states of the live nodes, this one among them, by id, as View
// shows them: O(nodes), without an allocation.
func (s *Set) States(yield func(*Record, State) bool) {
	spared := len(s.cordons.inForce) > 0 && s.spared()
	for _, e := range s.nodes {
		if e.status == live && !yield(e.rec, s.shownState(e, spared)) {
			return
		}
	}
}

// Members yields the records of the live nodes, this one among them, by id: O(nodes), without
// a View.
func (t *table) Members(yield func(*Record) bool) {
	for _, e := range t.nodes {
		if e.status == live && !yield(e.rec) {
			return
		}
	}
}

// Live returns the number of live nodes, this one among them: O(1).
func (t *table) Live() int { return len(t.live) }

// Handles returns the live nodes, this one among them, in order. It shares memory with
// the set, which changes it later. O(1).
func (t *table) Handles() []Handle { return t.order }

// Differing returns how many other members compute another table than the one of a
// digest. Settling members have none yet. O(n).
func (t *table) Differing(table uint32) (members int) {
	for _, v := range t.vitals {
		if v != t.self.vitals && v.state != Settling && v.table != table {
			members++
		}
	}
	return members
}

// Left reports whether an incarnation sent a leave message: its process is certain to end.
func (t *table) Left(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.left()
}

// Refused reports whether the lease of an incarnation ended because its watchers were refused connections. A
// process that fell silent may be cut off; this one, too, if a firewall refuses in its place.
func (t *table) Refused(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.crashed && e.refused
}

// Candidates returns how many other live nodes may own partitions at present, and how many
// live nodes, this one among them, have a weight to do so. O(n).
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

// OthersActive reports whether another live node is Active or Draining: O(1).
func (t *table) OthersActive() bool { return t.census.active > 0 }

// Active returns the other live nodes that are Active or Draining: O(n).
func (t *table) Active() (ids []NodeID) {
	for _, e := range t.live {
		if e != t.self && (e.state == Active || e.state == Draining) {
			ids = append(ids, e.rec.ID)
		}
	}
	return ids
}

// Outnumbered reports whether more nodes have expired than are live, or as many with the
// smallest id among them: then it is this side that is cut off, rather than the other one.
// O(1) while few leases have ended.
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

// Lost reports whether any member ended, changed its record, or stopped being Active since
// the last call.
func (t *table) Lost() (lost bool) {
	lost, t.lost = t.lost, false
	return lost
}

// Digest is equal for equal sets of (id, incarnation, record version, state): O(n).
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

// ExpiredAddrs appends to dst the gossip addresses of expired nodes that are not
// forgotten yet, to be contacted after a network split.
func (t *table) ExpiredAddrs(dst []string) []string {
	for _, e := range t.nodes {
		if e.status == expired && e.rec.Addr != "" {
			dst = append(dst, e.rec.Addr)
		}
	}
	return dst
}

// ExpiredHandles returns the handles of expired nodes that are not forgotten yet. Other
// nodes may have their records. O(nodes).
func (t *table) ExpiredHandles() []Handle {
	var missing []Handle
	for _, e := range t.nodes {
		if e.status == expired {
			missing = append(missing, e.handle)
		}
	}
	return missing
}
