package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// many returns a set of n nodes. Their records and rows are no news.
func many(n int) *Set {
	s := newSet(rec("a", 1))
	flood(s, epoch, s.Self(), n-1, func(i int, m *Message) {
		r := rec(NodeID(fmt.Sprintf("node-%d", i)), 1)
		m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, r.sent(epoch))
	})
	for _, e := range s.nodes {
		e.rowsSent, e.recordsSent = 1000, 1000
	}
	return s
}

// peerOf returns the set of node z, which knows all that s knows, and is known to it.
func peerOf(s *Set, now time.Time) *Set {
	z := startSet(now, rec("z", 1), testParams)
	s.Apply(now, z.Sync(now))
	z.Apply(now, s.Sync(now))
	return z
}

// Without news, the messages of one Compose have the ages of all leases, each within the budget. A node
// with the same live set takes them all, rounded down to the grid.
func TestAgesReachAllLeases(t *testing.T) {
	for _, n := range []int{2, 10, 64, 65, 100, 1000, 4096, MaxNodes} {
		s := many(n - 1)
		z := peerOf(s, epoch)
		now := epoch.Add(time.Second)
		for i, e := range s.live {
			e.recordsSent = 1000 // z's record, too: no record takes space from the ages
			if e != s.self {
				e.at += stamps(time.Second * time.Duration(i%20) / 20)
			}
		}
		s.Heartbeat(now, 0, 0)
		covered, messages := 0, s.Compose(now, 1400, 1)
		for _, m := range messages {
			if size := len(Encode(m)); size > 1400 {
				t.Errorf("%d nodes: %d bytes", n, size)
			}
			for i := range m.Ages {
				covered += m.Ages[i].Nodes
			}
			if e := z.Apply(now, carry(t, m)); e.Changed || e.pullBuckets != nil {
				t.Fatalf("%d nodes: %+v", n, e)
			}
		}
		t.Logf("%d nodes: %d messages", n, len(messages))
		if covered < n || len(messages) > 1+n/500 {
			t.Errorf("%d of %d ages in %d messages", covered, n, len(messages))
		}
		for _, e := range z.live {
			truth := s.known[e.handle].at
			if want := truth / z.params.tick() * z.params.tick(); e != z.self && e.at != truth && e.at != max(want, stampAt(epoch)) {
				t.Fatalf("%d nodes: %s renewed %d, want %d rounded down", n, e.rec.ID, e.at, truth)
			}
		}
	}
}

// However often an age is relayed, with any delays and estimates of cluster time,
// it loses at most one tick, and never makes a lease younger.
func TestRelayedAgesStayOnTheGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := rec("b", 1), epoch
		chain := make([]*Set, rapid.IntRange(2, 6).Draw(t, "hops"))
		all := []*Record{b}
		for i := range chain {
			all = append(all, rec(NodeID(fmt.Sprintf("r%d", i)), 1))
			chain[i] = newSet(all[i+1])
		}
		for _, s := range chain {
			for _, r := range all {
				s.Apply(now, hello(now, r))
			}
		}
		wait := func(what string) { now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, what)) * ms) }
		wait("until the heartbeat")
		sent := now
		chain[0].Apply(now, messageFrom(now, b, []Heartbeat{b.sent(sent)}))
		tick := chain[0].params.tick()
		for i, s := range chain[1:] {
			wait("held for")
			m := chain[i].Compose(now, 1400, 1)[0]
			m.Heartbeats = m.Heartbeats[:1] // ages alone
			m, err := Decode(Encode(m))
			if err != nil {
				t.Fatal(err)
			}
			wait("under way")
			s.advance(now, -Stamp(rapid.IntRange(0, 300).Draw(t, "behind")))
			was := s.known[b.Handle()].at
			s.Apply(now, m)
			got := s.known[b.Handle()].at
			if want := stampAt(sent) / tick * tick; got != max(want, was) || got > stampAt(sent) {
				t.Fatalf("hop %d: renewed %d, want %d", i, got, want)
			}
		}
	})
}

