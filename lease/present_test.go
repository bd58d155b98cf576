package lease_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/lease"
)

// Whether a message counts and moves cluster time depends on its stamp and sender. Node a knows b, which is
// live, and c and d, which have expired. d has recently answered a challenge.
func TestWhichTimeCounts(t *testing.T) {
	const ttl = 6 * time.Second
	now := epoch.Add(2 * ttl)
	b, c, d, outsider := rec("b", 1), rec("c", 1), rec("d", 1), rec("s", 1)
	withRecord := func(m *lease.Message) { m.Records = []*lease.Record{outsider} }
	provisional := func(m *lease.Message) { m.Provisional = true }
	echo := func(nonce uint64) func(*lease.Message) { return func(m *lease.Message) { m.Echo = nonce } }
	type want struct {
		counts    bool
		moved     time.Duration // of cluster time
		challenge string
		told      bool // the sender gets an answer with the time or the live nodes
		counted   bool // the set counts it as a message with a different time
	}
	for _, tc := range []struct {
		name   string
		from   *lease.Record
		ahead  time.Duration
		change func(m *lease.Message)
		want   want
	}{
		{"near, ahead", b, ttl / 8, nil, want{counts: true, moved: ttl / 8}},
		{"near, and the own lease has ended by then", b, ttl, nil, want{challenge: "b:7946"}},
		{"near, behind", b, -ttl, nil, want{counts: true}},
		{"near, unknown node", outsider, 0, nil, want{}},
		{"near, unknown node with its record", outsider, 0, withRecord, want{challenge: "s:7946"}},
		{"near, expired", c, 0, nil, want{told: true, challenge: "c:7946"}},
		{"ahead, expired, ran just now", d, ttl / 8, nil, want{told: true, counts: true, moved: ttl / 8}},
		{"far ahead, expired, ran just now", d, ttl + ms, nil, want{told: true, challenge: "d:7946", counted: true}},
		{"far ahead, live", b, ttl + ms, nil, want{challenge: "b:7946"}},
		{"a year ahead, live, answers", b, 365 * 24 * time.Hour, echo(4711), want{counts: true, moved: 365 * 24 * time.Hour}},
		{"far ahead, unknown node", outsider, ttl + ms, nil, want{counted: true}},
		{"far ahead, unknown node with its record", outsider, ttl + ms, withRecord, want{challenge: "s:7946", counted: true}},
		{"far ahead, expired", c, ttl + ms, nil, want{told: true, challenge: "c:7946", counted: true}},
		{"far ahead, this node's handle", rec("a", 1), ttl + ms, nil, want{counts: true, moved: ttl + ms}},
		{"far behind, live", b, -ttl - ms, nil, want{told: true, counted: true}},
		{"far behind, unknown node", outsider, -ttl - ms, nil, want{counted: true}},
		{"an answer to the challenge", outsider, ttl / 8, echo(4711), want{counts: true, moved: ttl / 8}},
		{"a wrong answer", c, ttl + ms, echo(4712), want{told: true, challenge: "c:7946", counted: true}},
		{"an answer from the past", outsider, -time.Hour, echo(4711), want{counts: true}},
		{"near, provisional", outsider, 0, provisional, want{}},
		{"far ahead, provisional", b, time.Hour, provisional, want{}},
		{"far behind, provisional", b, -time.Hour, provisional, want{}},
		{"a provisional answer", outsider, 0, func(m *lease.Message) { m.Provisional, m.Echo = true, 4711 }, want{}},
		{"beyond measure, live", b, 0, func(m *lease.Message) { m.Stamp = lease.MaxStamp }, want{counted: true}},
		{"far enough ahead to overflow a duration", outsider, 0, func(m *lease.Message) { m.Stamp += 1<<58/15625 + 1 }, want{counted: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSet(rec("a", 1))
			s.Apply(epoch, hello(epoch, c))
			s.Apply(epoch, hello(epoch, d))
			s.Apply(now, hello(now, b))
			s.Expire(now)
			s.Challenge(now, 4711)
			at := now.Add(lease.ChallengeLife)
			s.Believe(map[lease.Handle]time.Time{d.Handle(): at.Add(-ttl), c.Handle(): at.Add(-ttl - ms)})
			m := messageFrom(at, tc.from, nil)
			m.Stamp += stamps(tc.ahead)
			if tc.change != nil {
				tc.change(m)
			}
			past, before := s.Stats(), s.Stamp(at)
			e := s.Apply(at, m)
			counted := minus(s.Stats(), past)
			got := want{
				e.Counts, millis(s.Stamp(at) - before), e.Challenge, len(s.Replies(at, m, e, 1400)) > 0,
				counted.FromFuture+counted.FromPast > 0,
			}
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			for _, m := range s.View().Members {
				if age := at.Sub(m.Renewed); m.ID != "a" && age != lease.ChallengeLife && tc.want.moved > ttl/16 {
					t.Errorf("after the step, %s is %v old", m.ID, age)
				}
			}
		})
	}
}

