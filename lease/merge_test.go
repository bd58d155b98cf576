package lease_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// fleet contains everything that nodes could have sent until now: three ids with up to three incarnations
// each, and each incarnation with a few record versions and heartbeats. Nodes are correct, except that a node
// may have sent one heartbeat with two states.
type fleet struct {
	now   time.Time
	lives []life
}

type life struct {
	versions []*lease.Record // by version, from 1
	states   [][]lease.State // of its heartbeats, one per second
	ended    time.Duration   // age of the last heartbeat
}

func drawFleet(t *rapid.T) *fleet {
	f := &fleet{now: epoch}
	for _, id := range []lease.NodeID{"b", "c", "d"} {
		for inc := range uint64(rapid.IntRange(1, 3).Draw(t, "lives of "+string(id))) {
			state := rapid.SampledFrom([]lease.State{lease.Settling, lease.Active, lease.Draining})
			l := life{
				versions: []*lease.Record{rec(id, inc+1)},
				states:   rapid.SliceOfN(rapid.SliceOfN(state, 1, 2), 1, 4).Draw(t, "states"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				l.versions = append(l.versions, heavier(l.versions[len(l.versions)-1]))
			}
			limit := testParams.TTL
			if rapid.Bool().Draw(t, "leaves") {
				l.states[len(l.states)-1][0] = lease.Left
				limit = forgetAfter(testParams)
			}
			if rapid.Bool().Draw(t, "over") {
				l.ended = time.Duration(rapid.Int64Range(0, int64(limit+time.Second)).Draw(t, "ended"))
			}
			f.lives = append(f.lives, l)
		}
	}
	return f
}

func (f *fleet) drawLife(t *rapid.T) life { return rapid.SampledFrom(f.lives).Draw(t, "life") }

// drawMessage draws a message that some node could send at f.now. Every heartbeat comes with its record, because a Set
// drops a heartbeat without a record, and the order would matter then.
func (f *fleet) drawMessage(t *rapid.T) *lease.Message {
	var m *lease.Message
	for range rapid.IntRange(1, 3).Draw(t, "rows") {
		l := f.drawLife(t)
		r := rapid.SampledFrom(l.versions).Draw(t, "record")
		if m == nil {
			m = messageFrom(f.now, r, nil)
		}
		m.Records = append(m.Records, r)
		if rapid.Bool().Draw(t, "with heartbeat") {
			i := rapid.IntRange(0, len(l.states)-1).Draw(t, "heartbeat")
			at := func(i int) time.Time {
				return f.now.Add(-l.ended - time.Duration(len(l.states)-1-i)*time.Second)
			}
			b := as(sent(r, at(i)), rapid.SampledFrom(l.states[i]).Draw(t, "state"))
			b.Load = int64(i)
			// The relay may know the age of a later heartbeat.
			b.Renewed = stampAt(at(rapid.IntRange(i, len(l.states)-1).Draw(t, "latest")))
			m.Heartbeats = append(m.Heartbeats, b)
		}
	}
	return m
}

// fingerprint returns everything that a set shows about other nodes.
func fingerprint(s *lease.Set, now time.Time) string {
	var lines []string
	for _, m := range s.View().Members {
		lines = append(lines, fmt.Sprintf("%s/%d v%d %v load %d, renewed %v", m.ID, m.Incarnation, m.Version, m.State, m.Load, m.Renewed))
	}
	for _, b := range s.Sync(now).Heartbeats {
		if s.AddrOf(b.Handle) != "" {
			lines = append(lines, fmt.Sprintf("row %+v", b))
		}
	}
	expired := s.ExpiredHandles()
	slices.Sort(expired)
	slices.Sort(lines)
	return strings.Join(append(lines, fmt.Sprintf("expired %x, digest %x", expired, s.View().Digest())), "\n")
}

// probe shows what a set remembers of records and ended leases. It applies a new heartbeat of every node, without a
// record, and returns the fingerprint.
func (f *fleet) probe(s *lease.Set) string {
	now := f.now.Add(ms)
	for _, l := range f.lives {
		r := l.versions[0]
		s.Apply(now, messageFrom(now, r, []lease.Heartbeat{sent(r, now)}))
	}
	return fingerprint(s, now)
}

// applyAll applies the messages and checks that Apply reports every change.
func applyAll(t *rapid.T, s *lease.Set, now time.Time, messages []*lease.Message) {
	for _, m := range messages {
		before := s.View().Digest()
		e := s.Apply(now, m)
		if after := s.View().Digest(); before != after && (!e.Changed || !e.Urgent) {
			t.Fatalf("effect %+v, but the digest went from %x to %x", e, before, after)
		}
	}
}

// Any order and any repetition of messages lead to the same state.
func TestApplyOrderAndRepetitionDecideNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		messages := rapid.SliceOfN(rapid.Custom(f.drawMessage), 2, 12).Draw(t, "messages")
		again := rapid.SliceOf(rapid.SampledFrom(messages)).Draw(t, "duplicates")
		shuffled := rapid.Permutation(slices.Concat(messages, again)).Draw(t, "order")

		one, two := newSet(rec("a", 1)), newSet(rec("a", 1))
		applyAll(t, one, f.now, messages)
		applyAll(t, two, f.now, shuffled)
		want := fingerprint(one, f.now)
		if diff := cmp.Diff(want, fingerprint(two, f.now)); diff != "" {
			t.Fatalf("in order (-), shuffled with duplicates (+):\n%s", diff)
		}
		applyAll(t, one, f.now, messages)
		if diff := cmp.Diff(want, fingerprint(one, f.now)); diff != "" {
			t.Fatalf("once (-), twice (+):\n%s", diff)
		}
		if diff := cmp.Diff(f.probe(one), f.probe(two)); diff != "" {
			t.Fatalf("after new heartbeats, in order (-), shuffled with duplicates (+):\n%s", diff)
		}
	})
}

