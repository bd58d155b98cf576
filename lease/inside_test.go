package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// These are the helpers of the tests inside the package: of the wire format, of models that copy sets, and of single
// protocols. All other tests are outside, with helper_test.go.

// epoch is the start of most tests. It is a whole millisecond, as on the wire.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

var testParams = Params{TTL: 6 * time.Second, MaxSkew: 5 * time.Second, Settings: 77}

// rec returns a plausible record.
func rec(id NodeID, incarnation uint64) *Record {
	return &Record{
		Profile: Profile{ID: id, Incarnation: incarnation, Addr: string(id) + ":7946", Weight: 1}, Version: 1,
	}
}

// with returns a changed copy of r, one version later.
func (r *Record) with(change func(*Record)) *Record {
	c := r.clone()
	c.Version++
	change(c)
	return c
}

// heavier returns the next version of r.
func (r *Record) heavier() *Record { return r.with(func(r *Record) { r.Weight++ }) }

// stampAt returns the cluster time at an instant by the clock of the tests.
func stampAt(at time.Time) Stamp { return Stamp(at.UnixMilli()) }

// sent returns a heartbeat of r, in state Active, sent at an instant.
func (r *Record) sent(at time.Time) Heartbeat {
	return Heartbeat{Handle: r.Handle(), At: stampAt(at), State: Active, Version: r.Version, Load: 7}
}

// as returns b with another state.
func (b Heartbeat) as(s State) Heartbeat {
	b.State = s
	return b
}

// messageFrom returns a message that from, which is trusted, sends at the instant at: its
// records, then its heartbeats.
func messageFrom(at time.Time, from *Record, heartbeats []Heartbeat, records ...*Record) *Message {
	trust(from.Handle())
	return &Message{
		Settings: testParams.Settings, From: from.Handle(), Stamp: stampAt(at), SentAt: at,
		Heartbeats: heartbeats, Records: records,
	}
}

// by returns m as sent by a node with a wall clock that is ahead by d.
func (m *Message) by(d time.Duration) *Message {
	m.SentAt = m.SentAt.Add(d)
	return m
}

// hello returns the first message of a node, sent with its heartbeat.
func hello(at time.Time, r *Record) *Message { return messageFrom(at, r, []Heartbeat{r.sent(at)}, r) }

// leave returns a message with the last heartbeat of a node.
func leave(at time.Time, r *Record) *Message {
	return messageFrom(at, r, []Heartbeat{r.sent(at).as(Left)})
}

func newSet(r *Record) *Set { return startSet(epoch, r, testParams) }

// startSet returns the set of a member that is Active from its first heartbeat.
func startSet(now time.Time, r *Record, p Params) *Set {
	s := NewSet(now, *r, p)
	s.Establish()
	s.state, s.self.state = Active, Active
	s.runs = trusted
	trust(s.self.handle)
	return s
}

// trusted are the senders of messageFrom and the nodes of startSet: they count as if they had just answered a
// challenge.
var trusted = make(map[Handle]time.Time)

// trust makes the messages of a node count in the sets of startSet, also later in the test.
func trust(h Handle) { trusted[h] = epoch.AddDate(1000, 0, 0) }

// carry encodes and decodes m.
func carry(tb testing.TB, m *Message) *Message {
	tb.Helper()
	got, err := Decode(Encode(m))
	if err != nil {
		tb.Fatalf("Decode(Encode(m)): %v", err)
	}
	return got
}

// ids returns the live nodes in the view of s, as id/incarnation.
func ids(s *Set) []string {
	var out []string
	for _, m := range s.View().Members {
		out = append(out, fmt.Sprintf("%s/%d", m.ID, m.Incarnation))
	}
	return out
}

func wantIDs(tb testing.TB, s *Set, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, ids(s)); diff != "" {
		tb.Fatalf("live set (-want +got):\n%s", diff)
	}
}

// member returns id as the view of s has it, or nil.
func member(s *Set, id NodeID) *Member {
	v := s.View()
	for i := range v.Members {
		if v.Members[i].ID == id {
			return &v.Members[i]
		}
	}
	return nil
}

func (s status) String() string {
	return [...]string{"pending", "live", "expired", "retired"}[s]
}

// crowd returns a set of n nodes, its own node included.
func crowd(n int) *Set {
	s := newSet(rec("node-0000", 1))
	for i := range n - 1 {
		r := rec(NodeID(fmt.Sprintf("node-%04d", i+1)), 1)
		r.APIAddr, r.Zone, r.Capacity = "https://"+r.Addr, "eu-1", 2450
		m := messageFrom(epoch, r, []Heartbeat{r.sent(epoch.Add(-time.Duration(i%2000) * ms))}, r)
		s.Apply(epoch, m.by(time.Duration(i%20)*ms))
	}
	return s
}

// flood makes a live member send n rows, in messages of 1,000.
func flood(s *Set, now time.Time, from *Record, n int, row func(i int, m *Message)) {
	for i := 0; i < n; {
		m := messageFrom(now, from, nil)
		for ; i < n && len(m.Heartbeats)+len(m.Records)+len(m.Ages) < 1000; i++ {
			row(i, m)
		}
		s.Apply(now, m)
	}
}
