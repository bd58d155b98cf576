package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// script makes a sequence of snapshots of a node called self.
type script struct {
	t *testing.T
	h history
	s *Snapshot
}

func newScript(t *testing.T, ids ...lease.NodeID) *script {
	t.Helper()
	c := &script{t: t, s: &Snapshot{Phase: PhaseActive}}
	c.h = history{public: new(atomic.Pointer[History]), ready: true, fenced: make(map[lease.NodeID]struct{})}
	c.h.all.Events = []Event{{Kind: EventStarted}}
	for _, id := range append(ids, "self") {
		c.s.Members = append(c.s.Members, &Member{Profile: lease.Profile{ID: id, Incarnation: 1, Weight: 100}, State: lease.Active})
	}
	c.publish(c.s, nil)
	return c
}

// publish sets the table and the state of s, computed from its members.
func (c *script) publish(s, old *Snapshot) {
	c.t.Helper()
	in := placement.Input{Partitions: 64}
	var live []lease.Incarnation
	for _, m := range s.Members {
		live = append(live, lease.Incarnation{Node: m.ID, Number: m.Incarnation})
		if m.State == lease.Active {
			in.Nodes = append(in.Nodes, placement.Node{ID: m.ID, Weight: m.Weight})
		}
	}
	var err error
	if s.Table, err = placement.Compute(in); err != nil {
		c.t.Fatal(err)
	}
	var last *events.State
	if old != nil {
		last = old.State
	}
	s.State = events.Next(last, "self", s.Table, live, true)
}

// then makes the next snapshot, and returns the events that its changes cause.
func (c *script) then(ended map[lease.Incarnation]lease.Reason, change func(s *Snapshot)) []Event {
	c.t.Helper()
	s := *c.s
	s.Members = nil
	for _, m := range c.s.Members {
		own := *m
		s.Members = append(s.Members, &own)
	}
	change(&s)
	slices.SortFunc(s.Members, func(a, b *Member) int { return lease.Incarnation{Node: a.ID}.Compare(lease.Incarnation{Node: b.ID}) })
	c.publish(&s, c.s)
	s.State.Ended = ended
	at := time.Now()
	gone := s.goneSince(c.s, at)
	s.fillLost(c.s, gone)
	s.fillOwners(c.s)
	before := len(c.h.all.Events)
	c.h.record(difference{at: at, self: "self", old: c.s, s: &s, gone: gone, fenced: "its clock"})
	c.s = &s
	added := slices.Clone(c.h.all.Events[min(before, len(c.h.all.Events)):])
	for i := range added {
		if !added[i].At.Equal(at) {
			c.t.Errorf("%+v is not from %v", added[i], at)
		}
		added[i].At = time.Time{}
	}
	return added
}

func (s *Snapshot) of(id lease.NodeID) *Member {
	m, _ := s.Member(id)
	return m
}

func without(ids ...lease.NodeID) func(s *Snapshot) {
	return func(s *Snapshot) {
		s.Members = slices.DeleteFunc(s.Members, func(m *Member) bool { return slices.Contains(ids, m.ID) })
	}
}

func with(members ...*Member) func(s *Snapshot) {
	return func(s *Snapshot) { s.Members = append(s.Members, members...) }
}