// After two full exchanges, two sets agree, whatever messages they received before.
func TestSyncBothWaysAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		heard := rapid.SliceOfN(rapid.Custom(f.drawMessage), 0, 8)
		one, two := newSet(rec("a", 1)), newSet(rec("z", 1))
		applyAll(t, one, f.now, heard.Draw(t, "heard by a"))
		applyAll(t, two, f.now, heard.Draw(t, "heard by z"))
		for range 2 {
			m, n := one.Sync(f.now), two.Sync(f.now)
			applyAll(t, two, f.now, []*lease.Message{m})
			applyAll(t, one, f.now, []*lease.Message{n})
		}
		if one.View().Digest() != two.View().Digest() {
			t.Fatalf("a sees %v, z sees %v", ids(one), ids(two))
		}
	})
}

// An ended lease stays ended. Old heartbeats do not revive the node before the set has forgotten the lease, no matter
// in which order they arrive, and whether they are recorded or relayed.
func TestOldHeartbeatsReviveNoNode(t *testing.T) {
	b, last := rec("b", 5), epoch.Add(-time.Second)
	slack := int(2 * stamps(testParams.TTL) / 16)
	old := func(slack int) *rapid.Generator[*lease.Message] {
		return rapid.Custom(func(t *rapid.T) *lease.Message {
			r := b
			if rapid.Bool().Draw(t, "earlier life") {
				r = rec("b", 4)
			}
			if rapid.Bool().Draw(t, "later version") {
				r = heavier(r)
			}
			age := rapid.IntRange(max(0, -slack), 7000).Draw(t, "age ms")
			heartbeat := sent(r, last.Add(-time.Duration(age)*ms))
			heartbeat.Renewed = heartbeat.At + lease.Stamp(rapid.IntRange(0, age+slack).Draw(t, "later ms"))
			switch {
			case r.Incarnation == 4 && rapid.Bool().Draw(t, "leave"):
				heartbeat = as(heartbeat, lease.Left)
			case age > 0:
				heartbeat = as(heartbeat, rapid.SampledFrom([]lease.State{lease.Settling, lease.Active, lease.Draining}).Draw(t, "state"))
			}
			m := messageFrom(epoch, r, []lease.Heartbeat{heartbeat})
			if rapid.Bool().Draw(t, "with record") {
				m.Records = append(m.Records, r)
			}
			return m
		})
	}
	expire := func(s *lease.Set) time.Time {
		now := epoch.Add(testParams.TTL + ms)
		s.Expire(now)
		return now
	}
	alone, later := []string{"a/1"}, rec("b", 6)
	for name, tc := range map[string]struct {
		end   func(s *lease.Set) (now time.Time)
		live  []string
		slack int // number of ms by which old news may seem later than the latest heartbeat
	}{
		"expired": {expire, alone, slack},
		"left": {func(s *lease.Set) time.Time {
			s.Apply(epoch, leave(epoch, b))
			return epoch
		}, alone, slack},
		"left, heard of late": {func(s *lease.Set) time.Time {
			now := epoch.Add(testParams.TTL + time.Second)
			s.Apply(now, messageFrom(now, b, []lease.Heartbeat{as(sent(b, epoch), lease.Left)}))
			return now
		}, alone, slack},
		"superseded by one with a leave message": {func(s *lease.Set) time.Time {
			s.Apply(epoch, messageFrom(epoch, later, []lease.Heartbeat{as(sent(later, epoch), lease.Left)}, later))
			return epoch
		}, alone, slack},
		"superseded": {func(s *lease.Set) time.Time {
			s.Apply(epoch, hello(epoch, later))
			return epoch
		}, []string{"a/1", "b/6"}, slack},
		"superseded and expired": {func(s *lease.Set) time.Time {
			s.Apply(epoch, hello(epoch, later))
			return expire(s)
		}, alone, slack},
		"forgotten": {func(s *lease.Set) time.Time {
			s.ExpireOthers(epoch)
			return epoch
		}, alone, -1}, // the latest heartbeat itself counts again

	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{sent(b, last)}, b))
			now := tc.end(s)
			for range rapid.IntRange(1, 12).Draw(t, "messages") {
				m := old(tc.slack).Draw(t, "old news")
				if rapid.Bool().Draw(t, "relayed now") { // otherwise the message is a recording
					m.Stamp, m.SentAt = stampAt(now), now
				}
				s.Apply(now, m)
				if got := ids(s); !slices.Equal(got, tc.live) {
					t.Fatalf("live: %v, want %v", got, tc.live)
				}
				// Wait, but only for as long as the set must remember the lease.
				step := time.Duration(rapid.IntRange(0, 4000).Draw(t, "wait ms")) * ms
				if now.Add(step).Before(last.Add(forgetAfter(testParams))) && len(tc.live) == 1 {
					now = now.Add(step)
				}
				s.Expire(now)
			}
			// New heartbeats still count: they revive the node.
			s.Apply(now, hello(now, rec("b", 7)))
			if got := ids(s); !slices.Equal(got, []string{"a/1", "b/7"}) {
				t.Fatalf("after a restart: %v", got)
			}
		}))
	}
}

