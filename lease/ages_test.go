package lease_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

const (
	tick       = lease.Stamp(6000 / 16) // of testParams
	unknownAge = 15                     // ticks
)

// renewed returns the stamps of the latest heartbeats of all live nodes in a set, and of the nodes that left.
func renewed(s *lease.Set, now time.Time) map[lease.Handle]lease.Stamp {
	latest := make(map[lease.Handle]lease.Stamp)
	for _, b := range s.Sync(now).Heartbeats {
		latest[b.Handle] = max(b.At, b.Renewed)
	}
	return latest
}

// agesOnly returns m with only its first row, which is the sender's row, and its ages.
func agesOnly(m *lease.Message) *lease.Message {
	m.Heartbeats, m.Records = m.Heartbeats[:1], nil
	return m
}

// If there is no news, the messages from a single call of Compose contain the ages of all leases, and each message is
// within the budget. A node with the same live set applies all ages, rounded down to ticks.
func TestAgesReachAllLeases(t *testing.T) {
	for _, n := range []int{2, 10, 64, 65, 100, 1000, 4096, lease.MaxNodes} {
		s := many(n - 1)
		z := peerOf(s, epoch)
		for s.Compose(epoch, 64<<10, 1000) != nil { // this includes z's record, so no record takes space from the ages
		}
		now, others := epoch.Add(time.Second), s.View().Members
		flood(s, now, s.Self(), len(others), func(i int, m *lease.Message) {
			b := sent(others[i].Record, epoch)
			b.Renewed = b.At + stamps(time.Second*time.Duration(i%20)/20)
			if b.Handle != s.Handle() {
				m.Heartbeats = append(m.Heartbeats, b)
			}
		})
		s.Heartbeat(now, 0, 0)
		covered, messages := 0, s.Compose(now, 1400, 1)
		for _, m := range messages {
			if size := len(lease.Encode(m)); size > 1400 {
				t.Errorf("%d nodes: %d bytes", n, size)
			}
			for i := range m.Ages {
				covered += m.Ages[i].Nodes
			}
			if e := z.Apply(now, carry(t, m)); e.Changed || request(z, now, s.Handle(), e) != nil {
				t.Fatalf("%d nodes: %+v", n, e)
			}
		}
		t.Logf("%d nodes: %d messages", n, len(messages))
		if covered < n || len(messages) > 1+n/500 {
			t.Errorf("%d of %d ages in %d messages", covered, n, len(messages))
		}
		got := renewed(z, now)
		for h, truth := range renewed(s, now) {
			if want := truth / tick * tick; h != z.Handle() && got[h] != truth && got[h] != max(want, stampAt(epoch)) {
				t.Fatalf("%d nodes: %d renewed %d, want %d rounded down", n, h, got[h], truth)
			}
		}
	}
}

// Nodes relay an age several times, with any delays and with different estimates of cluster time. The age grows by at
// most one tick because of rounding, and a lease never looks younger than it is.
func TestRelayedAgesStayOnTheGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := rec("b", 1), epoch
		chain := make([]*lease.Set, rapid.IntRange(2, 6).Draw(t, "hops"))
		all := []*lease.Record{b}
		for i := range chain {
			all = append(all, rec(lease.NodeID(fmt.Sprintf("r%d", i)), 1))
			chain[i] = newSet(all[i+1])
		}
		for _, s := range chain {
			for _, r := range all {
				s.Apply(now, hello(now, r))
			}
		}
		wait := func(what string) { now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, what)) * ms) }
		wait("until the heartbeat")
		at := now
		chain[0].Apply(now, messageFrom(now, b, []lease.Heartbeat{sent(b, at)}))
		behind := time.Duration(0) // the clock of the set that sends next
		for i, s := range chain[1:] {
			wait("held for")
			m := carry(t, agesOnly(chain[i].Compose(now.Add(-behind), 1400, 1)[0]))
			wait("under way")
			behind = min(time.Duration(rapid.IntRange(0, 300).Draw(t, "behind"))*ms, now.Sub(epoch))
			local := now.Add(-behind)
			was := renewed(s, local)[b.Handle()]
			s.Apply(local, m)
			got := renewed(s, local)[b.Handle()]
			if want := stampAt(at) / tick * tick; got != max(want, was) || got > stampAt(at) {
				t.Fatalf("hop %d: renewed %d, want %d", i, got, want)
			}
		}
	})
}