// Node b, with table 7, sends the ages of its bucket to a. It knows a later heartbeat of c,
// and a has 5 as the table of c.
func TestApplyAges(t *testing.T) {
	c, now := rec("c", 1), epoch.Add(testParams.TTL)
	first, tick := c.sent(epoch), newSet(c).params.tick()
	first.Table = 5
	for _, tc := range []struct {
		name      string
		of, known func(c *entry) // at the sender and at the receiver
		change    func(a *Set, m *Bucket)
		renewed   bool  // c
		age       Stamp // then, in ticks
		differs   bool
		table     uint32 // that a has of c
	}{
		{name: "the same bucket", renewed: true, table: 5},
		{name: "the sender's table", of: func(c *entry) { c.table = 7 }, renewed: true, table: 7},
		{name: "no longer the sender's table", known: func(c *entry) { c.table = 7 }, renewed: true},
		{name: "an unknown age", of: func(c *entry) { c.at -= unknownAge * tick }, table: 5},
		{
			name:    "the least age that is known",
			of:      func(c *entry) { c.at -= (unknownAge - 1) * tick },
			renewed: true,
			age:     unknownAge - 1,
			table:   5,
		},
		{name: "no news", known: func(c *entry) { c.at = stampAt(now) }, table: 5},
		{name: "another state", known: func(c *entry) { c.state = Draining }, differs: true, table: 5},
		{name: "another version", known: func(e *entry) { e.rec = c.heavier() }, differs: true, table: 5},
		{name: "a node more", change: func(a *Set, _ *Bucket) { a.Apply(epoch, hello(epoch, rec("d", 1))) }, differs: true, table: 5},
		{name: "a node less", change: func(_ *Set, m *Bucket) { m.Nodes-- }, differs: true, table: 5},
		{name: "another number of buckets", change: func(_ *Set, m *Bucket) { m.Bits++ }, differs: true, table: 5},
	} {
		a, b := newSet(rec("a", 1)), newSet(rec("b", 1))
		for _, s := range []*Set{a, b} {
			s.Apply(epoch, messageFrom(epoch, c, []Heartbeat{first, a.Self().sent(epoch), b.Self().sent(epoch)}, c, a.Self(), b.Self()))
		}
		b.Heartbeat(now, 0, 7)
		e := a.known[c.Handle()]
		b.known[c.Handle()].at = stampAt(now)
		if tc.of != nil {
			tc.of(b.known[c.Handle()])
		}
		if tc.known != nil {
			tc.known(e)
		}
		m := carry(t, b.Compose(now, 1400, 1)[0])
		m.Heartbeats = m.Heartbeats[:1]
		if tc.change != nil {
			tc.change(a, &m.Ages[0])
		}
		a.Apply(now, m)
		if renewed := a.Stats().AgesApplied == 1; renewed != tc.renewed || renewed && e.at != (stampAt(now)/tick-tc.age)*tick {
			t.Errorf("%s: renewed %v, %d after the epoch", tc.name, renewed, e.at-stampAt(epoch))
		}
		if differs := len(a.ages.differs) > 0; differs != tc.differs || e.table != tc.table {
			t.Errorf("%s: differs %v, table %d", tc.name, a.ages.differs, e.table)
		}
		if a.self.at != stampAt(epoch) {
			t.Errorf("%s: ages changed the own lease", tc.name)
		}
	}
}

// A bucket that differs for TTL/30 is asked for, once in TTL/60, and only from live senders.
// The answer repairs it. The same digest, or a TTL of silence, ends a difference.
func TestRepair(t *testing.T) {
	s := many(100)
	z := peerOf(s, epoch)
	gone := s.live[slices.IndexFunc(s.live, func(e *entry) bool { return e != s.self && e.rec.ID != "z" })]
	z.end(epoch, z.known[gone.handle], expired)
	gone.at += 3 * z.params.tick()
	gone.rowAt = gone.at
	wait := testParams.TTL / 30
	hear := func(after time.Duration, from *Set) []BucketDigest {
		again(s)
		m := from.Compose(epoch.Add(after), 1400, 1)[0]
		m.Heartbeats = nil
		return z.Apply(epoch.Add(after), m).pullBuckets
	}
	for _, tc := range []struct {
		after time.Duration
		pulls bool
	}{{0, false}, {wait - ms, false}, {wait, true}, {3*wait/2 - ms, false}, {3 * wait / 2, true}} {
		if got := hear(tc.after, s); (len(got) == 1 && got[0].has(gone.handle)) != tc.pulls || len(got) > 1 {
			t.Errorf("after %v it pulls %v", tc.after, got)
		}
	}
	const later = 1500 * ms // the heartbeat of gone was sent before
	now := epoch.Add(later)
	z.end(now, z.known[s.Handle()], expired)
	if got := hear(later, s); got != nil {
		t.Errorf("pulls from a sender that is not live: %v", got)
	}
	z.become(z.known[s.Handle()], live)
	buckets := hear(later, s)
	answers := s.answer(now, carry(t, z.Request(now, nil, buckets)), 1400)
	for _, m := range answers {
		z.Apply(now, carry(t, m))
	}
	if z.AddrOf(gone.handle) == "" || len(buckets) == 0 {
		t.Fatalf("not repaired by %d messages for %v", len(answers), buckets)
	}
	if hear(later, s); len(z.ages.differs) != 0 {
		t.Errorf("still differs: %v", z.ages.differs)
	}
	z.noteDifference(now, 1, BucketID{}, &Effect{})
	if z.Expire(now.Add(testParams.TTL)); len(z.ages.differs) != 1 {
		t.Error("a difference is forgotten early")
	}
	if z.Expire(now.Add(testParams.TTL + 1)); len(z.ages.differs) != 0 {
		t.Error("a difference is not forgotten")
	}
}

