package liveness

import (
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

func TestLiveness(t *testing.T) {
	const ttl = 6 * time.Second
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	members := func(incarnations ...lease.Incarnation) *cluster.Snapshot {
		s := new(cluster.Snapshot)
		for _, i := range incarnations {
			s.Members = append(s.Members, &cluster.Member{Profile: lease.Profile{ID: i.Node, Incarnation: i.Number}})
		}
		return s
	}
	crashed := func(i lease.Incarnation) *cluster.Snapshot { return &cluster.Snapshot{Crashed: []lease.Incarnation{i}} }
	left := func(i lease.Incarnation) *cluster.Snapshot { return &cluster.Snapshot{Left: []lease.Incarnation{i}} }
	first, second := lease.Incarnation{Node: "a", Number: 1}, lease.Incarnation{Node: "a", Number: 2}
	// trusted returns a detector whose own heartbeats have reached the store for a TTL.
	trusted := func() *Detector {
		l := New(ttl)
		for i := range 7 {
			l.HeartbeatArrived(at(float64(i)))
		}
		return l
	}
	for name, c := range map[string]struct {
		do    func(l *Detector)
		snap  *cluster.Snapshot
		of    lease.Incarnation
		now   time.Time
		want  Verdict
		known bool
	}{
		"none":                    {snap: members(first), want: Dead, known: true},
		"released":                {snap: members(first), of: lease.Incarnation{Node: "a"}, want: Dead, known: true},
		"live by gossip":          {snap: members(first), of: first, want: Alive, known: true},
		"later than gossip knows": {snap: members(first), of: second, want: Alive, known: true},
		"replaced":                {snap: members(second), of: first, want: Dead, known: true},
		"not known to gossip":     {snap: members(), of: first, now: at(6), want: Dead},
		"alive by the store": {
			do:    func(l *Detector) { l.Record(first, true, at(6)) },
			snap:  members(),
			of:    first,
			now:   at(6),
			want:  CutOff,
			known: true,
		},
		"dead by the store": {
			do:    func(l *Detector) { l.Record(first, false, at(6)) },
			snap:  members(),
			of:    first,
			now:   at(6),
			want:  Dead,
			known: true,
		},
		"dead by the store, long ago": {
			do:   func(l *Detector) { l.Record(first, false, at(6)) },
			snap: members(),
			of:   first,
			now:  at(12),
			want: Dead,
		},
		"store was away": {do: func(l *Detector) {
			l.StoreAway(true, at(6))
			l.HeartbeatArrived(at(7))
			l.Record(first, false, at(8))
		}, snap: members(), of: first, now: at(8), want: Unconfirmed, known: true},
		"own heartbeats had a gap": {do: func(l *Detector) {
			l.HeartbeatArrived(at(10))
			l.Record(first, false, at(10))
		}, snap: members(), of: first, now: at(10), want: Unconfirmed, known: true},
		"own heartbeats are late": {
			do:    func(l *Detector) { l.Record(first, false, at(9.5)) },
			snap:  members(),
			of:    first,
			now:   at(9.5),
			want:  Unconfirmed,
			known: true,
		},
		"dead for a host, just after the store was away": {do: func(l *Detector) {
			l.StoreAway(true, at(6))
			for i := range 7 {
				l.HeartbeatArrived(at(float64(7 + i)))
			}
			l.Record(first, false, at(13.5))
		}, snap: members(), of: first, now: at(13.5), want: Silent, known: true},
		"crashed":                  {snap: crashed(first), of: first, now: at(6), want: Dead, known: true},
		"left":                     {snap: left(first), of: first, now: at(6), want: Dead, known: true},
		"another incarnation left": {snap: left(first), of: second, now: at(6), want: Dead},
		"left, and the store has its heartbeat": {
			do: func(l *Detector) { l.Record(first, true, at(6)) }, snap: left(first), of: first, now: at(7), want: Dead, known: true,
		},
		"left while the store was away": {
			do: func(l *Detector) { l.StoreAway(true, at(6)) }, snap: left(first), of: first, now: at(7), want: Dead, known: true,
		},
		"another incarnation crashed": {snap: crashed(first), of: second, now: at(6), want: Dead},
		"crashed after it was cut off": {
			do: func(l *Detector) { l.Record(first, true, at(6)) }, snap: crashed(first), of: first, now: at(7), want: Dead, known: true,
		},
		"dead after it was cut off": {do: func(l *Detector) {
			l.Record(first, true, at(6))
			l.Record(first, false, at(7))
		}, snap: members(), of: first, now: at(7), want: Dead, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := trusted()
			if c.do != nil {
				c.do(l)
			}
			if v, known := l.Verdict(c.snap, c.of, c.now); v != c.want || known != c.known {
				t.Errorf("verdict %d, known %v; want %d, %v", v, known, c.want, c.known)
			}
			if gone := l.Gone(c.snap, c.of); c.of.Number > 0 && gone != (c.want == Dead) {
				t.Errorf("gone: %v, verdict %d", gone, c.want)
			}
		})
	}
}

