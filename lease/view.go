package lease

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Member is what a View tells of one live node.
type Member struct {
	*Record
	Handle  Handle
	State   State
	Seq     uint32
	Renewed time.Time     // when the lease was last renewed, by the viewer's clock
	Clock   time.Duration // the node's wall clock minus the viewer's
	Load    int64         // units, or NoLoad
	Table   uint32        // digest of the node's placement table
}

// Candidate reports whether the node may own partitions.
func (m *Member) Candidate() bool { return m.State == Active && m.Weight > 0 }

// View is the live set at one moment. It is immutable.
type View struct {
	Members []Member // sorted by id; the viewing node is always one of them
	Digest  uint64   // equal for equal sets of (id, incarnation, record version, state)
}

// View returns the live set: O(n log n).
func (s *Set) View() *View {
	v := &View{Members: make([]Member, 0, len(s.byID))}
	for _, e := range s.byID {
		if e.status == live {
			v.Members = append(v.Members, Member{
				Record: e.rec, Handle: e.handle, State: e.state, Seq: e.seq, Renewed: e.renewed,
				Clock: e.clock, Load: e.load, Table: e.table,
			})
		}
	}
	slices.SortFunc(v.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
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
	v.Digest = d.Sum64()
	return v
}

// Peers appends to dst the gossip addresses of the live nodes other than this
// one, and of a process that seems to run under this node's id: its answer proves
// that it lives, even where nobody else could tell. The order is arbitrary.
func (s *Set) Peers(dst []string) []string {
	for _, e := range s.byID {
		if e.status == live && e != s.self && e.rec.Addr != "" {
			dst = append(dst, e.rec.Addr)
		}
	}
	if r := s.duplicate.entry; r != nil && r.rec.Addr != "" && r.rec.Addr != s.self.rec.Addr {
		dst = append(dst, r.rec.Addr)
	}
	return dst
}

// Lost appends to dst the gossip addresses of nodes whose leases ran out and
// that are not forgotten yet: whom to try after a split.
func (s *Set) ExpiredAddrs(dst []string) []string {
	for _, e := range s.byID {
		if e.status == expired && e.rec.Addr != "" {
			dst = append(dst, e.rec.Addr)
		}
	}
	return dst
}

// ExpiredHandles returns the handles of the nodes whose leases ran out and that are not
// forgotten yet: whom to ask others for. O(nodes).
func (s *Set) ExpiredHandles() []Handle {
	var missing []Handle
	for _, e := range s.byID {
		if e.status == expired {
			missing = append(missing, e.handle)
		}
	}
	return missing
}

// AddrOf returns the gossip address behind a handle, or "" if it is not live.
func (s *Set) AddrOf(h Handle) string {
	if e := s.known[h]; e != nil && e.status == live {
		return e.rec.Addr
	}
	return ""
}