// A set answers a challenge at the address in the challenger's record. The answer is longer than the
// challenge by at most the challenger's heartbeat.
func TestEcho(t *testing.T) {
	s, other := newSet(rec("a", 1)), offSet(epoch, 0, rec("b", 1))
	c := carry(t, s.Challenge(epoch, 7))
	other.Apply(epoch, c)
	if to := other.EchoTo(c); to != "a:7946" {
		t.Errorf("it is sent to %q", to)
	}
	if echo := carry(t, other.Echo(epoch, c)); echo.Echo != 7 || len(lease.Encode(echo)) > len(lease.Encode(c)) {
		t.Errorf("%+v is no echo of %+v", echo, c)
	}
	s.Heartbeat(epoch, 1<<40, 0xffffffff)
	other.Apply(epoch, carry(t, s.Sync(epoch)))
	echo := carry(t, other.Echo(epoch, c))
	if len(echo.Heartbeats) != 1 || len(lease.Encode(echo)) > len(lease.Encode(c))+lease.MaxHeartbeatBytes {
		t.Errorf("%+v is no echo of %+v", echo, c)
	}
}

// The answer to a nonce of a stream shows that the sender is running. Only the answer to a packet shows that packets
// arrive in both directions, which is required before a full state is applied.
func TestNonceOfStreams(t *testing.T) {
	s, b := startSet(epoch, rec("a", 1), testParams), rec("b", 1)
	s.Believe(make(map[lease.Handle]time.Time))
	m := hello(epoch, b)
	for _, tt := range []struct {
		nonce    uint64
		bothWays bool
		waits    string
	}{
		{s.StreamNonce(epoch, 7), false, "b:7946"},
		{s.Challenge(epoch, 9).Challenge, true, ""},
	} {
		answer := messageFrom(epoch, b, nil)
		answer.Echo = tt.nonce
		e := s.Apply(epoch, answer)
		waits := ""
		if r, _ := s.Unconfirmed(epoch, m); r != nil {
			waits = r.Addr
		}
		if !e.Answered || !e.Counts || e.BothWays != tt.bothWays || waits != tt.waits {
			t.Errorf("%x is answered: %v, both ways: %v; the state waits for %q", tt.nonce, e.Answered, e.BothWays, waits)
		}
	}
}

