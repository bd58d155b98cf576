package lease_test

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// If two clusters meet, cluster time may step ahead. The leases at a node then last as long as before, but the node
// relays their heartbeats with their ages in the new time.
func TestStepAheadRelaysNothingYounger(t *testing.T) {
	const behind = 4 * time.Second
	b, c := rec("b", 1), rec("c", 1)
	s := startSet(epoch.Add(-behind), rec("a", 1), testParams)
	before := messageFrom(epoch.Add(-behind), b, []lease.Heartbeat{sent(b, epoch.Add(-behind)), sent(c, epoch.Add(-behind-time.Second))}, b, c)
	s.Apply(epoch.Add(-behind), before)
	wantIDs(t, s, "a/1", "b/1", "c/1")
	e := s.Apply(epoch.Add(-behind), messageFrom(epoch, b, []lease.Heartbeat{sent(b, epoch)}))
	if !e.Counts || s.Stamp(epoch.Add(-behind)) != stampAt(epoch) {
		t.Fatalf("%+v, cluster time %v", e, s.Stamp(epoch.Add(-behind)))
	}
	want := messageFrom(epoch, b, nil)
	want.PullRecords = []lease.Handle{c.Handle()}
	for _, m := range append(answer(s, epoch.Add(-behind), want, 1400), s.Sync(epoch.Add(-behind))) {
		for _, row := range carry(t, m).Heartbeats {
			if sent := stampAt(epoch.Add(-behind - time.Second)); row.Handle == c.Handle() && row.Renewed != sent {
				t.Errorf("a heartbeat of %d is relayed as of %d", sent, row.Renewed)
			}
		}
	}
	if age := epoch.Add(-behind).Sub(member(s, "c").Renewed); age != time.Second {
		t.Errorf("c's lease is shown as %v old", age)
	}
	end := epoch.Add(-behind - time.Second + testParams.TTL) // by a's clock
	if deadline, ok := s.NextDeadline(); !ok || !deadline.Equal(end.Add(ms)) {
		t.Errorf("the next deadline is %v, want %v", deadline, end.Add(ms))
	}
	s.Expire(end)
	wantIDs(t, s, "a/1", "b/1", "c/1")
	if age := end.Sub(member(s, "c").Renewed); age != testParams.TTL {
		t.Errorf("c's lease is shown as %v old when it ends", age)
	}
	s.Expire(end.Add(ms))
	wantIDs(t, s, "a/1", "b/1")
}

// If a provisional node learns that cluster time is earlier than its clock, it stops relaying what it received before,
// because other newcomers may have had wrong clocks, too.
func TestStepBackRelaysNothing(t *testing.T) {
	ahead := epoch.Add(10 * time.Minute)
	b, c := rec("b", 1), rec("c", 1)
	params := testParams
	params.MaxSkew = time.Hour // c's clock is not rejected
	s := lease.NewSet(ahead, *rec("a", 1), params)
	s.Believe(trusted)
	provisional := hello(ahead, c)
	provisional.Provisional = true
	s.Apply(ahead, provisional)
	s.Challenge(ahead, 5)
	answer := hello(epoch, b)
	answer.Echo = 5
	s.Apply(ahead, answer)
	wantIDs(t, s, "a/1", "b/1", "c/1")
	other := startSet(epoch, rec("d", 1), params)
	other.Apply(epoch, carry(t, s.Sync(ahead)))
	wantIDs(t, other, "a/1", "b/1", "d/1") // not c

	at := epoch.Add(2 * time.Second) // c has learned cluster time, too
	s.Apply(ahead.Add(2*time.Second), messageFrom(at, c, []lease.Heartbeat{sent(c, at)}))
	other.Apply(at, carry(t, s.Sync(ahead.Add(2*time.Second))))
	wantIDs(t, other, "a/1", "b/1", "c/1", "d/1")
}
