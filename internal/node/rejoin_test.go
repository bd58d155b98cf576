package node

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// The latest 64 losses are remembered, for a day, until they are members again.
func TestLost(t *testing.T) {
	now := at(0)
	var l lost
	l.add(now, numbered(3)) // "0", "1", "2"
	l.add(now.Add(time.Hour), []string{"1", "3"})
	for _, tt := range []struct {
		after   time.Duration
		members string
		want    string
	}{
		{time.Hour, "", "0 1 2 3"},
		{time.Hour, "2 x", "0 1 3"},
		{24 * time.Hour, "", "0 1 3"},
		{24*time.Hour + 1, "", "3"},
		{25*time.Hour + 1, "", ""},
	} {
		if got := strings.Join(l.addrs(now.Add(tt.after), strings.Fields(tt.members)), " "); got != tt.want {
			t.Errorf("after %v, with the members %q: %q, want %q", tt.after, tt.members, got, tt.want)
		}
	}
	l.add(now, numbered(60))
	l.add(now, []string{"a", "b", "c", "d", "e", "f"})
	if all := l.addrs(now, nil); len(all) != maxLost || all[0] != "2" || all[maxLost-1] != "f" {
		t.Errorf("%d are remembered: %v", len(all), all)
	}
}

// dials returns how often the nodes of a network try an address while time passes.
func (w *network) dials(addr string, span time.Duration) (count int) {
	for end := w.now.Add(span); w.now.Before(end); {
		w.run(10 * time.Millisecond)
		for _, id := range w.ids {
			count += len(slices.DeleteFunc(w.last[id].Exchanges, func(x Exchange) bool { return x.Addr != addr || w.stuck[id] }))
		}
	}
	return count
}

// A lost member is tried for a day, by a few of the others in each attempt; a member that
// has left is not tried at all.
func TestTriesLostMembers(t *testing.T) {
	w := newNetwork(t, nil, numbered(30)...)
	w.run(5 * time.Second)
	w.nodes["14"].Leave(w.now)
	w.run(time.Second)
	w.stuck["14"], w.stuck["15"] = true, true
	w.run(10 * time.Second)
	if lost := w.dials("15", 100*time.Second); lost < 10*lostAtOnce*2/3 || lost > 10*lostAtOnce*3/2 {
		t.Errorf("the lost member was tried %d times, want about %d", lost, 10*lostAtOnce)
	}
	if n := w.dials("14", 30*time.Second); n > 0 {
		t.Errorf("a member that left was tried %d times", n)
	}
	delete(w.stuck, "15")
	w.run(30 * time.Second)
	if n := w.dials("15", 30*time.Second); n > 0 {
		t.Errorf("a member was tried %d times", n)
	}
}

// Two returns cost nothing, and one more every ten TTLs. A hold lasts two TTLs at least, and
// thirty at most, however many returns there were and whatever an earlier record says.
func TestDampingOfReturns(t *testing.T) {
	const ttl = 6 * time.Second
	for name, tt := range map[string]struct {
		inherited int   // TTLs for which returns count at the start
		returns   []int // TTLs after the start
		holds     []int // TTLs from each of them on; 0 = none
	}{
		"once":                    {0, []int{0}, []int{0}},
		"three in ten TTLs":       {0, []int{0, 4, 9}, []int{0, 0, 3}},
		"three in eleven":         {0, []int{0, 5, 11}, []int{0, 0, 0}},
		"at once":                 {0, []int{0, 0, 0, 0, 0, 0}, []int{0, 0, 12, 22, 30, 30}},
		"every ten TTLs":          {0, []int{0, 10, 20, 30, 40, 50}, []int{0, 0, 0, 0, 0, 0}},
		"every two TTLs":          {0, []int{0, 2, 4, 6, 8, 10}, []int{0, 0, 8, 16, 24, 30}},
		"after it has stayed":     {0, []int{0, 0, 0, 22, 32}, []int{0, 0, 12, 0, 0}},
		"after half of that time": {0, []int{0, 0, 0, 15}, []int{0, 0, 12, 7}},
		"an earlier process":      {20, []int{0, 100}, []int{12, 0}},
		"a forged record":         {1 << 20, []int{0, 49}, []int{30, 0}},
	} {
		d := damping{ttl: ttl}
		d.inherit(at(0), at(0).Add(time.Duration(tt.inherited)*ttl))
		for i, r := range tt.returns {
			now := at(0).Add(time.Duration(r) * ttl)
			if due(now, d.until) {
				d.until = time.Time{}
			}
			hold := time.Duration(0)
			if d.returned(now) {
				hold = d.until.Sub(now)
			}
			if want := time.Duration(tt.holds[i]) * ttl; hold != want {
				t.Errorf("%s: flapping for %v after return %d, want %v", name, hold, i+1, want)
			}
		}
	}
	d := damping{ttl: ttl}
	for range 9 {
		d.returned(at(0))
	}
	d.forgive(at(0))
	if flapping := !d.until.IsZero(); flapping || !d.returned(at(0)) || !d.until.Equal(at(0).Add(12*ttl)) {
		t.Errorf("flapping after a pardon: %v; after the next return until %v", flapping, d.until)
	}
}