// A set uses a nonce for ChallengeLife, and accepts answers to it for twice as long. A sender that answered counts for
// a TTL.
func TestNonces(t *testing.T) {
	s, b := startSet(epoch, rec("a", 1), testParams), rec("b", 1)
	answered := make(map[lease.Handle]time.Time)
	s.Believe(answered)
	answers := func(at time.Duration, nonce uint64) bool {
		clear(answered)
		m := messageFrom(epoch.Add(at), b, nil)
		m.Echo = nonce
		e := s.Apply(epoch.Add(at), m)
		return e.Counts && e.Answered
	}
	nonce := func(at time.Duration, random, want uint64) {
		t.Helper()
		if got := s.Challenge(epoch.Add(at), random).Challenge; got != want {
			t.Errorf("%v later, the nonce is %d, want %d", at, got, want)
		}
	}
	if answers(0, 0) || answers(0, lease.OverStream) {
		t.Error("no number is an answer")
	}
	nonce(0, 7, 7)
	nonce(lease.ChallengeLife, 8, 7)
	if answers(lease.ChallengeLife, 0) || answers(lease.ChallengeLife, lease.OverStream) {
		t.Error("the nonce before the first is an answer")
	}
	if answers(0, 8) || !answers(lease.ChallengeLife, 7) || !answers(2*lease.ChallengeLife, 7) || answers(2*lease.ChallengeLife+ms, 7) {
		t.Error("answers with the first nonce")
	}
	nonce(lease.ChallengeLife+ms, 8, 8)
	if !answers(2*lease.ChallengeLife, 7) || answers(2*lease.ChallengeLife+2*ms, 7) || !answers(2*lease.ChallengeLife+2*ms, 8) {
		t.Error("answers with the second nonce")
	}
	nonce(10*lease.ChallengeLife, 9, 9)
	if answers(10*lease.ChallengeLife, 8) || answers(10*lease.ChallengeLife, 7) {
		t.Error("old answers count")
	}

	at := 10 * lease.ChallengeLife
	for i := range uint64(2 * lease.MaxNodes) {
		m := messageFrom(epoch.Add(at), rec("c", 100+i), nil)
		m.Echo = 9
		s.Apply(epoch.Add(at), m)
	}
	if n := len(answered); n != lease.MaxNodes {
		t.Errorf("%d senders are remembered", n)
	}
	if s.Expire(epoch.Add(at + testParams.TTL)); len(answered) != lease.MaxNodes {
		t.Error("forgotten within a TTL")
	}
	if s.Expire(epoch.Add(at + testParams.TTL + ms)); len(answered) > 0 {
		t.Error("never forgotten")
	}
	clear(trusted)
}

// A newcomer adopts exactly the time of the first established sender that it hears. Two newcomers adopt the later of
// their times. A newcomer's messages count once it is established.
func TestNewcomerTakesClusterTime(t *testing.T) {
	years := func(n int) time.Duration { return time.Duration(n) * 365 * 24 * time.Hour }
	for name, off := range map[string]time.Duration{
		"at once": 0, "a little ahead": time.Second, "a little behind": -time.Second, "an hour ahead": time.Hour,
		"an hour behind": -time.Hour, "clock in 1970": -epoch.Sub(time.Unix(0, 0)), "clock before 1970": -years(60),
		"clock in 2100": years(74),
	} {
		p := testParams
		p.MaxSkew = years(200)
		member, wall := startSet(epoch, rec("a", 1), p), epoch.Add(off)
		member.Apply(epoch, hello(epoch, rec("b", 1)))
		for _, challenged := range []bool{false, true} {
			s := lease.NewSet(wall, *rec("n", 1), p)
			early := lease.NewSet(wall, *rec("e", 1), p)
			s.Believe(map[lease.Handle]time.Time{early.Handle(): wall})
			s.Apply(wall, carry(t, early.Sync(wall))) // the newcomer knows this node before the step
			if got := member.Apply(epoch, carry(t, s.Sync(wall))); got.Counts || s.Established() {
				t.Errorf("%s: a member hears a newcomer: %+v", name, got)
			}
			m := carry(t, member.Sync(epoch))
			if challenged {
				m.Echo = s.Challenge(wall, 9).Challenge
			}
			e := s.Apply(wall, m)
			if e.Counts != challenged || !challenged && e.Challenge != "a:7946" {
				t.Errorf("%s, challenged %v: %+v", name, challenged, e)
			}
			if !e.Counts {
				continue
			}
			if got := s.Stamp(wall) - member.Stamp(epoch); got != 0 || !s.Established() {
				t.Errorf("%s: off by %d, established %v", name, got, s.Established())
			}
			wantIDs(t, s, "a/1", "b/1", "e/1", "n/1")
			for _, m := range s.View().Members {
				if age := wall.Sub(m.Renewed); age != 0 {
					t.Errorf("%s: %s is %v old", name, m.ID, age)
				}
			}
			trust(s.Handle())
			if e := member.Apply(epoch, carry(t, s.Sync(wall))); !e.Counts || member.AddrOf(s.Handle()) == "" {
				t.Errorf("%s: the member drops the established newcomer: %+v", name, e)
			}
		}
	}
	one, two := lease.NewSet(epoch, *rec("a", 1), testParams), lease.NewSet(epoch.Add(time.Second), *rec("b", 1), testParams)
	one.Believe(map[lease.Handle]time.Time{two.Handle(): epoch})
	two.Believe(map[lease.Handle]time.Time{one.Handle(): epoch.Add(time.Second)})
	one.Apply(epoch, two.Sync(epoch.Add(time.Second)))
	two.Apply(epoch.Add(time.Second), one.Sync(epoch))
	if one.Stamp(epoch) != two.Stamp(epoch.Add(time.Second)) || one.Established() {
		t.Errorf("two newcomers: %d and %d", one.Stamp(epoch), two.Stamp(epoch.Add(time.Second)))
	}
	if one.Establish(); !one.Established() {
		t.Error("not established")
	}
}

