package lease_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/lease"
)

// epoch is the start of most tests. It is a whole millisecond, as on the wire.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

var testParams = lease.Params{TTL: 6 * time.Second, MaxSkew: 5 * time.Second, Settings: 77}

// failer is a *testing.T, *testing.B or *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// rec returns a valid record.
func rec(id lease.NodeID, incarnation uint64) *lease.Record {
	return &lease.Record{
		Profile: lease.Profile{ID: id, Incarnation: incarnation, Addr: string(id) + ":7946", Weight: 1}, Version: 1,
	}
}

// with returns a changed copy of r with the next version.
func with(r *lease.Record, change func(*lease.Record)) *lease.Record {
	c := *r
	c.Labels = maps.Clone(r.Labels)
	c.Version++
	change(&c)
	return &c
}

// heavier returns the next version of r, with a higher weight.
func heavier(r *lease.Record) *lease.Record {
	return with(r, func(r *lease.Record) { r.Weight++ })
}

// stampAt returns the cluster time at a time of the tests' clock.
func stampAt(at time.Time) lease.Stamp { return lease.Stamp(at.UnixMilli()) }

func millis(s lease.Stamp) time.Duration { return time.Duration(s) * ms }

func stamps(d time.Duration) lease.Stamp { return lease.Stamp(d / ms) }

// forgetAfter is how long a set remembers an ended lease.
func forgetAfter(p lease.Params) time.Duration { return max(time.Minute, 10*p.TTL) }

// sent returns a heartbeat of r that was sent at the given time, in state Active.
func sent(r *lease.Record, at time.Time) lease.Heartbeat {
	return lease.Heartbeat{Handle: r.Handle(), At: stampAt(at), State: lease.Active, Version: r.Version, Load: 7}
}

// as returns b with another state.
func as(b lease.Heartbeat, s lease.State) lease.Heartbeat {
	b.State = s
	return b
}

// messageFrom returns a message with records and heartbeats that from sends at the given time. It also makes from
// trusted.
func messageFrom(at time.Time, from *lease.Record, heartbeats []lease.Heartbeat, records ...*lease.Record) *lease.Message {
	trust(from.Handle())
	return &lease.Message{
		Settings: testParams.Settings, From: from.Handle(), Stamp: stampAt(at), SentAt: at,
		Heartbeats: heartbeats, Records: records,
	}
}

// by changes m as if the sender's wall clock were ahead by d, and returns it.
func by(m *lease.Message, d time.Duration) *lease.Message {
	m.SentAt = m.SentAt.Add(d)
	return m
}

// hello returns the first message of a node, sent with its heartbeat.
func hello(at time.Time, r *lease.Record) *lease.Message {
	return messageFrom(at, r, []lease.Heartbeat{sent(r, at)}, r)
}

// leave returns the leave message of a node.
func leave(at time.Time, r *lease.Record) *lease.Message {
	return messageFrom(at, r, []lease.Heartbeat{as(sent(r, at), lease.Left)})
}

func newSet(r *lease.Record) *lease.Set { return startSet(epoch, r, testParams) }

// startSet returns the set of a member that is Active since its first heartbeat.
func startSet(now time.Time, r *lease.Record, p lease.Params) *lease.Set {
	s := lease.NewSet(now.Add(-ms), *r, p)
	s.Believe(trusted)
	s.Establish()
	return activate(now, s)
}

func activate(now time.Time, s *lease.Set) *lease.Set {
	s.SetState(lease.Active)
	s.Heartbeat(now, lease.NoLoad, 0)
	s.Lost()
	trust(s.Handle())
	return s
}

// trusted are the senders of messageFrom and the nodes of startSet. They count as if they had just answered a
// challenge.
var trusted = make(map[lease.Handle]time.Time)

// trust makes the messages of a node count in the sets of startSet for the rest of the test.
func trust(h lease.Handle) { trusted[h] = epoch.AddDate(1000, 0, 0) }

// offSet returns the set of a member whose wall clock is ahead by d.
func offSet(now time.Time, d time.Duration, r *lease.Record) *lease.Set {
	began := now.Add(d - ms)
	s := lease.NewSet(began, *r, testParams)
	s.Believe(trusted)
	m := messageFrom(now.Add(-ms), rec("a-member", 1), nil)
	m.Echo = s.Challenge(began, 7).Challenge
	s.Apply(began, m)
	return activate(now.Add(d), s)
}

// request returns the request that s sends because of a message with effect e, or nil.
func request(s *lease.Set, now time.Time, from lease.Handle, e lease.Effect) *lease.Message {
	for _, r := range s.Replies(now, &lease.Message{From: from}, e, 1400) {
		if len(r.PullRecords)+len(r.PullBuckets) > 0 {
			return r.Message
		}
	}
	return nil
}

// answer returns the messages that answer the pulls of m.
func answer(s *lease.Set, now time.Time, m *lease.Message, budget int) (messages []*lease.Message) {
	for _, r := range s.Replies(now, m, lease.Effect{Counts: true}, budget) {
		messages = append(messages, r.Message)
	}
	return messages
}