// Node b, whose table is 7, sends the ages of its bucket to a. Node b knows a later heartbeat of c than a does, and a
// has stored 5 as the table of c.
func TestApplyAges(t *testing.T) {
	c, now := rec("c", 1), epoch.Add(testParams.TTL)
	row := func(at lease.Stamp, table uint32) lease.Heartbeat {
		b := sent(c, epoch)
		b.At, b.Table = at, table
		return b
	}
	hears := func(s *lease.Set, b lease.Heartbeat, records ...*lease.Record) {
		s.Apply(epoch, messageFrom(epoch, rec("b", 1), []lease.Heartbeat{b}, records...))
	}
	latest, first := stampAt(now), stampAt(epoch)
	for _, tc := range []struct {
		name    string
		sent    lease.Heartbeat    // the heartbeat of c that b knows
		known   func(a *lease.Set) // what else a knows
		change  func(m *lease.Bucket)
		renewed bool        // c
		age     lease.Stamp // then, in ticks
		differs bool
		table   uint32 // the table of c that a knows afterwards
	}{
		{name: "the same bucket", sent: row(latest, 5), renewed: true, table: 5},
		{name: "the sender's table", sent: row(latest, 7), renewed: true, table: 7},
		{
			name: "no longer the sender's table", sent: row(latest, 5),
			known: func(a *lease.Set) { hears(a, row(first+1, 7)) }, renewed: true,
		},
		{name: "an unknown age", sent: row(latest-unknownAge*tick, 5), table: 5},
		{
			name: "the least age that is known", sent: row(latest-(unknownAge-1)*tick, 5),
			renewed: true, age: unknownAge - 1, table: 5,
		},
		{name: "no news", sent: row(latest, 5), known: func(a *lease.Set) { hears(a, row(latest, 5)) }, table: 5},
		{
			name: "another state", sent: row(latest, 5),
			known: func(a *lease.Set) { hears(a, as(row(first+1, 5), lease.Draining)) }, differs: true, table: 5,
		},
		{
			name: "another version", sent: row(latest, 5),
			known: func(a *lease.Set) { hears(a, row(first, 5), heavier(c)) }, differs: true, table: 5,
		},
		{
			name: "a node more", sent: row(latest, 5),
			known: func(a *lease.Set) { a.Apply(epoch, hello(epoch, rec("d", 1))) }, differs: true, table: 5,
		},
		{name: "a node less", sent: row(latest, 5), change: func(m *lease.Bucket) { m.Nodes-- }, differs: true, table: 5},
		{name: "another number of buckets", sent: row(latest, 5), change: func(m *lease.Bucket) { m.Bits++ }, differs: true, table: 5},
	} {
		a, b := newSet(rec("a", 1)), newSet(rec("b", 1))
		for _, s := range []*lease.Set{a, b} {
			s.Apply(epoch,
				messageFrom(epoch, c, []lease.Heartbeat{row(first, 5), sent(a.Self(), epoch), sent(b.Self(), epoch)}, c, a.Self(), b.Self()))
		}
		b.Heartbeat(now, 0, 7)
		b.Apply(now, messageFrom(now, c, []lease.Heartbeat{tc.sent}))
		if tc.known != nil {
			tc.known(a)
		}
		m := agesOnly(carry(t, composeOne(b, now, 1)))
		if tc.change != nil {
			tc.change(&m.Ages[0])
		}
		was := renewed(a, epoch)[c.Handle()]
		a.Apply(now, m)
		got, want := renewed(a, now)[c.Handle()], was
		if tc.renewed {
			want = (latest/tick - tc.age) * tick
		}
		if got != want || (a.Stats().AgesApplied == 1) != tc.renewed {
			t.Errorf("%s: c renewed %d after the epoch, want %d", tc.name, got-first, want-first)
		}
		if differs := a.Sizes()["differs"] > 0; differs != tc.differs || member(a, "c").Table != tc.table {
			t.Errorf("%s: differs: %v, table %d", tc.name, differs, member(a, "c").Table)
		}
		if own := renewed(a, now)[a.Handle()]; own != first {
			t.Errorf("%s: ages changed the own lease", tc.name)
		}
	}
}

// A node requests a bucket after the bucket has differed for TTL/30, at most once in TTL/60, and only from live
// senders. The answer repairs the bucket. The node forgets the difference when it receives an equal digest, or no
// different digest for a TTL.
func TestRepair(t *testing.T) {
	s, gone := many(100), rec("gone", 1)
	z := peerOf(s, epoch)
	s.Apply(epoch, hello(epoch, gone))
	wait := testParams.TTL / 30
	hear := func(after time.Duration, from lease.Handle) []lease.BucketDigest {
		now := epoch.Add(after)
		s.Heartbeat(now, 0, 0)
		m := composeOne(s, now, 1)
		m.From, m.Heartbeats, m.Records = from, nil, nil
		if pulls := request(z, now, from, z.Apply(now, m)); pulls != nil {
			return pulls.PullBuckets
		}
		return nil
	}
	for _, tc := range []struct {
		after time.Duration
		pulls bool
	}{{0, false}, {wait - ms, false}, {wait, true}, {3*wait/2 - ms, false}, {3 * wait / 2, true}} {
		got := hear(tc.after, s.Handle())
		if pulls := len(got) == 1 && uint32(gone.Handle()>>(48-got[0].Bits)) == got[0].Index; pulls != tc.pulls || len(got) > 1 {
			t.Errorf("after %v it pulls %v", tc.after, got)
		}
	}
	const later = 1500 * ms
	now, ended := epoch.Add(later), rec("ended", 1)
	trust(ended.Handle())
	if got := hear(later, ended.Handle()); got != nil {
		t.Errorf("pulls from a sender that is not live: %v", got)
	}
	buckets := hear(later, s.Handle())
	answers := answer(s, now, carry(t, z.Request(now, nil, buckets)), 1400)
	for _, m := range answers {
		z.Apply(now, carry(t, m))
	}
	if z.AddrOf(gone.Handle()) == "" || len(buckets) == 0 {
		t.Fatalf("not repaired by %d messages for %v", len(answers), buckets)
	}
	differs := func() int { return z.Sizes()["differs"] }
	if hear(later, s.Handle()); differs() != 0 {
		t.Errorf("%d buckets still differ", differs())
	}
	m := messageFrom(now, s.Self(), nil)
	m.Ages = []lease.Bucket{{Nodes: 9}}
	z.Apply(now, m)
	if z.Expire(now.Add(testParams.TTL)); differs() != 1 {
		t.Error("a difference is forgotten early")
	}
	if z.Expire(now.Add(testParams.TTL + 1)); differs() != 0 {
		t.Error("a difference is not forgotten")
	}
}