// A sender whose cluster time is far behind learns the current time from a live member.
func TestFarBehindIsToldTheTime(t *testing.T) {
	s, slow := newSet(rec("a", 1)), newSet(rec("b", 1))
	s.Apply(epoch, carry(t, slow.Sync(epoch)))
	slow.Apply(epoch, carry(t, s.Sync(epoch)))
	ahead := messageFrom(epoch.Add(time.Minute), slow.Self(), []lease.Heartbeat{sent(s.Self(), epoch)})
	ahead.Echo = s.Challenge(epoch, 5).Challenge
	s.Apply(epoch, ahead)
	now := epoch.Add(ms)
	behind := carry(t, slow.Sync(now))
	e := s.Apply(now, behind)
	told := s.Replies(now, behind, e, 1400)
	if len(told) != 1 || told[0].To != "b:7946" {
		t.Fatalf("told %+v: %+v", told, e)
	}
	if e := slow.Apply(now, carry(t, told[0].Message)); e.Counts || e.Challenge != "a:7946" || !e.Overdue {
		t.Errorf("%+v", e)
	}
	answer := carry(t, s.Echo(now, slow.Challenge(now, 7)))
	if e := slow.Apply(now, answer); !e.Counts || e.Suspended || slow.Stamp(now) != s.Stamp(now) {
		t.Errorf("%+v, off by %d", e, slow.Stamp(now)-s.Stamp(now))
	}
	if e := s.Apply(now, carry(t, slow.Sync(now))); !e.Counts {
		t.Errorf("still dropped: %+v", e)
	}
}

// A large step of cluster time keeps all ages, and a small step makes leases older. A record without a heartbeat never
// had a lease.
func TestStep(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{
		0: time.Second, 187 * ms: 1187 * ms, 188 * ms: time.Second, time.Hour: time.Second,
		-time.Hour: time.Second, // only a newcomer steps back
	} {
		s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
		known := messageFrom(epoch, b, []lease.Heartbeat{sent(b, epoch)}, b, c)
		if step < 0 {
			s = lease.NewSet(epoch, *rec("a", 1), testParams)
			s.Believe(trusted)
			known.Provisional = true
		}
		s.Apply(epoch, known)
		now := epoch.Add(time.Second)
		m := messageFrom(now, b, nil)
		m.Stamp += stamps(step)
		s.NextDeadline()
		if step < 0 {
			m.Echo = s.Challenge(now, 4711).Challenge
		}
		s.Apply(now, m)
		if at, _ := s.NextDeadline(); !at.Equal(now.Add(testParams.TTL + ms - want)) {
			t.Errorf("after a step of %v, the deadline is %v", step, at.Sub(now))
		}
		if age := now.Sub(member(s, "b").Renewed); age != want {
			t.Errorf("after a step of %v, the lease is %v old, want %v", step, age, want)
		}
		s.Expire(now.Add(2 * testParams.TTL))
		if slices.Contains(s.ExpiredHandles(), c.Handle()) || !slices.Contains(s.ExpiredHandles(), b.Handle()) {
			t.Errorf("after a step of %v, a record without a heartbeat had a lease", step)
		}
	}
}