// Unknown lists a cut-off incarnation until gossip says that it is live, was replaced, has crashed or has left.
func TestLivenessUnknown(t *testing.T) {
	a, b := lease.Incarnation{Node: "a", Number: 1}, lease.Incarnation{Node: "b", Number: 1}
	crashed, left := lease.Incarnation{Node: "c", Number: 1}, lease.Incarnation{Node: "d", Number: 1}
	now := time.Now()
	l := New(time.Second)
	l.Record(a, true, now)
	l.Record(b, true, now)
	l.Record(crashed, true, now)
	l.Record(left, true, now)
	for i, c := range []struct {
		snap cluster.Snapshot
		ask  int
		died bool
	}{
		{cluster.Snapshot{}, 4, false},
		{cluster.Snapshot{Left: []lease.Incarnation{left}}, 3, true},
		{cluster.Snapshot{Members: []*cluster.Member{{Profile: lease.Profile{ID: "a", Incarnation: 1}}}}, 2, false}, // gossip reaches a again
		{cluster.Snapshot{Members: []*cluster.Member{{Profile: lease.Profile{ID: "b", Incarnation: 2}}}}, 1, true},  // b has restarted
		{cluster.Snapshot{Crashed: []lease.Incarnation{crashed}}, 0, true},
		{cluster.Snapshot{}, 0, false},
	} {
		if ask, died := l.Unknown(&c.snap, now); len(ask) != c.ask || died != c.died {
			t.Errorf("step %d: asks for %v, died %v; want %d, %v", i, ask, died, c.ask, c.died)
		}
	}
}

// A node counts as cut off once the store has had its heartbeats for longer than a TTL. It no longer counts as cut off
// when gossip reaches it or when the store loses its heartbeat.
func TestLivenessCutOff(t *testing.T) {
	const ttl = 6 * time.Second
	now := time.Now()
	a, b := lease.Incarnation{Node: "a", Number: 1}, lease.Incarnation{Node: "b", Number: 1}
	l := New(ttl)
	expect := func(when string, want ...lease.NodeID) {
		t.Helper()
		if got := l.CutOff(); !slices.Equal(got, want) {
			t.Errorf("%s: cut off are %q, want %q", when, got, want)
		}
	}
	record := func(after time.Duration, at lease.Incarnation, heartbeat bool) {
		now = now.Add(after)
		l.HeartbeatArrived(now)
		l.Record(at, heartbeat, now)
	}
	record(0, b, true)
	record(ttl/4, a, true)
	record(ttl*3/4, b, true)
	expect("for a TTL")
	record(1, b, true)
	expect("for longer", "b")
	record(ttl/4, a, true)
	expect("both", "a", "b")
	l.Unknown(&cluster.Snapshot{Members: []*cluster.Member{{Profile: lease.Profile{ID: "a", Incarnation: 1}}}}, now)
	expect("gossip reaches a", "b")
	l.StoreAway(true, now)
	record(ttl/4, b, false)
	expect("the store lost data")
	record(ttl/4, b, true)
	expect("the store has heartbeats again")
	record(ttl+1, b, true)
	expect("for longer again", "b")
	for range 8 {
		record(ttl/4, a, false)
	}
	record(0, b, false)
	expect("b has ended")
}

// After the store was away, hosts have time to restore their pins before other nodes place rooms.
func TestLivenessReclaiming(t *testing.T) {
	now := time.Now()
	l := New(6 * time.Second)
	expect := func(when string, want bool) {
		t.Helper()
		if got := l.Reclaiming(now); got != want {
			t.Errorf("%s: reclaiming %v, want %v", when, got, want)
		}
	}
	expect("at the start", false)
	l.StoreAway(true, now)
	now = now.Add(time.Hour)
	expect("before the store answers", true)
	l.HeartbeatArrived(now)
	now = now.Add(reclaimTime - 1)
	expect("just after the first answer", true)
	now = now.Add(1)
	expect("a second after the first answer", false)
}

// If the store may have lost data, new rooms wait up to a TTL for nodes that report nothing. If the store was only
// late, new rooms do not wait for these nodes.
func TestLivenessSilentOthers(t *testing.T) {
	const ttl = 6 * time.Second
	for name, c := range map[string]struct {
		lost   []bool // for each outage, whether the store lost data
		waited bool   // whether the test waits until new rooms are placed again before the next outage
		want   time.Duration
	}{
		"a loss":                    {[]bool{true}, false, ttl},
		"late":                      {[]bool{false}, false, reclaimTime},
		"late just after a loss":    {[]bool{true, false}, false, ttl},
		"a loss just after":         {[]bool{false, true}, false, ttl},
		"late, long after a loss":   {[]bool{true, false}, true, reclaimTime},
		"a loss, long after a loss": {[]bool{true, true}, true, ttl},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			l := New(ttl)
			var took time.Duration
			for i, lost := range c.lost {
				l.StoreAway(lost, now)
				now = now.Add(time.Second)
				l.HeartbeatArrived(now)
				if !c.waited && i < len(c.lost)-1 {
					continue
				}
				l.OthersRestore(false, false, now) // an answer from before the outage
				for began := now; l.Reclaiming(now); now = now.Add(100 * time.Millisecond) {
					l.Back(now)
					l.OthersRestore(false, true, now)
					took = now.Sub(began)
				}
				now = now.Add(ttl)
			}
			if took < c.want-200*time.Millisecond || took > c.want+200*time.Millisecond {
				t.Errorf("new rooms wait for %v, want %v", took, c.want)
			}
		})
	}
}

// Ended says why this incarnation ended, even if the node has restarted in the meantime.
func TestEnded(t *testing.T) {
	at := lease.Incarnation{Node: "a", Number: 1}
	later := []*cluster.Member{{Profile: lease.Profile{ID: "a", Incarnation: 2}}}
	for want, all := range map[string][]cluster.Snapshot{
		"its node died":      {{}, {Crashed: []lease.Incarnation{at}}, {Crashed: []lease.Incarnation{at}, Members: later}},
		"its node left":      {{Left: []lease.Incarnation{at}}, {Left: []lease.Incarnation{at}, Members: later}},
		"its node restarted": {{Members: later}},
	} {
		for i := range all {
			if got := Ended(&all[i], at); got != want {
				t.Errorf("%+v: %q, want %q", all[i], got, want)
			}
		}
	}
}
