package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A sender that is not live gets an answer, unless it sent a leave message.
func TestAnswerExpired(t *testing.T) {
	b, later := rec("b", 1), rec("b", 2)
	mute := rec("b", 1)
	mute.Addr = ""
	now := epoch.Add(testParams.TTL + time.Second)
	for _, tc := range []struct {
		name      string
		sender    *lease.Record
		history   []*lease.Message
		at        time.Time
		behind    bool
		answered  bool
		heartbeat lease.State // of the later incarnation, if the answer contains it
		record    bool
	}{
		{name: "unknown", sender: b, at: epoch},
		{name: "live", sender: b, history: []*lease.Message{hello(epoch, b)}, at: epoch},
		{
			name:     "live, with an earlier cluster time",
			sender:   b,
			history:  []*lease.Message{hello(epoch, b)},
			at:       epoch,
			behind:   true,
			answered: true,
		},
		{name: "unknown, with an earlier cluster time", sender: b, at: epoch, behind: true},
		{name: "left", sender: b, history: []*lease.Message{hello(epoch, b), leave(epoch, b)}, at: epoch},
		{name: "no address", sender: mute, history: []*lease.Message{hello(epoch, mute)}, at: now},
		{name: "expired", sender: b, history: []*lease.Message{hello(epoch, b)}, at: now, answered: true},
		{name: "too far ahead", sender: b, history: []*lease.Message{by(hello(epoch, b), time.Hour)}, at: epoch, answered: true},
		{
			name:   "replaced by a live one",
			sender: b,
			history: []*lease.Message{
				hello(epoch, b),
				messageFrom(epoch, later, []lease.Heartbeat{sent(later, epoch.Add(-2*time.Second))}, later),
			},
			at:        epoch,
			answered:  true,
			record:    true,
			heartbeat: lease.Active,
		},
		{
			name: "replaced by a crashed one", sender: b,
			history: []*lease.Message{hello(epoch, later), hello(now, b)}, at: now, answered: true, record: true,
		},
		{
			name: "replaced by one with a leave message", sender: b,
			history: []*lease.Message{hello(epoch, later), leave(epoch, later), hello(epoch, b)},
			at:      epoch, answered: true, record: true, heartbeat: lease.Left,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := crowd(300)
			for _, m := range tc.history {
				s.Apply(time.UnixMilli(int64(m.Stamp)), m)
			}
			s.Expire(tc.at)
			addr, m := answerExpired(s, tc.at, tc.sender.Handle(), tc.behind)
			if (m != nil) != tc.answered {
				t.Fatalf("answered %+v, want %v", m, tc.answered)
			}
			if m == nil {
				return
			}
			if wire := lease.Encode(m); len(wire) > 1400 || addr != "b:7946" {
				t.Errorf("%d bytes to %q", len(wire), addr)
			}
			record := len(m.Records) == 1 && m.Records[0].Incarnation == 2
			var heartbeat lease.State
			if len(m.Heartbeats) > 1 && m.Heartbeats[1].Handle == later.Handle() {
				heartbeat = m.Heartbeats[1].State
			}
			if record != tc.record || heartbeat != tc.heartbeat {
				t.Errorf("record %v, its heartbeat %v: %+v", record, heartbeat, m)
			}
			for i := 3; i < len(m.Heartbeats); i++ {
				if later, before := m.Heartbeats[i], m.Heartbeats[i-1]; max(later.At, later.Renewed) > max(before.At, before.Renewed) {
					t.Fatalf("row %d is fresher than the one before", i)
				}
			}
			carry(t, m)
			if _, again := answerExpired(s, tc.at.Add(lease.RequestInterval-1), tc.sender.Handle(), tc.behind); again != nil {
				t.Error("answered twice at once")
			}
			if _, again := answerExpired(s, tc.at.Add(lease.RequestInterval), tc.sender.Handle(), tc.behind); again == nil {
				t.Error("not answered later")
			}
		})
	}
}