// A message pulls at most MaxRepairs buckets and MaxPullLeases leases. The answers are bounded for any message, even if
// it pulls more.
func TestAsksAreBounded(t *testing.T) {
	s := many(lease.MaxNodes / 4)
	now := epoch.Add(testParams.TTL * 3 / 4)
	count := func(messages []*lease.Message) (rows int) {
		for _, m := range messages {
			if size := len(lease.Encode(m)); size > 1400 {
				t.Errorf("an answer of %d bytes", size)
			}
			rows += len(m.Heartbeats) - 1
		}
		return rows
	}
	ask := messageFrom(epoch, s.Self(), nil)
	for i := range uint32(lease.MaxBuckets) {
		ask.PullBuckets = append(ask.PullBuckets, lease.BucketDigest{BucketID: lease.BucketID{Bits: 2, Index: i % 4}})
		ask.Ages = append(ask.Ages, lease.Bucket{BucketID: lease.BucketID{Bits: lease.MaxBits, Index: i}, Nodes: 9})
	}
	ask.PullLeases = s.Handles()
	if got := count(answer(s, epoch, ask, 1400)); got > lease.MaxPullLeases+4*lease.BucketSize*lease.MaxRepairs || got < lease.MaxPullLeases {
		t.Errorf("%d rows in answer to one message", got)
	}
	if got := answer(s, epoch, ask, 10); got != nil {
		t.Errorf("%d answers within 10 bytes", len(got))
	}
	s.Apply(epoch, ask)
	later := epoch.Add(testParams.TTL / 6)
	ask.Stamp = stampAt(later)
	if got := request(s, later, ask.From, s.Apply(later, ask)).PullBuckets; len(got) != lease.MaxRepairs {
		t.Errorf("pulls %d buckets in one message", len(got))
	}
	asked := make(map[lease.Handle]bool) // several messages take turns, because not all leases fit into a message
	for range 2 * s.Live() / lease.MaxPullLeases {
		for _, m := range s.Compose(now.Add(ms), 1400, 1) {
			if len(m.PullLeases) == 0 || len(m.PullLeases) > lease.MaxPullLeases || len(m.Ages) == 0 {
				t.Fatalf("%d pulled leases and %d buckets in one message", len(m.PullLeases), len(m.Ages))
			}
			for _, h := range m.PullLeases {
				asked[h] = true
			}
		}
	}
	if len(asked) != s.Live()-1 {
		t.Errorf("pulls %d leases of %d", len(asked), s.Live()-1)
	}
}

// Nodes pull leases that are about to expire. An answer contains a lease only if it is much younger. It also contains
// leave messages.
func TestPulledLeases(t *testing.T) {
	s, left := many(3), rec("left", 1)
	s.Apply(epoch, hello(epoch.Add(-ms), left))
	s.Apply(epoch, leave(epoch, left))
	fresh := rec("node-0", 1).Handle()
	for _, tc := range []struct {
		name string
		ask  lease.Handle
		age  time.Duration
		want int
	}{
		{"fresh", fresh, testParams.TTL/2 - ms, 1},
		{"not much younger", fresh, testParams.TTL / 2, 0},
		{"left", left.Handle(), testParams.TTL, 1},
		{"unknown", 1, 0, 0},
	} {
		ask, rows := s.Request(epoch, nil, nil), 0
		ask.PullLeases = []lease.Handle{tc.ask}
		for _, m := range answer(s, epoch.Add(tc.age), ask, 1400) {
			rows += len(m.Heartbeats) - 1
		}
		if rows != tc.want {
			t.Errorf("%s: %d rows", tc.name, rows)
		}
	}
	for _, tc := range []struct {
		late time.Duration
		want int // the other two live nodes
	}{{0, 0}, {ms, 2}} {
		now := epoch.Add(testParams.TTL*3/4 + tc.late)
		s.Heartbeat(now, 0, 0)
		if m := composeOne(s, now, 1); len(m.PullLeases) != tc.want {
			t.Errorf("%v after 3/4 TTL it pulls %d", tc.late, len(m.PullLeases))
		}
	}
}
