package node

import (
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

var epoch = time.Unix(1_700_000_000, 0)

// at returns the time that is ms milliseconds after epoch.
func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// A settling node waits until no node has joined for two debounces, but not longer than the grace period. It does not
// wait once another node is active.
func TestSettle(t *testing.T) {
	for name, tt := range map[string]struct {
		joins        []int // when other nodes join, in ms
		othersActive int   // since when another node is active; 0 = never
		want         int
	}{
		"alone":             {nil, 0, 500},
		"one more node":     {[]int{300}, 0, 800},
		"a stream of nodes": {[]int{300, 700, 1100, 1500, 1900}, 0, 2000},
		"others are active": {[]int{100}, 100, 100},
	} {
		l := lifecycle{debounce: 250 * time.Millisecond, grace: 2 * time.Second}
		l.joined(epoch, true)
		got := -1
		for ms := 0; ms <= 3000 && got < 0; ms += 100 {
			for _, join := range tt.joins {
				if join == ms {
					l.extend(at(ms))
				}
			}
			if l.settle(at(ms), tt.othersActive > 0 && ms >= tt.othersActive) {
				got = ms
			}
		}
		if got != tt.want || l.phase != Active || !l.entering {
			t.Errorf("%s: %v after %d ms, want %d", name, l.phase, got, tt.want)
		}
	}
}

// The phase and the holds of a node determine which state it announces, and whether it computes tables.
func TestPhases(t *testing.T) {
	for _, tt := range []struct {
		life   lifecycle
		state  lease.State
		places bool
	}{
		{lifecycle{phase: Joining}, lease.Settling, false},
		{lifecycle{phase: Joining, holds: holds{CauseDraining: {}}}, lease.Settling, false},
		{lifecycle{phase: Settling}, lease.Settling, false},
		{lifecycle{phase: Settling, clockFenced: true, holds: holds{CauseClockAhead: {}}}, lease.Settling, true},
		{lifecycle{phase: Isolated}, lease.Settling, false},
		{lifecycle{phase: Isolated, holds: holds{CauseDraining: {}}}, lease.Settling, false},
		{lifecycle{phase: Active}, lease.Active, true},
		{lifecycle{phase: Active, holds: holds{CauseDraining: {}}}, lease.Draining, true},
		{lifecycle{phase: Active, holds: holds{CauseUnhealthy: {}}}, lease.Draining, true},
		{lifecycle{phase: Joining, holds: holds{CauseUnhealthy: {}}}, lease.Settling, false},
		{lifecycle{phase: Over}, lease.Left, false},
		{lifecycle{phase: Over, holds: holds{CauseDraining: {}}}, lease.Left, false},
	} {
		if got := tt.life.state(); got != tt.state || tt.life.places() != tt.places {
			t.Errorf("%+v: announces %v, places %v", tt.life, got, tt.life.places())
		}
	}
}

// After a clock fence, a node settles until its clock is right, and then becomes active immediately. After a lease
// fence, it joins again.
func TestFences(t *testing.T) {
	l := lifecycle{debounce: 250 * time.Millisecond, grace: 2 * time.Second, phase: Active}
	l.fenceClock(at(100))
	if l.phase != Settling || !l.places() {
		t.Errorf("clock fence: %+v", l)
	}
	l.extend(at(5000)) // other nodes join in that time
	if !l.settle(at(5000), false) || l.clockFenced {
		t.Errorf("the clock is right again: %+v", l)
	}
	l.fenceClock(at(6000))
	l.fence()
	if l.phase != Joining || l.places() || l.settle(at(60_000), true) {
		t.Errorf("lease fence: %+v", l)
	}
}

// A node is isolated while it sees fewer members than it needs, and while another process may run under its id.
func TestIsolation(t *testing.T) {
	later := &lease.Record{Profile: lease.Profile{Addr: "10.0.0.9:7946"}}
	type look struct {
		members         int
		tooFew, changed bool
		other           *lease.Record
	}
	for name, tt := range map[string]struct {
		least int
		looks []look
	}{
		"off":     {1, []look{{1, false, false, nil}, {9, false, false, nil}, {1, false, false, nil}}},
		"a start": {3, []look{{1, true, true, nil}, {2, true, false, nil}, {3, false, true, nil}, {4, false, false, nil}}},
		"a split": {
			3,
			[]look{{5, false, false, nil}, {3, false, false, nil}, {2, true, true, nil}, {2, true, false, nil}, {5, false, true, nil}},
		},
		"at the limit":              {2, []look{{2, false, false, nil}, {1, true, true, nil}, {2, false, true, nil}, {1, true, true, nil}}},
		"another process of its id": {2, []look{{3, true, true, later}, {1, true, false, later}, {3, false, true, nil}, {1, true, true, nil}}},
	} {
		i, was := isolation{least: tt.least}, false
		for at, look := range tt.looks {
			is := i.tooFew(look.members) != "" || i.duplicate(look.other) != ""
			if is != look.tooFew || (is != was) != look.changed {
				t.Errorf("%s, look %d: %v, want %+v", name, at, is, look)
			}
			was = is
		}
	}
}

// Once an isolated node sees enough members, it waits for two debounces, unless other nodes are active. Until then its
// phase is Isolated, while the phase of a new node would be Settling.
func TestIsolatedNodeSettles(t *testing.T) {
	for _, othersActive := range []bool{false, true} {
		l := lifecycle{debounce: 250 * time.Millisecond, grace: 2 * time.Second, phase: Active}
		l.isolate()
		l.wait(at(1000), true)
		if l.phase != Isolated || l.places() {
			t.Fatalf("sees enough members: %+v", l)
		}
		if got := l.settle(at(1100), othersActive); got != othersActive {
			t.Errorf("others active: %v, but settled after 100 ms: %v", othersActive, got)
		}
		if l.settle(at(1500), false); l.phase != Active || !l.entering {
			t.Errorf("after two debounces: %+v", l)
		}
	}
}