// Each kind of event follows from a difference between two snapshots. The test ignores moves of partitions.
func TestEventKinds(t *testing.T) {
	b := lease.Incarnation{Node: "b", Number: 1}
	cordoned := func(why string) func(*Snapshot) { // b is cordoned while it is active
		return func(s *Snapshot) {
			s.Cordons, s.of("b").State, s.of("b").cordoned = []Cordon{{ID: "b", Reason: why}}, lease.Draining, true
		}
	}
	drained := func(s *Snapshot) { s.of("b").State, s.of("b").cordoned = lease.Draining, false }
	type step struct {
		ended  lease.Reason // why b ended
		change func(*Snapshot)
	}
	for name, c := range map[string]struct {
		steps []step
		want  []Event
	}{
		"nothing": {[]step{{"", func(*Snapshot) {}}}, nil},
		"load":    {[]step{{"", func(s *Snapshot) { s.of("b").Load = 9 }}}, nil},
		"crashed": {
			[]step{{lease.Crashed, without("b")}},
			[]Event{{Kind: EventLost, Member: "b", Incarnation: 1, Reason: "crashed", Partitions: 18}},
		},
		"left": {[]step{{lease.Departed, without("b")}}, []Event{{Kind: EventLost, Member: "b", Incarnation: 1, Reason: "left", Partitions: 18}}},
		"expired, and back": {[]step{{"", without("b")}, {"", with(&Member{Profile: lease.Profile{ID: "b", Incarnation: 1}})}}, []Event{
			{Kind: EventLost, Member: "b", Incarnation: 1, Reason: "expired", Partitions: 18}, {Kind: EventReturned, Member: "b", Incarnation: 1},
		}},
		"joined": {
			[]step{{"", with(&Member{Profile: lease.Profile{ID: "e", Incarnation: 5}})}},
			[]Event{{Kind: EventJoined, Member: "e", Incarnation: 5}},
		},
		"replaced": {
			[]step{{lease.Replaced, func(s *Snapshot) { s.of("b").Incarnation = 2 }}},
			[]Event{{Kind: EventReturned, Member: "b", Incarnation: 2, Reason: "replaced"}},
		},
		"replaced elsewhere": {
			[]step{
				{"", func(s *Snapshot) { s.of("b").Addr = "10.0.0.2:7946" }},
				{lease.Replaced, func(s *Snapshot) { s.of("b").Incarnation, s.of("b").Addr = 2, "10.0.0.9:7946" }},
			},
			[]Event{{Kind: EventReturned, Member: "b", Incarnation: 2, Addr: "10.0.0.9:7946", OldAddr: "10.0.0.2:7946", Reason: "replaced"}},
		},
		"fenced and ready": {[]step{
			{"", func(s *Snapshot) { s.of("b").State = lease.Settling }},
			{"", func(s *Snapshot) {}},
			{"", func(s *Snapshot) { s.of("b").State = lease.Active }},
		}, []Event{{Kind: EventFenced, Member: "b"}, {Kind: EventReady, Member: "b"}}},
		"fenced and flapping": {[]step{
			{"", func(s *Snapshot) { s.of("b").State = lease.Settling }},
			{"", func(s *Snapshot) { s.of("b").State, s.of("b").FlappingUntil = lease.Draining, time.Now() }},
		}, []Event{{Kind: EventFenced, Member: "b"}, {Kind: EventDraining, Member: "b", Reason: "flapping"}}},
		"fenced and replaced": {[]step{
			{"", func(s *Snapshot) { s.of("b").State = lease.Settling }},
			{lease.Replaced, func(s *Snapshot) { s.of("b").Incarnation = 2 }},
			{"", func(s *Snapshot) { s.of("b").State = lease.Active }},
		}, []Event{{Kind: EventFenced, Member: "b"}, {Kind: EventReturned, Member: "b", Incarnation: 2, Reason: "replaced"}}},
		"fenced, crashed and back": {[]step{
			{"", func(s *Snapshot) { s.of("b").State = lease.Settling }},
			{lease.Crashed, without("b")},
			{"", with(&Member{Profile: lease.Profile{ID: "b", Incarnation: 2}})},
		}, []Event{
			{Kind: EventFenced, Member: "b"},
			{Kind: EventLost, Member: "b", Incarnation: 1, Reason: "crashed"},
			{Kind: EventReturned, Member: "b", Incarnation: 2},
		}},
		"drained": {[]step{
			{"", func(s *Snapshot) { s.of("b").State = lease.Draining }}, {"", func(s *Snapshot) { s.of("b").State = lease.Active }},
		}, []Event{{Kind: EventDraining, Member: "b"}, {Kind: EventUndrained, Member: "b"}}},
		"flapping": {
			[]step{{"", func(s *Snapshot) { s.of("b").State, s.of("b").FlappingUntil = lease.Draining, time.Now() }}},
			[]Event{{Kind: EventDraining, Member: "b", Reason: "flapping"}},
		},
		"another unhealthy": {
			[]step{{"", func(s *Snapshot) { s.of("b").State, s.of("b").Unhealthy = lease.Draining, true }}},
			[]Event{{Kind: EventDraining, Member: "b", Reason: "unhealthy"}},
		},
		"unhealthy": {[]step{{"", func(s *Snapshot) {
			s.of("self").State, s.Holds = lease.Draining, []Hold{
				{Cause: CauseUnhealthy, Reason: "disk" + strings.Repeat("!", 1000)},
				{Cause: CauseDraining},
			}
		}}}, []Event{{Kind: EventDraining, Member: "self", Reason: "unhealthy", Why: "disk" + strings.Repeat("!", 196)}}},
		"cordoned, told to drain, uncordoned": {[]step{
			{"", cordoned("slow")}, {"", drained}, {"", func(s *Snapshot) { s.Cordons = nil }},
		}, []Event{{Kind: EventCordoned, Member: "b", Why: "slow"}, {Kind: EventDraining, Member: "b"}, {Kind: EventUncordoned, Member: "b"}}},
		"drained, cordoned, uncordoned": {[]step{
			{"", drained}, {"", func(s *Snapshot) { s.Cordons = []Cordon{{ID: "b", Reason: "slow"}} }}, {"", func(s *Snapshot) { s.Cordons = nil }},
		}, []Event{{Kind: EventDraining, Member: "b"}, {Kind: EventCordoned, Member: "b", Why: "slow"}, {Kind: EventUncordoned, Member: "b"}}},
		"drained, cordoned, undrained, uncordoned": {[]step{
			{"", drained},
			{"", func(s *Snapshot) { s.Cordons = []Cordon{{ID: "b", Reason: "slow"}} }},
			{"", cordoned("slow")},
			{"", func(s *Snapshot) {
				s.Cordons = nil
				*s.of("b") = Member{Profile: lease.Profile{ID: "b", Incarnation: 1, Weight: 100}, State: lease.Active}
			}},
		}, []Event{
			{Kind: EventDraining, Member: "b"},
			{Kind: EventCordoned, Member: "b", Why: "slow"},
			{Kind: EventUndrained, Member: "b"},
			{Kind: EventUncordoned, Member: "b"},
		}},
		"cordoned and uncordoned": {[]step{
			{"", cordoned("")}, {"", func(s *Snapshot) {
				s.Cordons = nil
				*s.of("b") = Member{Profile: lease.Profile{ID: "b", Incarnation: 1, Weight: 100}, State: lease.Active}
			}},
		}, []Event{{Kind: EventCordoned, Member: "b"}, {Kind: EventUncordoned, Member: "b"}}},
		"weight to 0": {[]step{{"", func(s *Snapshot) { s.of("b").Weight, s.of("b").State = 0, lease.Settling }}}, []Event{
			{Kind: EventFenced, Member: "b"}, {Kind: EventWeight, Member: "b", OldWeight: 100},
		}},
		"own fence": {[]step{
			{"", func(s *Snapshot) { s.Stats.Fences, s.Phase, s.of("self").State = 1, PhaseJoining, lease.Settling }},
			{"", func(s *Snapshot) { s.Phase, s.of("self").State = PhaseActive, lease.Active }},
		}, []Event{
			{Kind: EventFenced, Member: "self", Why: "its clock", Partitions: 11},
			{Kind: EventReady, Member: "self", Members: 4, Partitions: 11},
		}},
		"isolated": {[]step{
			{"", func(s *Snapshot) {
				s.Phase, s.Holds = PhaseIsolated, []Hold{{Cause: CauseIsolated, Reason: "minority"}}
			}},
			{"", func(s *Snapshot) { s.Holds = []Hold{{Cause: CauseIsolated, Reason: "smaller"}} }},
		}, []Event{{Kind: EventIsolated, Member: "self", Reason: "isolated", Why: "minority", Partitions: 11}}},
		"left itself": {
			[]step{{"", func(s *Snapshot) { s.Phase = PhaseOver; without("self")(s) }}},
			[]Event{{Kind: EventStopped, Member: "self", Reason: "left"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			script := newScript(t, "a", "b", "c")
			var got []Event
			for _, step := range c.steps {
				ended := map[lease.Incarnation]lease.Reason{b: step.ended}
				if step.ended == "" {
					ended = nil
				}
				for _, e := range script.then(ended, step.change) {
					if e.Kind != EventMoved {
						got = append(got, e)
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If hundreds of members end at the same time, the history has one event for each reason.
func TestMassLossIsOneEvent(t *testing.T) {
	var all, most []lease.NodeID
	ended := make(map[lease.Incarnation]lease.Reason)
	for i := range 1000 {
		all = append(all, lease.NodeID(fmt.Sprintf("n%04d", i)))
		ended[lease.Incarnation{Node: all[i], Number: 1}] = lease.Crashed
	}
	ended[lease.Incarnation{Node: "n0007", Number: 1}] = lease.Departed
	most = all[:900]
	script := newScript(t, all...)
	owned, left := script.s.State.Table.Balance().Counts, 0
	for _, id := range most {
		left += owned[id]
	}
	got := script.then(ended, without(most...))
	left -= owned["n0007"]
	want := []Event{
		{Kind: EventLost, Reason: "crashed", Members: 899, Partitions: left},
		{Kind: EventLost, Member: "n0007", Incarnation: 1, Reason: "left", Partitions: owned["n0007"]},
	}
	if len(got) != 3 || cmp.Diff(want, got[:2]) != "" || got[2].Kind != EventMoved || got[2].Moved < left {
		t.Errorf("%+v, want %+v and a move", got, want)
	}
	if got := script.then(nil, with(func() (back []*Member) {
		for _, id := range most[:maxAtOnce] {
			back = append(back, &Member{Profile: lease.Profile{ID: id, Incarnation: 2}})
		}
		return back
	}()...)); len(got) != maxAtOnce || got[0].Kind != EventReturned || got[0].Member != "n0000" {
		t.Errorf("%d that return together: %+v", maxAtOnce, got)
	}
}

// The history keeps the last 200 events and the last 180 samples. A history that somebody has read does not change
// later.
func TestHistoryIsBounded(t *testing.T) {
	script := newScript(t, "a")
	var read []History
	var want [][2]any
	at := time.Now()
	script.h.publish()
	var reader sync.WaitGroup
	ended := make(chan struct{})
	reader.Go(func() { // for the race detector
		for {
			h := script.h.public.Load()
			for i := range h.Events {
				_ = h.Events[i].Weight
			}
			for i := range h.Samples {
				_ = h.Samples[i].Load
			}
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	defer reader.Wait()
	defer close(ended)
	for i := range uint32(1000) {
		script.then(nil, func(s *Snapshot) { s.of("a").Weight = i + 1; s.of("a").State = lease.Settling })
		script.h.sample(at.Add(time.Duration(i)*sampleEvery), script.s, int64(i))
		now := *script.h.public.Load()
		read = append(read, now)
		want = append(want, [2]any{slices.Clone(now.Events), slices.Clone(now.Samples)})
	}
	for i, h := range read {
		if !slices.Equal(h.Events, want[i][0].([]Event)) || !slices.Equal(h.Samples, want[i][1].([]Sample)) {
			t.Fatalf("the history that was read after change %d has changed", i)
		}
	}
	last := read[len(read)-1]
	if len(last.Events) != maxEvents || len(last.Samples) != maxSamples {
		t.Fatalf("%d events and %d samples", len(last.Events), len(last.Samples))
	}
	for i, e := range last.Events {
		if e.Kind != EventWeight || e.Weight != uint32(1000-maxEvents+1+i) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
	if f := last.Samples[0]; f.Load != 1000-maxSamples {
		t.Errorf("the first sample is %+v", f)
	}
	if cap(script.h.all.Events) > 4*maxEvents || cap(script.h.all.Samples) > 4*maxSamples {
		t.Errorf("memory for %d events and %d samples", cap(script.h.all.Events), cap(script.h.all.Samples))
	}
}