// Whatever stamps a node receives, and from whatever sender, other nodes can still read its messages, even after years.
// No lease lasts longer than the TTL.
func TestAnyStampLeavesANodeReadable(t *testing.T) {
	walls := []time.Time{
		{},
		time.Unix(0, 0),
		time.UnixMilli(1),
		epoch,
		time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		time.UnixMilli(lease.MaxStart),
		time.UnixMilli(lease.MaxStamp),
	}
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.SampledFrom(walls).Draw(t, "wall clock")
		s := startSet(now, rec("a", 1), testParams)
		if rapid.Bool().Draw(t, "provisional") {
			s = lease.NewSet(now, *rec("a", 1), testParams)
			s.Believe(trusted)
		}
		stamp := rapid.OneOf(rapid.Int64Range(1, lease.MaxStamp), rapid.Int64Range(lease.MaxStamp-10, lease.MaxStamp),
			rapid.Int64Range(lease.MaxStart-10, lease.MaxStart+10), rapid.Int64Range(-7000, 7000))
		readable := func() {
			for _, m := range []*lease.Message{s.Sync(now), s.Challenge(now, 1), s.Echo(now, &lease.Message{Challenge: 1})} {
				if _, err := lease.Decode(lease.Encode(m)); err != nil {
					t.Fatalf("at stamp %d: %v", m.Stamp, err)
				}
			}
		}
		readable()
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			r := rec(rapid.SampledFrom([]lease.NodeID{"b", "c"}).Draw(t, "from"), 1)
			m := messageFrom(epoch, r, nil, r)
			if m.Stamp = lease.Stamp(stamp.Draw(t, "stamp")); m.Stamp <= 7000 {
				m.Stamp = max(1, s.Stamp(now)+m.Stamp)
			}
			m.Provisional = rapid.Bool().Draw(t, "from a newcomer")
			m.Echo = uint64(rapid.IntRange(0, 1).Draw(t, "echo"))
			if m.Stamp > 9000 {
				b := sent(r, epoch)
				b.At = m.Stamp - lease.Stamp(rapid.IntRange(0, 9000).Draw(t, "age"))
				m.Heartbeats = []lease.Heartbeat{b}
			}
			got, err := lease.Decode(lease.Encode(m))
			if err != nil {
				continue
			}
			s.Apply(now, got)
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "wait")) * ms)
			s.Expire(now)
			readable()
		}
		now = now.Add(testParams.TTL + testParams.TTL/16 + ms) // a step within jitter
		if s.Expire(now); s.Live() != 1 {
			t.Fatalf("live after a TTL without heartbeats: %v", ids(s))
		}
		now = now.Add(math.MaxInt64) // 292 years
		s.Heartbeat(now, 0, 0)
		readable()
	})
}

// Within a TTL, many small steps of cluster time together make leases older by at most a sixteenth of the TTL.
// Otherwise other nodes could end the lease of a paused node before the node gives it up itself.
func TestManySmallSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, b, c := newSet(rec("a", 1)), rec("b", 1), rec("c", 1)
		s.Apply(epoch, hello(epoch, c))
		start := time.Duration(rapid.IntRange(0, 12000).Draw(t, "start")) * ms
		step := time.Duration(rapid.IntRange(1, 375).Draw(t, "step")) * ms
		every := time.Duration(rapid.IntRange(50, 2000).Draw(t, "every")) * ms
		ahead, paused := time.Duration(0), epoch.Add(start)
		for now, heard := epoch, false; now.Before(paused.Add(testParams.TTL)); now = now.Add(every) {
			if !heard && !now.Before(paused) {
				m := messageFrom(now.Add(ahead), b, []lease.Heartbeat{sent(b, now.Add(ahead)), sent(rec("a", 1), now)}, b)
				m.Echo = s.Question(now, 7).Challenge
				s.Apply(now, m)
				heard, paused = true, now
			}
			ahead += step
			m := messageFrom(now.Add(ahead), c,
				[]lease.Heartbeat{sent(c, now.Add(ahead)), {Handle: s.Handle(), At: s.Sync(now).Heartbeats[0].At, State: lease.Active, Version: 1}},
				c)
			m.Echo = s.Question(now, 7).Challenge // otherwise this node may have been suspended
			s.Apply(now, m)
			if !heard {
				continue
			}
			if age, truth := now.Sub(member(s, "b").Renewed), now.Sub(paused); age-truth > testParams.TTL/16 {
				t.Fatalf("a lease of %v counts as %v old", truth, age)
			}
		}
	})
}