// A message pulls at most maxRepairs buckets and maxPullLeases leases, and the answers are
// bounded for any message.
func TestAsksAreBounded(t *testing.T) {
	s := many(MaxNodes / 4)
	now := epoch.Add(testParams.TTL * 3 / 4)
	count := func(messages []*Message) (rows int) {
		for _, m := range messages {
			if size := len(Encode(m)); size > 1400 {
				t.Errorf("an answer of %d bytes", size)
			}
			rows += len(m.Heartbeats) - 1
		}
		return rows
	}
	ask := messageFrom(epoch, s.Self(), nil)
	for i := range maxBuckets {
		ask.PullBuckets = append(ask.PullBuckets, BucketDigest{BucketID: BucketID{Bits: 2, Index: uint32(i % 4)}})
		ask.Ages = append(ask.Ages, Bucket{BucketID: BucketID{Bits: maxBits, Index: uint32(i)}, Nodes: 9})
	}
	for _, e := range s.live {
		ask.PullLeases = append(ask.PullLeases, e.handle)
	}
	if got := count(s.answer(epoch, ask, 1400)); got > maxPullLeases+4*bucketSize*maxRepairs || got < maxPullLeases {
		t.Errorf("%d rows in answer to one message", got)
	}
	if got := s.answer(epoch, ask, 10); got != nil {
		t.Errorf("%d answers within 10 bytes", len(got))
	}
	s.Apply(epoch, ask)
	ask.Stamp = stampAt(epoch.Add(testParams.TTL / 6))
	if got := s.Apply(epoch.Add(testParams.TTL/6), ask).pullBuckets; len(got) != maxRepairs {
		t.Errorf("pulls %d buckets in one message", len(got))
	}

	few := many(3)
	left := rec("left", 1)
	few.Apply(epoch, hello(epoch.Add(-ms), left))
	few.Apply(epoch, leave(epoch, left))
	fresh := few.nodes[2]
	for _, tc := range []struct {
		name string
		ask  Handle
		age  time.Duration
		want int
	}{
		{"fresh", fresh.handle, testParams.TTL/2 - ms, 1},
		{"not much younger", fresh.handle, testParams.TTL / 2, 0},
		{"left", left.Handle(), testParams.TTL, 1},
		{"unknown", 1, 0, 0},
	} {
		ask := few.Request(epoch, nil, nil)
		ask.PullLeases = []Handle{tc.ask}
		if got := count(few.answer(epoch.Add(tc.age), ask, 1400)); got != tc.want {
			t.Errorf("%s: %d rows", tc.name, got)
		}
	}
	for late, want := range map[time.Duration]int{0: 0, ms: 2} { // of the other two live ones
		again(few)
		if m := few.Compose(now.Add(late), 1400, 1)[0]; len(m.PullLeases) != want {
			t.Errorf("%v after 3/4 TTL it pulls %d", late, len(m.PullLeases))
		}
	}
	asked := make(map[Handle]bool) // in turns, since not all fit
	for range 2 * len(s.live) / maxPullLeases {
		for _, m := range s.Compose(now.Add(ms), 1400, 1) {
			if len(m.PullLeases) == 0 || len(m.PullLeases) > maxPullLeases || len(m.Ages) == 0 {
				t.Fatalf("%d pulled leases and %d buckets in one message", len(m.PullLeases), len(m.Ages))
			}
			for _, h := range m.PullLeases {
				asked[h] = true
			}
		}
	}
	if len(asked) != len(s.live)-1 {
		t.Errorf("pulls %d leases of %d", len(asked), len(s.live)-1)
	}
}
