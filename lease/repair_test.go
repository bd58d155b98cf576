package lease_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A request gets no answer for a bucket that is much larger than the set's own buckets. Requesting a bucket several
// times does not enlarge the answer.
func TestRepairsAreBounded(t *testing.T) {
	s := many(1000)
	from := s.View().Members[1].Record
	fourth := lease.BucketID{Bits: 4, Index: 1}
	size := len(inBucket(s, fourth))
	now := epoch
	for name, tc := range map[string]struct {
		ids  []lease.BucketID
		want int
	}{
		"the whole set":      {[]lease.BucketID{{}}, 0},
		"one bucket":         {[]lease.BucketID{fourth}, size},
		"one bucket thrice":  {[]lease.BucketID{fourth, fourth, fourth}, size},
		"a much larger part": {[]lease.BucketID{{Bits: 2}}, 0},
	} {
		now = now.Add(time.Second)
		m := messageFrom(now, from, nil)
		for _, id := range tc.ids {
			m.PullBuckets = append(m.PullBuckets, lease.BucketDigest{BucketID: id})
		}
		got := 0
		for _, answer := range answer(s, now, m, 1400) {
			got += len(answer.Records)
		}
		if got != tc.want {
			t.Errorf("%s: %d records, want %d", name, got, tc.want)
		}
	}
}

// If a node requests what it lacks in a bucket, the node that answers also requests what it lacks itself.
func TestAskBack(t *testing.T) {
	x := rec("x", 1)
	y, z := newSet(rec("y", 1)), newSet(rec("z", 1))
	y.Apply(epoch, hello(epoch, z.Self()))
	z.Apply(epoch, hello(epoch, y.Self()))
	y.Apply(epoch, hello(epoch, x))
	ask := asksBack(y, epoch, z.Self())
	back := request(z, epoch, ask.From, z.Apply(epoch, carry(t, ask)))
	for _, m := range answer(y, epoch, carry(t, back), 1400) {
		z.Apply(epoch, carry(t, m))
	}
	wantIDs(t, z, "x/1", "y/1", "z/1")
	if again := request(z, epoch, ask.From, z.Apply(epoch, carry(t, ask))); again != nil {
		t.Errorf("pulls back although nothing is missing: %v", again)
	}
}

// Two sets of very different sizes divide their nodes into different buckets, so a bucket of the small set has more
// nodes in the large set than fit into a request. Repairs alone make both sets complete, although more nodes keep
// starting.
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
		start := func(now time.Time, s *lease.Set, n int) {
			flood(s, now, s.Self(), n, func(_ int, m *lease.Message) {
				r := rec(lease.NodeID(fmt.Sprint("node-", started)), 1)
				r.Labels = manyLabels(tc.labels, 60)
				m.Records, m.Heartbeats = append(m.Records, r), append(m.Heartbeats, sent(r, now))
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
			for _, pair := range [][2]*lease.Set{{x, y}, {y, x}} {
				pair[0].Heartbeat(now, 0, 0)
				for _, m := range pair[0].Compose(now, 1400, 3) {
					m.Heartbeats, m.Records = m.Heartbeats[:1], nil
					converse(t, now, pair[0], pair[1], m)
				}
			}
		}
		if !agree() {
			t.Errorf("%+v: after %v one holds %d and the other %d of %d", tc, now.Sub(epoch), x.Live(), y.Live(), started+2)
		}
	}
}

// converse delivers m to a set, and then all messages that both sets send in response.
func converse(t *testing.T, now time.Time, from, to *lease.Set, m *lease.Message) {
	t.Helper()
	m = carry(t, m)
	e := to.Apply(now, m)
	for _, r := range to.Replies(now, m, e, 1400) {
		converse(t, now, to, from, r.Message)
	}
}
