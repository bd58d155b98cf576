package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A small request of buckets gets a small answer.
func TestRepairsAreBounded(t *testing.T) {
	s := many(1000)
	from := s.live[slices.IndexFunc(s.live, func(e *entry) bool { return e != s.self })]
	fourth := BucketID{Bits: 4, Index: 1}
	begin, end := s.bucket(fourth)
	now := epoch
	for name, tc := range map[string]struct {
		ids  []BucketID
		want int
	}{
		"the whole set":      {[]BucketID{{}}, 0},
		"one bucket":         {[]BucketID{fourth}, end - begin},
		"one bucket thrice":  {[]BucketID{fourth, fourth, fourth}, end - begin},
		"a much larger part": {[]BucketID{{Bits: 2}}, 0},
	} {
		now = now.Add(time.Second)
		m := messageFrom(now, from.rec, nil)
		for _, id := range tc.ids {
			m.PullBuckets = append(m.PullBuckets, BucketDigest{BucketID: id})
		}
		got := 0
		for _, answer := range s.answer(now, m, 1400) {
			got += len(answer.Records)
		}
		if got != tc.want {
			t.Errorf("%s: %d records, want %d", name, got, tc.want)
		}
	}
}

// A node from which others pull what it has more of a bucket pulls what it has less.
func TestAskBack(t *testing.T) {
	x := rec("x", 1)
	y, z := newSet(rec("y", 1)), newSet(rec("z", 1))
	y.Apply(epoch, hello(epoch, z.Self()))
	z.Apply(epoch, hello(epoch, y.Self()))
	y.Apply(epoch, hello(epoch, x))
	request := y.Request(epoch, nil, []BucketDigest{y.held(BucketID{})})
	back := z.Apply(epoch, carry(t, request)).pullBuckets
	for _, m := range y.answer(epoch, carry(t, z.Request(epoch, nil, back)), 1400) {
		z.Apply(epoch, carry(t, m))
	}
	wantIDs(t, z, "x/1", "y/1", "z/1")
	if again := z.Apply(epoch, carry(t, request)).pullBuckets; again != nil {
		t.Errorf("pulls back although nothing is missing: %v", again)
	}
}

// Two nodes whose sets are far apart in size cut them into other buckets: the large one
// holds more of a bucket of the small one than fits into a request. By repairs alone, both
// come to hold all, although more nodes start all the time.
func TestUnequalSetsAgree(t *testing.T) {
	for _, tc := range []struct {
		small, large, labels int
		within               time.Duration
	}{
		{50, 1000, 0, 12 * time.Second}, {50, 4000, 0, 12 * time.Second}, {64, 300, 12, 22 * time.Second},
	} {
		p := testParams
		p.TTL = 24 * time.Second
		x, y := startSet(epoch, rec("x", 1), p), startSet(epoch, rec("y", 1), p)
		started := 0
		start := func(now time.Time, s *Set, n int) {
			flood(s, now, s.Self(), n, func(_ int, m *Message) {
				r := rec(NodeID(fmt.Sprint("node-", started)), 1)
				r.Labels = manyLabels(tc.labels, 60)
				m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, r.sent(now))
				started++
			})
		}
		start(epoch, x, tc.small-1)
		start(epoch, y, tc.large-1)
		x.Apply(epoch, hello(epoch, y.Self()))
		y.Apply(epoch, hello(epoch, x.Self()))
		agree := func() bool { return x.View().Digest() == y.View().Digest() }
		now := epoch
		for ; !agree() && now.Sub(epoch) < tc.within; now = now.Add(200 * ms) {
			if now.Sub(epoch) < tc.within/3 {
				start(now, x, 1)
				start(now, y, 2)
			}
			for _, pair := range [][2]*Set{{x, y}, {y, x}} {
				pair[0].Heartbeat(now, 0, 0)
				for _, m := range pair[0].Compose(now, 1400, 3) {
					m.Heartbeats, m.Records = m.Heartbeats[:1], nil
					converse(t, now, pair[0], pair[1], m)
				}
			}
		}
		if !agree() {
			t.Errorf("%+v: after %v one holds %d and the other %d of %d", tc, now.Sub(epoch), len(x.live), len(y.live), started+2)
		}
	}
}

// converse brings m to a set, and what both send because of it, as nodes do.
func converse(t *testing.T, now time.Time, from, to *Set, m *Message) {
	t.Helper()
	m = carry(t, m)
	e := to.Apply(now, m)
	if len(e.pullRecords)+len(e.pullBuckets) > 0 {
		converse(t, now, to, from, to.Request(now, e.pullRecords, e.pullBuckets))
	}
	for _, answer := range to.answer(now, m, 1400) {
		converse(t, now, to, from, answer)
	}
}
