package node

import (
	"testing"
	"time"
)

// After a pause of more than an eighth of the TTL, no lease expires until the queues are empty. A shorter pause has no
// effect.
func TestPause(t *testing.T) {
	for name, tt := range map[string]struct {
		ttl   time.Duration
		pause time.Duration
		hold  time.Duration // after the pause
	}{
		"none":                 {6 * time.Second, 200 * time.Millisecond, 0},
		"at the limit":         {6 * time.Second, 750 * time.Millisecond, 0},
		"short":                {6 * time.Second, 751 * time.Millisecond, 500 * time.Millisecond},
		"longer than the TTL":  {6 * time.Second, time.Minute, 500 * time.Millisecond},
		"a TTL of one second":  {time.Second, 126 * time.Millisecond, 125 * time.Millisecond},
		"a TTL of one hour":    {time.Hour, 10 * time.Minute, 500 * time.Millisecond},
		"an hour, 7.5 minutes": {time.Hour, 450 * time.Second, 0},
	} {
		s := stall{ttl: tt.ttl, lastTurn: epoch}
		now := epoch.Add(tt.pause)
		s.turn(now)
		if got := max(0, s.holdExpiryUntil.Sub(now)); got != tt.hold {
			t.Errorf("%s: holds expiry for %v, want %v", name, got, tt.hold)
		}
		s.turn(now) // a second input of the same turn
		if got := max(0, s.holdExpiryUntil.Sub(now)); got != tt.hold {
			t.Errorf("%s: a second input changes it to %v", name, got)
		}
	}
}

// After a fence, messages are discarded for a while, and the end of this period is reported once.
func TestDiscard(t *testing.T) {
	s := stall{ttl: 6 * time.Second, lastTurn: epoch}
	if s.discarding(epoch) || s.discarded(epoch) {
		t.Error("discards before a fence")
	}
	s.discard(epoch)
	for ms, want := range map[int]bool{0: true, 499: true, 500: false} {
		if got := s.discarding(at(ms)); got != want {
			t.Errorf("after %d ms: discarding %v", ms, got)
		}
	}
	if s.discarded(at(499)) || !s.discarded(at(500)) || s.discarded(at(501)) {
		t.Error("the end of discarding is not reported once")
	}
}

// A node becomes a member via gossip alone after four debounces, or one debounce after it has asked for missing
// members.
func TestEnterAt(t *testing.T) {
	r := rejoin{debounce: 250 * time.Millisecond, began: epoch}
	if got := r.enterAt(); got != at(1000) {
		t.Errorf("enters after %v", got.Sub(epoch))
	}
	r.asked = at(3000) // the first packet came late
	if got := r.enterAt(); got != at(3250) {
		t.Errorf("enters after %v when it has asked", got.Sub(epoch))
	}
}