// answerExpired returns the answer to a sender that is not live, or that is behind in cluster time, and the sender's
// address.
func answerExpired(s *lease.Set, now time.Time, sender lease.Handle, behind bool) (string, *lease.Message) {
	m, e := &lease.Message{From: sender, Settings: testParams.Settings}, lease.Effect{}
	if behind {
		m.Stamp = s.Stamp(now.Add(-testParams.TTL - ms))
		e = s.Apply(now, m)
	}
	for _, r := range s.Replies(now, m, e, 1400) {
		return r.To, r.Message
	}
	return "", nil
}

// carry encodes and decodes m, as if it travelled over the wire.
func carry(tb failer, m *lease.Message) *lease.Message {
	tb.Helper()
	got, err := lease.Decode(lease.Encode(m))
	if err != nil {
		tb.Fatalf("Decode(Encode(m)): %v", err)
	}
	return got
}

// ids returns the live nodes in the view of s, in the form id/incarnation.
func ids(s *lease.Set) []string {
	var out []string
	for _, m := range s.View().Members {
		out = append(out, fmt.Sprintf("%s/%d", m.ID, m.Incarnation))
	}
	return out
}

func wantIDs(tb testing.TB, s *lease.Set, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(want, ids(s)); diff != "" {
		tb.Fatalf("live set (-want +got):\n%s", diff)
	}
}

// member returns the member with this id in the view of s, or nil.
func member(s *lease.Set, id lease.NodeID) *lease.Member {
	v := s.View()
	for i := range v.Members {
		if v.Members[i].ID == id {
			return &v.Members[i]
		}
	}
	return nil
}

// crowd returns a set of n nodes, including its own node.
func crowd(n int) *lease.Set {
	s := newSet(rec("node-0000", 1))
	for i := range n - 1 {
		r := rec(lease.NodeID(fmt.Sprintf("node-%04d", i+1)), 1)
		r.APIAddr, r.Zone, r.Capacity = "https://"+r.Addr, "eu-1", 2450
		m := messageFrom(epoch, r, []lease.Heartbeat{sent(r, epoch.Add(-time.Duration(i%2000)*ms))}, r)
		s.Apply(epoch, by(m, time.Duration(i%20)*ms))
	}
	return s
}

// many returns a set of n nodes that has sent all its news.
func many(n int) *lease.Set {
	s := newSet(rec("a", 1))
	flood(s, epoch, s.Self(), n-1, func(i int, m *lease.Message) {
		r := rec(lease.NodeID(fmt.Sprintf("node-%d", i)), 1)
		m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, sent(r, epoch))
	})
	for s.Compose(epoch, 64<<10, 1000) != nil {
	}
	return s
}

// asksBack returns the request in which s describes all nodes that it knows. It sends this request if a member has
// pulled a bucket and knows a node that s lacks.
func asksBack(s *lease.Set, now time.Time, member *lease.Record) *lease.Message {
	m := messageFrom(now, member, nil)
	m.PullBuckets = []lease.BucketDigest{{Hashes: []uint32{1}}}
	return request(s, now, m.From, s.Apply(now, m))
}

// wantLiveInOrder checks that several methods of s agree about its live nodes.
func wantLiveInOrder(tb failer, s *lease.Set) {
	tb.Helper()
	var handles []lease.Handle
	var peers []string
	active := false
	for _, m := range s.View().Members {
		handles = append(handles, m.Handle)
		if s.AddrOf(m.Handle) != m.Addr {
			tb.Fatalf("%s is at %q by its handle, at %q in the view", m.ID, s.AddrOf(m.Handle), m.Addr)
		}
		if m.ID != s.Self().ID {
			if m.Addr != "" {
				peers = append(peers, m.Addr)
			}
			active = active || m.State == lease.Active || m.State == lease.Draining
		}
	}
	slices.Sort(handles)
	if got := s.Handles(); !slices.Equal(got, handles) || s.Live() != len(handles) {
		tb.Fatalf("%d live, handles %v, in the view %v", s.Live(), got, handles)
	}
	if got := s.Peers(nil); !slices.Equal(got, peers) || s.OthersActive() != active {
		tb.Fatalf("the peers are %v, in the view %v; active: %v", got, peers, s.OthersActive())
	}
}

// peerOf returns the set of node z. It knows everything that s knows, and s knows z.
func peerOf(s *lease.Set, now time.Time) *lease.Set {
	z := startSet(now, rec("z", 1), testParams)
	s.Apply(now, z.Sync(now))
	z.Apply(now, s.Sync(now))
	return z
}

// inBucket returns the live nodes in a bucket.
func inBucket(s *lease.Set, id lease.BucketID) (handles []lease.Handle) {
	for _, h := range s.Handles() {
		if uint32(h>>(48-id.Bits)) == id.Index {
			handles = append(handles, h)
		}
	}
	return handles
}

func manyLabels(n, size int) map[string]string {
	labels := make(map[string]string)
	for i := range n {
		labels[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", size)
	}
	return labels
}