// A node that is no longer live recovers after it has received the answer.
func TestAnsweredNodesRecover(t *testing.T) {
	b, later := rec("b", 1), rec("b", 2)
	t.Run("too far ahead", func(t *testing.T) {
		s, fast := newSet(rec("a", 1)), offSet(epoch, time.Hour, b)
		s.Apply(epoch, carry(t, fast.Sync(epoch.Add(time.Hour))))
		_, m := answerExpired(s, epoch, fast.Handle(), false)
		fast.Apply(epoch.Add(time.Hour), carry(t, m))
		fast.Apply(epoch.Add(time.Hour), carry(t, s.Sync(epoch))) // the record that it requests
		if got := fast.ClockAhead(); got != time.Hour {
			t.Errorf("ClockAhead() = %v", got)
		}
	})
	t.Run("replaced", func(t *testing.T) {
		s, old := newSet(rec("a", 1)), newSet(b)
		var e lease.Effect
		for i := range 3 {
			now := epoch.Add(time.Duration(i) * time.Second)
			s.Apply(now, hello(now, later))
			s.Apply(now, old.Sync(now))
			_, m := answerExpired(s, now, old.Handle(), false)
			e = old.Apply(now, carry(t, m))
		}
		if e.Duplicate == nil || e.Duplicate.Incarnation != 2 {
			t.Errorf("%+v", e)
		}
	})
	t.Run("replaced by a crashed one", func(t *testing.T) {
		s := newSet(rec("a", 1))
		s.Apply(epoch, hello(epoch, later))
		now := epoch.Add(testParams.TTL + ms)
		s.Expire(now)
		old := startSet(now, b, testParams)
		s.Apply(now, old.Sync(now))
		_, m := answerExpired(s, now, old.Handle(), false)
		old.Apply(now, carry(t, m))
		now = now.Add(testParams.TTL + ms)
		if !old.Expire(now) || old.Self().Incarnation <= 2 {
			t.Fatalf("not outbid: %+v", old.Self())
		}
		trust(old.Handle())
		s.Apply(now, old.Sync(now))
		if member(s, "b") == nil {
			t.Error("still not live")
		}
	})
	t.Run("replaced by one with a leave message", func(t *testing.T) {
		s, old := newSet(rec("a", 1)), newSet(b)
		s.Apply(epoch, hello(epoch, later))
		s.Apply(epoch, leave(epoch, later))
		now := epoch.Add(30 * time.Second)
		s.Apply(now, old.Sync(now))
		_, m := answerExpired(s, now, old.Handle(), false)
		if e := old.Apply(now, carry(t, m)); !e.Changed || !e.Urgent || old.Self().Incarnation <= 2 {
			t.Fatalf("not outbid at once: %+v, %+v", e, old.Self())
		}
		trust(old.Handle())
		s.Apply(now, old.Sync(now))
		if member(s, "b") == nil {
			t.Error("still not live")
		}
	})
}

// A set remembers why a lease ended as long as the node sends messages.
func TestAnswerExpiredRemembers(t *testing.T) {
	s, b := newSet(rec("a", 1)), rec("b", 1)
	s.Apply(epoch, messageFrom(epoch, b, nil, b))
	half := forgetAfter(testParams) / 2
	now := epoch
	for range 5 {
		now = now.Add(half)
		s.Expire(now)
		s.Apply(now, messageFrom(now, b, nil))
		if _, m := answerExpired(s, now, b.Handle(), false); m == nil {
			t.Fatalf("forgotten after %v", now.Sub(epoch))
		}
	}
	s.Expire(now.Add(forgetAfter(testParams) + 1))
	if s.Knows("b") {
		t.Error("never forgotten")
	}
}

// A sender that repeats a request of any kind gets at most maxDrawn messages in a burst, and maxDrawn more in each
// second. The repetitions do not reduce what other senders get.
func TestAnswersAreLimited(t *testing.T) {
	s := many(1000)
	members := slices.DeleteFunc(s.View().Members, func(m lease.Member) bool { return m.ID == "a" })
	handles := s.Handles()
	for i, tc := range []struct {
		name string
		ask  func(m *lease.Message)
	}{
		{"records", func(m *lease.Message) { m.PullRecords = handles[:lease.MaxPullRecords] }},
		{"rows", func(m *lease.Message) { m.PullLeases = handles[:lease.MaxPullLeases] }},
		{"buckets", func(m *lease.Message) { m.PullBuckets = []lease.BucketDigest{{BucketID: lease.BucketID{Bits: 4}}} }},
	} {
		name, ask := tc.name, tc.ask
		victim, other := members[2*i].Record, members[2*i+1].Record
		m := messageFrom(epoch, victim, nil)
		m.PullRecords = handles[:1]
		for answer(s, epoch.Add(time.Hour), m, 1400) != nil { // as if cluster time had stepped back since then
		}
		m = messageFrom(epoch, victim, nil)
		ask(m)
		if got := answer(s, epoch, m, 1400); got != nil {
			t.Errorf("%s: %d messages at once after a step", name, len(got))
		}
		const seconds = 3
		sent := 0
		for now := epoch.Add(2 * ms); now.Before(epoch.Add(seconds * time.Second)); now = now.Add(2 * ms) {
			sent += len(answer(s, now, m, 1400))
		}
		if sent > (seconds+1)*lease.MaxDrawn || sent < seconds*lease.MaxDrawn-1 {
			t.Errorf("%s: %d messages in %d s", name, sent, seconds)
		}
		m = messageFrom(epoch, other, nil)
		ask(m)
		sent = 0
		for range 2 * lease.MaxDrawn {
			sent += len(answer(s, epoch, m, 1400))
		}
		if sent != lease.MaxDrawn {
			t.Errorf("%s: %d messages to another sender", name, sent)
		}
	}
}