// ExpireOthers ends the lease of a node. The node becomes live again when its last known heartbeat arrives again before
// its lease would have ended, or when its next heartbeat arrives.
func TestForgottenNodesReturn(t *testing.T) {
	b := rec("b", 1)
	known := sent(b, epoch)
	earlier := sent(b, epoch.Add(-ms))
	for name, tt := range map[string]struct {
		heartbeat lease.Heartbeat
		after     time.Duration
		live      bool
	}{
		"the same at once":                  {known, time.Second, true},
		"the same at the end":               {known, testParams.TTL, true},
		"the same after the end":            {known, testParams.TTL + ms, false},
		"an earlier one":                    {earlier, time.Second, false},
		"the next":                          {sent(b, epoch.Add(2*time.Second)), 2 * time.Second, true},
		"the next, when the last has ended": {sent(b, epoch.Add(2*time.Second)), testParams.TTL + ms, true},
	} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, messageFrom(epoch, b, []lease.Heartbeat{known}, b))
		s.ExpireOthers(epoch.Add(time.Second))
		if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
			t.Fatalf("live: %v, want a alone", got)
		}
		now := epoch.Add(max(tt.after, time.Second))
		s.Apply(now, messageFrom(now, b, []lease.Heartbeat{tt.heartbeat}, b))
		if live := member(s, "b") != nil; live != tt.live {
			t.Errorf("%s: b is live: %v, want %v", name, live, tt.live)
		}
		if end, ok := s.NextDeadline(); tt.live && (!ok || !end.Equal(time.UnixMilli(int64(tt.heartbeat.At)).Add(testParams.TTL+ms))) {
			t.Errorf("%s: the lease ends at %v", name, end.Sub(epoch))
		}
	}
}

// A heartbeat or leave message passes through several relays whose cluster time may be too early. Its content and stamp
// do not change, and its age is at least the true age minus the time that the message was under way.
func TestRelayingNeverProlongsALease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rec("src", 1)
		carrier := newSet(source)
		state := rapid.SampledFrom([]lease.State{lease.Settling, lease.Active, lease.Draining, lease.Left}).Draw(t, "state")
		limit := testParams.TTL
		if state == lease.Left {
			limit = forgetAfter(testParams)
		}
		carrier.SetState(state)
		carrier.Heartbeat(epoch, 1, 2)
		sent, now, transit := carrier.Sync(epoch).Heartbeats[0].At, epoch, time.Duration(0)
		var behind time.Duration // how far the carrier's clock is behind
		span := rapid.Map(rapid.IntRange(0, 800), func(n int) time.Duration { return time.Duration(n) * ms })
		for hop := range rapid.IntRange(1, 6).Draw(t, "hops") {
			now = now.Add(span.Draw(t, "held for"))
			m, err := lease.Decode(lease.Encode(carrier.Sync(now.Add(-behind))))
			if err != nil {
				t.Fatal(err)
			}
			under := span.Draw(t, "under way")
			now, transit = now.Add(under), transit+under
			behind = span.Draw(t, "behind")
			at := now.Add(-behind)
			carrier = startSet(at, rec(lease.NodeID(fmt.Sprintf("r%d", hop)), 1), testParams)
			carrier.Apply(at, m)
			truth := now.Sub(epoch)
			if truth > limit {
				return // a set would reject it
			}
			rows := carrier.Sync(at).Heartbeats
			i := slices.IndexFunc(rows, func(b lease.Heartbeat) bool { return b.Handle == source.Handle() })
			if i < 0 || rows[i].State != state || rows[i].At != sent || max(sent, rows[i].Renewed) != sent || rows[i].Table != 2 {
				t.Fatalf("hop %d: %+v, %v old", hop, rows, truth)
			}
			if live := member(carrier, "src") != nil; live != (state != lease.Left) {
				t.Fatalf("hop %d: %v, live %v", hop, state, live)
			}
			if a := millis(carrier.Stamp(at) - rows[i].At); a < truth-transit-ms || a > truth {
				t.Fatalf("hop %d: age %v, truly %v, %v of it under way", hop, a, truth, transit)
			}
		}
	})
}
