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
	Renewed  time.Time     // when the lease was renewed, by the viewer's clock; it ends a TTL later
	Clock    time.Duration // the node's wall clock minus the viewer's
	Load     int64         // units, or NoLoad
	Table    uint32        // digest of the node's placement table
	State    State         // Draining also if the node is active but cordoned, or due to drain by its record
	Cordoned bool          // it is active but shows as Draining because it is cordoned
}

// Candidate reports whether the node may own partitions.
func (m *Member) Candidate() bool { return m.State == Active && m.Weight > 0 }

// View is the live set at one moment. It is immutable.
type View struct {
	Members  []Member // sorted by id; this node is always included
	Cordoned []Cordon // active cordons, sorted by id, including those of nodes that are not live

	// Crashed has incarnations whose failure was confirmed within about the last TTL. Their processes have
	// ended. Nodes that may only be out of reach are not included.
	Crashed []Incarnation

	// Left has incarnations that sent a leave message, for a minute or ten TTLs, whichever is longer. Their
	// processes have ended or are about to end.
	Left []Incarnation

	// Ahead has the nodes whose heartbeats are rejected, and by how much their clocks are ahead of the
	// cluster's.
	Ahead map[NodeID]time.Duration

	// Spared says that cordons have no effect at present, because otherwise there would be no candidate.
	Spared bool

	time clusterTime
}

// Local converts a moment of cluster time to the viewer's clock.
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

// Ended returns why incarnations ended, for those that are not forgotten yet. It costs O(1) if there are
// none, otherwise O(nodes).
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

// shownState returns the state of a live node after applying its planned drain and, unless cordons are
// spared, its cordon.
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

// Handles returns the handles of the live nodes including this one, in order. The set changes the slice with
// its next change. It costs O(1).
func (t *table) Handles() []Handle { return t.order }

// Differing returns how many other members have a table with a digest other than the given one. Settling
// members have no table yet and don't count. It costs O(n).
func (t *table) Differing(table uint32) (members int) {
	for _, v := range t.vitals {
		if v != t.self.vitals && v.state != Settling && v.table != table {
			members++
		}
	}
	return members
}

// Left reports whether an incarnation sent a leave message, so that its process has ended or is about to end.
func (t *table) Left(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.left()
}

// Refused reports whether the lease of an incarnation ended because its watchers were refused connections. A
// process that fell silent may be only cut off. So may this one, if a firewall refuses connections in its
// place.
func (t *table) Refused(i Incarnation) bool {
	e := t.known[i.Handle()]
	return e != nil && e.crashed && e.refused
}

// Candidates returns how many other live nodes may own partitions at present, and how many live nodes,
// including this one, have a weight above 0. It costs O(n).
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

// Outnumbered reports whether more nodes have expired than are live, or as many, including the one with the
// smallest id. Then this side is probably the one that is cut off. It costs O(1) while few leases have ended.
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

// Lost reports whether a member ended, changed its record, or stopped being Active since the last call.
func (t *table) Lost() (lost bool) {
	lost, t.lost = t.lost, false
	return lost
}

// Digest returns a hash that is equal for equal sets of (id, incarnation, record version, state). It costs
// O(n).
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

// ExpiredAddrs appends to dst the gossip addresses of expired nodes that are not forgotten yet. Nodes contact
// them to end a network split.
func (t *table) ExpiredAddrs(dst []string) []string {
	for _, e := range t.nodes {
		if e.status == expired && e.rec.Addr != "" {
			dst = append(dst, e.rec.Addr)
		}
	}
	return dst
}

// ExpiredHandles returns the handles of expired nodes that are not forgotten yet. Other nodes may have their
// records. It costs O(nodes).
func (t *table) ExpiredHandles() []Handle {
	var missing []Handle
	for _, e := range t.nodes {
		if e.status == expired {
			missing = append(missing, e.handle)
		}
	}
	return missing
}
