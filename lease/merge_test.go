package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fleet is all that nodes could have sent until now: three ids with up to three
// incarnations each, each with a few record versions and heartbeats. Nodes are correct,
// except that a node may have sent one heartbeat with two states.
type fleet struct {
	now   time.Time
	lives []life
}

type life struct {
	versions []*Record     // by version, from 1
	states   [][]State     // of its heartbeats, one a second
	ended    time.Duration // age of the last one
}

func drawFleet(t *rapid.T) *fleet {
	f := &fleet{now: epoch}
	for _, id := range []NodeID{"b", "c", "d"} {
		for inc := range uint64(rapid.IntRange(1, 3).Draw(t, "lives of "+string(id))) {
			state := rapid.SampledFrom([]State{Settling, Active, Draining})
			l := life{
				versions: []*Record{rec(id, inc+1)},
				states:   rapid.SliceOfN(rapid.SliceOfN(state, 1, 2), 1, 4).Draw(t, "states"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				l.versions = append(l.versions, l.versions[len(l.versions)-1].heavier())
			}
			limit := testParams.TTL
			if rapid.Bool().Draw(t, "leaves") {
				l.states[len(l.states)-1][0] = Left
				limit = testParams.forgetAfter()
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

// drawMessage draws a message that some node could send at f.now. Every heartbeat comes
// with its record: a Set drops a heartbeat without a record, so the order would matter.
func (f *fleet) drawMessage(t *rapid.T) *Message {
	var m *Message
	for range rapid.IntRange(1, 3).Draw(t, "rows") {
		l := f.drawLife(t)
		r := rapid.SampledFrom(l.versions).Draw(t, "record")
		if m == nil {
			m = messageFrom(f.now, r, nil)
		}
		m.Records = append(m.Records, r)
		if rapid.Bool().Draw(t, "with heartbeat") {
			i := rapid.IntRange(0, len(l.states)-1).Draw(t, "heartbeat")
			sent := func(i int) time.Time {
				return f.now.Add(-l.ended - time.Duration(len(l.states)-1-i)*time.Second)
			}
			b := r.sent(sent(i)).as(rapid.SampledFrom(l.states[i]).Draw(t, "state"))
			b.Load = int64(i)
			// The relay may know the age of a later heartbeat.
			b.Renewed = stampAt(sent(rapid.IntRange(i, len(l.states)-1).Draw(t, "latest")))
			m.Heartbeats = append(m.Heartbeats, b)
		}
	}
	return m
}

// fingerprint is all state that decides about later news. An incarnation that was
// replaced by a later one has ended, even if its own record never arrived.
func fingerprint(s *Set) string {
	var lines []string
	for _, e := range s.known {
		line := fmt.Sprintf("%s/%d %v", e.rec.ID, e.rec.Incarnation, e.status)
		cur := s.latest(e.rec.ID)
		switch {
		case e == s.self:
			continue
		case e.status == retired || (cur != nil && cur.rec.Incarnation > e.rec.Incarnation):
			line = fmt.Sprintf("%s/%d over", e.rec.ID, e.rec.Incarnation)
		case e.status == live:
			line += fmt.Sprintf(" v%d %v load %d of %d, renewed %d", e.rec.Version, e.state, e.load, e.rowAt, e.at)
		case e.status == pending:
			line += fmt.Sprintf(" v%d", e.rec.Version)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(append(lines, fmt.Sprintf("digest %x", s.View().Digest())), "\n")
}

// applyAll applies the messages and checks that Apply reports every change.
func applyAll(t *rapid.T, s *Set, now time.Time, messages []*Message) {
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
		want := fingerprint(one)
		if diff := cmp.Diff(want, fingerprint(two)); diff != "" {
			t.Fatalf("in order (-), shuffled with duplicates (+):\n%s", diff)
		}
		applyAll(t, one, f.now, messages)
		if diff := cmp.Diff(want, fingerprint(one)); diff != "" {
			t.Fatalf("once (-), twice (+):\n%s", diff)
		}
	})
}

// Two sets agree after a full exchange, for any messages received before.
func TestSyncBothWaysAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		heard := rapid.SliceOfN(rapid.Custom(f.drawMessage), 0, 8)
		one, two := newSet(rec("a", 1)), newSet(rec("z", 1))
		applyAll(t, one, f.now, heard.Draw(t, "heard by a"))
		applyAll(t, two, f.now, heard.Draw(t, "heard by z"))
		for range 2 {
			m, n := one.Sync(f.now), two.Sync(f.now)
			applyAll(t, two, f.now, []*Message{m})
			applyAll(t, one, f.now, []*Message{n})
		}
		if one.View().Digest() != two.View().Digest() {
			t.Fatalf("a sees %v, z sees %v", ids(one), ids(two))
		}
	})
}

// An ended lease stays ended: no order of old heartbeats, recorded or relayed, revives a node
// before the lease is forgotten.
func TestOldHeartbeatsReviveNoNode(t *testing.T) {
	b, last := rec("b", 5), epoch.Add(-time.Second)
	slack := int(2 * newSet(b).params.tick())
	old := func(slack int) *rapid.Generator[*Message] {
		return rapid.Custom(func(t *rapid.T) *Message {
			r := b
			if rapid.Bool().Draw(t, "earlier life") {
				r = rec("b", 4)
			}
			if rapid.Bool().Draw(t, "later version") {
				r = r.heavier()
			}
			age := rapid.IntRange(max(0, -slack), 7000).Draw(t, "age ms")
			heartbeat := r.sent(last.Add(-time.Duration(age) * ms))
			heartbeat.Renewed = heartbeat.At + Stamp(rapid.IntRange(0, age+slack).Draw(t, "later ms"))
			switch {
			case r.Incarnation == 4 && rapid.Bool().Draw(t, "leave"):
				heartbeat = heartbeat.as(Left)
			case age > 0:
				heartbeat = heartbeat.as(rapid.SampledFrom([]State{Settling, Active, Draining}).Draw(t, "state"))
			}
			m := messageFrom(epoch, r, []Heartbeat{heartbeat})
			if rapid.Bool().Draw(t, "with record") {
				m.Records = append(m.Records, r)
			}
			return m
		})
	}
	expire := func(s *Set) time.Time {
		now := epoch.Add(testParams.TTL + ms)
		s.Expire(now)
		return now
	}
	alone, later := []string{"a/1"}, rec("b", 6)
	for name, tc := range map[string]struct {
		end   func(s *Set) (now time.Time)
		live  []string
		slack int // ms by which old news may seem later than the latest heartbeat
	}{
		"expired": {expire, alone, slack},
		"left": {func(s *Set) time.Time {
			s.Apply(epoch, leave(epoch, b))
			return epoch
		}, alone, slack},
		"left, heard of late": {func(s *Set) time.Time {
			now := epoch.Add(testParams.TTL + time.Second)
			s.Apply(now, messageFrom(now, b, []Heartbeat{b.sent(epoch).as(Left)}))
			return now
		}, alone, slack},
		"superseded by one with a leave message": {func(s *Set) time.Time {
			s.Apply(epoch, messageFrom(epoch, later, []Heartbeat{later.sent(epoch).as(Left)}, later))
			return epoch
		}, alone, slack},
		"superseded": {func(s *Set) time.Time {
			s.Apply(epoch, hello(epoch, later))
			return epoch
		}, []string{"a/1", "b/6"}, slack},
		"superseded and expired": {func(s *Set) time.Time {
			s.Apply(epoch, hello(epoch, later))
			return expire(s)
		}, alone, slack},
		"forgotten": {func(s *Set) time.Time {
			s.ExpireOthers(epoch)
			return epoch
		}, alone, -1}, // the latest heartbeat itself counts again

	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, messageFrom(epoch, b, []Heartbeat{b.sent(last)}, b))
			now := tc.end(s)
			for range rapid.IntRange(1, 12).Draw(t, "messages") {
				m := old(tc.slack).Draw(t, "old news")
				if rapid.Bool().Draw(t, "relayed now") { // otherwise a recorded one
					m.Stamp, m.SentAt = stampAt(now), now
				}
				s.Apply(now, m)
				if got := ids(s); !slices.Equal(got, tc.live) {
					t.Fatalf("live: %v, want %v", got, tc.live)
				}
				// Remembered at least until forgetAfter has passed since the last heartbeat.
				step := time.Duration(rapid.IntRange(0, 4000).Draw(t, "wait ms")) * ms
				if now.Add(step).Before(last.Add(testParams.forgetAfter())) && len(tc.live) == 1 {
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

// A node that was forgotten is live again by the heartbeat that was known of it, for as long as
// that heartbeat would have held; and by the next one.
func TestForgottenNodesReturn(t *testing.T) {
	b := rec("b", 1)
	known := b.sent(epoch)
	earlier := b.sent(epoch.Add(-ms))
	for name, tt := range map[string]struct {
		heartbeat Heartbeat
		after     time.Duration
		live      bool
	}{
		"the same at once":                  {known, time.Second, true},
		"the same at the end":               {known, testParams.TTL, true},
		"the same after the end":            {known, testParams.TTL + ms, false},
		"an earlier one":                    {earlier, time.Second, false},
		"the next":                          {b.sent(epoch.Add(2 * time.Second)), 2 * time.Second, true},
		"the next, when the last has ended": {b.sent(epoch.Add(2 * time.Second)), testParams.TTL + ms, true},
	} {
		s := newSet(rec("a", 1))
		s.Apply(epoch, messageFrom(epoch, b, []Heartbeat{known}, b))
		s.ExpireOthers(epoch.Add(time.Second))
		if got := ids(s); !slices.Equal(got, []string{"a/1"}) {
			t.Fatalf("live: %v, want a alone", got)
		}
		now := epoch.Add(max(tt.after, time.Second))
		s.Apply(now, messageFrom(now, b, []Heartbeat{tt.heartbeat}, b))
		if live := member(s, "b") != nil; live != tt.live {
			t.Errorf("%s: b is live: %v, want %v", name, live, tt.live)
		}
		if end, ok := s.NextDeadline(); tt.live && (!ok || !end.Equal(s.time.local(tt.heartbeat.At).Add(testParams.TTL+ms))) {
			t.Errorf("%s: the lease ends at %v", name, end.Sub(epoch))
		}
	}
}

// After a chain of relays, a heartbeat or leave message has the same content and stamp. Its age is
// at least the true age minus the transit time, although the relays had estimated
// cluster time as earlier than it was.
func TestRelayingNeverProlongsALease(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rec("src", 1)
		carrier := newSet(source)
		state := rapid.SampledFrom([]State{Settling, Active, Draining, Left}).Draw(t, "state")
		limit := testParams.TTL
		if state == Left {
			limit = testParams.forgetAfter()
		}
		carrier.SetState(state)
		carrier.Heartbeat(epoch, 1, 2)
		sent, now, transit := carrier.self.at, epoch, time.Duration(0)
		span := rapid.Map(rapid.IntRange(0, 800), func(n int) time.Duration { return time.Duration(n) * ms })
		for hop := range rapid.IntRange(1, 6).Draw(t, "hops") {
			now = now.Add(span.Draw(t, "held for"))
			m, err := Decode(Encode(carrier.Sync(now)))
			if err != nil {
				t.Fatal(err)
			}
			under := span.Draw(t, "under way")
			now, transit = now.Add(under), transit+under
			carrier = newSet(rec(NodeID(fmt.Sprintf("r%d", hop)), 1))
			carrier.advance(now, -stamps(span.Draw(t, "behind")))
			carrier.Apply(now, m)
			truth := now.Sub(epoch)
			if truth > limit {
				return // about to be rejected
			}
			got := carrier.known[source.Handle()]
			if got == nil || !got.spreads() || got.state != state || got.rowAt != sent || got.at != sent || got.table != 2 {
				t.Fatalf("hop %d: %+v, %v old", hop, got, truth)
			}
			if live := member(carrier, "src") != nil; live != (state != Left) {
				t.Fatalf("hop %d: %v, live %v", hop, state, live)
			}
			if a := carrier.age(now, got); a < truth-transit-ms || a > truth {
				t.Fatalf("hop %d: age %v, truly %v, %v of it under way", hop, a, truth, transit)
			}
		}
	})
}