// A node with a record that is as long as it can be cannot say that it is flapping. So it is not.
func TestNoHoldWithoutWord(t *testing.T) {
	for _, full := range []bool{false, true} {
		w := newNetwork(t, func(cfg *Config) {
			if full && cfg.Self.ID == "b" {
				cfg.Self.Labels = map[string]string{}
				for i := range lease.MaxLabels {
					cfg.Self.Labels[strconv.Itoa(10+i)] = strings.Repeat("v", lease.MaxLabelBytes)
				}
				for cfg.Self.Validate() != nil {
					cfg.Self.Labels["10"], cfg.Self.Labels["11"] = cfg.Self.Labels["11"], cfg.Self.Labels["10"][1:]
				}
			}
		}, "a", "b")
		b := w.nodes["b"]
		for range 4 {
			b.damping.countReturn(w.now)
		}
		w.run(time.Second)
		said, flapping := b.set.Self().FlappingUntil > 0, b.life.holds.has(CauseFlapping)
		if said == full || flapping == full || b.damping.until.IsZero() != full {
			t.Errorf("full record: %v; the node says that it is flapping: %v; it is: %v", full, said, flapping)
		}
	}
}

// The leave message of the process before this one may come after its record: then nothing counts.
func TestLateLeave(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	past := &lease.Record{
		Profile:       lease.Profile{ID: "b", Incarnation: 1, Addr: "b"},
		Version:       1,
		RecentReturns: a.set.Stamp(w.now.Add(20 * b.cfg.LeaseTTL)),
	}
	hear := func(heartbeats ...lease.Heartbeat) {
		at := a.set.Stamp(w.now)
		b.apply(w.now, &lease.Message{From: a.set.Handle(), Stamp: at, SentAt: w.now, Records: []*lease.Record{past}, Heartbeats: heartbeats})
		b.Ready(w.now)
	}
	if hear(); !b.life.holds.has(CauseFlapping) || b.set.Self().FlappingUntil == 0 {
		t.Fatal("not flapping after a crash")
	}
	w.run(100 * time.Millisecond)
	at := a.set.Stamp(w.now)
	hear(lease.Heartbeat{Handle: lease.Incarnation{Node: "b", Number: 1}.Handle(), At: at, Renewed: at, State: lease.Left})
	if b.life.holds.has(CauseFlapping) || b.set.Self().FlappingUntil != 0 || b.set.Self().RecentReturns != 0 {
		t.Errorf("flapping after a leave message: %v, %+v", b.life.holds.has(CauseFlapping), b.set.Self())
	}
	if _, err := lease.Decode(b.Sync(w.now)); err != nil {
		t.Errorf("nobody can read its state: %v", err)
	}
}

// A step of cluster time changes what a node states as the end of its hold, not the end.
func TestHoldAfterStep(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	a, b := w.nodes["a"], w.nodes["b"]
	for range 4 {
		b.damping.countReturn(w.now)
	}
	until := b.damping.until
	ahead := a.set.Stamp(w.now.Add(10 * time.Second))
	echo := a.set.Echo(w.now, b.set.Challenge(w.now, 7))
	echo.Stamp = ahead
	b.apply(w.now, echo)
	b.Ready(w.now)
	said, hold := b.set.Until(w.now, b.set.Self().FlappingUntil), until.Sub(w.now)
	if !b.damping.until.Equal(until) || (said-hold).Abs() > time.Second || b.set.Stamp(w.now) < ahead {
		t.Errorf("flapping for %v, and states %v", until.Sub(w.now), said)
	}
}
