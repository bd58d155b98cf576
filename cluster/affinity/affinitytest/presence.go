package affinitytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/roomname"
	"github.com/roost-cluster/roost/placement"
)

const (
	// ages is a stale time that never passes during a test. moment is a stale time that tests wait for.
	ages   = time.Hour
	moment = 300 * time.Millisecond

	// timeout is how long to wait for a condition.
	timeout = 30 * time.Second
)

// Presence checks that a store keeps the promises of presence.Store. The function open must return two
// instances that share their data, or the same instance twice. open must close the instances when the given
// test ends. The suite uses its own rooms, in partitions 0 to 999, and takes about two seconds.
func Presence(t *testing.T, open func(t *testing.T) (a, b presence.Store)) {
	for _, c := range []struct {
		name string
		test func(*attendees)
	}{
		{"AnyInstanceAnswers", anyInstanceAnswers},
		{"HeartbeatTwiceIsOnce", heartbeatTwiceIsOnce},
		{"LeaveRemoves", leaveRemoves},
		{"StaleIsOut", staleIsOut},
		{"BackAfterCrash", backAfterCrash},
		{"IdleSinceHeartbeat", idleSinceHeartbeat},
		{"CountsInOrder", countsInOrder},
		{"RoomsApart", roomsApart},
		{"ManyAtOnce", manyAtOnce},
		{"Names", presenceNames},
		{"Refuses", presenceRefuses},
		{"Concurrent", presenceConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := open(t)
			ref := presence.Room{Partition: 17, Name: fmt.Sprintf("%s %d", t.Name(), time.Now().UnixNano())}
			c.test(&attendees{t, a, b, ref})
		})
	}
}

// attendees is the fixture of a test: two instances of the store and a room that only this test uses.
type attendees struct {
	*testing.T
	a, b presence.Store
	room presence.Room
}

func (p *attendees) heartbeat(s presence.Store, stale time.Duration, names ...string) {
	p.Helper()
	if err := s.Heartbeat(p.Context(), stale, seats(p.room, names...)...); err != nil {
		p.Fatalf("Heartbeat: %v", err)
	}
}

func (p *attendees) leave(s presence.Store, names ...string) {
	p.Helper()
	if err := s.Leave(p.Context(), seats(p.room, names...)...); err != nil {
		p.Fatalf("Leave: %v", err)
	}
}

// members returns the sorted participants of the room. members fails the test if Count returns a different
// number. Don't call members while a participant is about to become stale.
func (p *attendees) members(s presence.Store) []string {
	p.Helper()
	names := slices.Sorted(maps.Keys(p.idle(s, ages)))
	if n := p.count(s, ages); n != len(names) {
		p.Errorf("Count is %d, Members are %q", n, names)
	}
	return names
}

// idle returns how long each participant of the room has been idle. idle fails the test if a participant
// appears twice.
func (p *attendees) idle(s presence.Store, stale time.Duration) map[string]time.Duration {
	p.Helper()
	members, err := s.Members(p.Context(), stale, p.room)
	if err != nil {
		p.Fatalf("Members: %v", err)
	}
	idle := make(map[string]time.Duration)
	for _, m := range members {
		if _, double := idle[m.Name]; double {
			p.Errorf("%q is a member twice", m.Name)
		}
		idle[m.Name] = m.Idle
	}
	return idle
}

func (p *attendees) count(s presence.Store, stale time.Duration) int {
	p.Helper()
	counts, err := s.Count(p.Context(), stale, p.room)
	if err != nil || len(counts) != 1 {
		p.Fatalf("Count of one room: %v, %v", counts, err)
	}
	return counts[0]
}

func (p *attendees) want(s presence.Store, names ...string) {
	p.Helper()
	slices.Sort(names)
	if got := p.members(s); !slices.Equal(got, names) {
		p.Fatalf("members are %q, want %q", got, names)
	}
}

func seats(room presence.Room, names ...string) []presence.Participant {
	out := make([]presence.Participant, len(names))
	for i, name := range names {
		out[i] = presence.Participant{Room: room, Name: name}
	}
	return out
}

func anyInstanceAnswers(p *attendees) {
	p.want(p.a)
	p.heartbeat(p.a, ages, "ada/1")
	p.heartbeat(p.b, ages, "bob/1")
	p.want(p.a, "ada/1", "bob/1")
	p.want(p.b, "ada/1", "bob/1")
}

func heartbeatTwiceIsOnce(p *attendees) {
	p.heartbeat(p.a, ages, "ada", "ada", "bob")
	p.heartbeat(p.a, ages, "bob")
	p.heartbeat(p.b, ages, "ada")
	p.want(p.a, "ada", "bob")
}

func leaveRemoves(p *attendees) {
	p.leave(p.a, "nobody") // the room does not exist yet
	p.heartbeat(p.a, ages, "ada/phone", "ada/laptop", "cy")
	p.leave(p.b, "ada/phone", "nobody", "cy")
	p.want(p.a, "ada/laptop")
	p.leave(p.b, "ada/laptop")
	p.leave(p.b, "ada/laptop")
	p.want(p.a)
	p.heartbeat(p.a, ages, "ada")
	p.want(p.b, "ada")
}

// staleIsOut stops renewing one of two participants. It checks that this participant becomes stale in time
// and not earlier, and that the other participant remains.
func staleIsOut(p *attendees) {
	renewed := time.Now()
	p.heartbeat(p.a, moment, "dead", "alive")
	p.until("the dead one to go", func() bool {
		before := time.Now()
		p.heartbeat(p.a, moment, "alive")
		idle := p.idle(p.b, moment)
		if _, ok := idle["alive"]; !ok && time.Since(before) < moment/2 {
			p.Fatal("a participant who was renewed just now is not a member")
		}
		_, there := idle["dead"]
		if !there && time.Since(renewed) < moment-time.Millisecond { // a store may count in whole milliseconds
			p.Fatalf("went stale after less than %v", moment)
		}
		if there && before.Sub(renewed) > moment+5*time.Second {
			p.Fatalf("still there after %v", before.Sub(renewed))
		}
		return !there
	})
}

func backAfterCrash(p *attendees) {
	p.heartbeat(p.a, moment, "ada")
	p.until("the room to be empty", func() bool { return p.count(p.b, moment) == 0 })
	p.heartbeat(p.b, ages, "ada")
	p.want(p.a, "ada")
}

func idleSinceHeartbeat(p *attendees) {
	before := time.Now()
	p.heartbeat(p.a, ages, "ada", "bob")
	p.until("ada to be idle for a while", func() bool { return p.idle(p.b, ages)["ada"] >= moment })
	refreshed := time.Now()
	p.heartbeat(p.a, ages, "bob")
	idle := p.idle(p.b, ages)
	const step = time.Millisecond // clocks with whole milliseconds are off by up to this
	if most := time.Since(refreshed) + step; idle["bob"] < 0 || idle["bob"] > most {
		p.Errorf("bob was renewed up to %v ago and is idle for %v", most, idle["bob"])
	}
	if most := time.Since(before) + step; idle["ada"] < moment || idle["ada"] > most {
		p.Errorf("ada was renewed up to %v ago and is idle for %v", most, idle["ada"])
	}
}

func countsInOrder(p *attendees) {
	var refs []presence.Room
	var all []presence.Participant
	want := []int{3, 0, 1, 5, 2, 0, 4}
	for i, n := range want {
		ref := presence.Room{Partition: placement.Partition(i * 100), Name: fmt.Sprintf("%s %d", p.room.Name, i)}
		refs = append(refs, ref)
		for j := range n {
			all = append(all, seats(ref, fmt.Sprint(j))...)
		}
	}
	if err := p.a.Heartbeat(p.Context(), ages, all...); err != nil {
		p.Fatalf("Heartbeat in %d rooms: %v", len(refs), err)
	}
	refs, want = append(refs, refs[3]), append(want, want[3])
	if got, err := p.b.Count(p.Context(), ages, refs...); err != nil || !slices.Equal(got, want) {
		p.Errorf("Count is %v, %v; want %v", got, err, want)
	}
	if err := p.b.Leave(p.Context(), all...); err != nil {
		p.Fatalf("Leave in %d rooms: %v", len(refs), err)
	}
	if got, err := p.a.Count(p.Context(), ages, refs...); err != nil || slices.Max(got) != 0 {
		p.Errorf("after all have left Count is %v, %v", got, err)
	}
	if got, err := p.a.Count(p.Context(), ages); err != nil || len(got) != 0 {
		p.Errorf("Count of no room is %v, %v", got, err)
	}
	if err := errors.Join(p.a.Heartbeat(p.Context(), ages), p.a.Leave(p.Context())); err != nil {
		p.Errorf("Heartbeat and Leave of nobody: %v", err)
	}
}

func roomsApart(p *attendees) {
	p.heartbeat(p.a, ages, "ada")
	for _, other := range []presence.Room{
		{Partition: p.room.Partition + 1, Name: p.room.Name},
		{Partition: p.room.Partition, Name: p.room.Name + ":ada"},
	} {
		if got, err := p.a.Members(p.Context(), ages, other); err != nil || len(got) > 0 {
			p.Errorf("members of %v are %v, %v", other, got, err)
		}
	}
}

// manyAtOnce renews more participants of one room than some stores can fit into a single command.
func manyAtOnce(p *attendees) {
	names := make([]string, 9000)
	for i := range names {
		names[i] = fmt.Sprintf("user-%04d/1", i)
	}
	p.heartbeat(p.a, ages, names...)
	p.want(p.b, names...)
	p.leave(p.a, names[1:]...)
	p.want(p.b, names[0])
}

// presenceNames uses names that are valid but unusual. Invalid names never reach a store.
func presenceNames(p *attendees) {
	names := []string{
		" ", "0", "-1", "nan", "+inf", "(1", "[a", "a b", `"`, `'`, `\n`, "%s", "$1", ":", "/", "?", "ä/ö", "日本", "🙂",
		strings.Repeat("x", roomname.MaxBytes),
	}
	for _, name := range names {
		if err := presence.CheckName(name); err != nil {
			p.Fatal(err)
		}
		room := presence.Room{Partition: p.room.Partition, Name: name}
		if err := p.a.Heartbeat(p.Context(), moment, seats(room, names...)...); err != nil {
			p.Errorf("Heartbeat in %.80q: %v", name, err)
		}
		if err := p.a.Leave(p.Context(), seats(room, names...)...); err != nil {
			p.Errorf("Leave %.80q: %v", name, err)
		}
	}
	p.heartbeat(p.a, ages, names...)
	p.want(p.b, names...)
}

func presenceRefuses(p *attendees) {
	over, cancel := context.WithCancel(p.Context())
	cancel()
	one := seats(p.room, "ada")
	for _, c := range []struct {
		why   string
		ctx   context.Context
		stale time.Duration
	}{
		{"a context that is over", over, ages},
		{"no stale time", p.Context(), 0},
		{"a negative stale time", p.Context(), -time.Second},
		{"a stale time below a millisecond", p.Context(), time.Millisecond - 1},
	} {
		_, members := p.a.Members(c.ctx, c.stale, p.room)
		_, count := p.a.Count(c.ctx, c.stale, p.room)
		for what, err := range map[string]error{"Heartbeat": p.a.Heartbeat(c.ctx, c.stale, one...), "Members": members, "Count": count} {
			if !errors.Is(err, presence.ErrStore) {
				p.Errorf("%s with %s: %v, want an ErrStore", what, c.why, err)
			}
		}
	}
	if err := p.a.Leave(over, one...); !errors.Is(err, presence.ErrStore) || !errors.Is(err, context.Canceled) {
		p.Errorf("Leave with a context that is over: %v, want an ErrStore that is context.Canceled", err)
	}
	p.want(p.a)
}

// presenceConcurrent makes eight participants join and leave concurrently. All eight are present at the end.
func presenceConcurrent(p *attendees) {
	var wg sync.WaitGroup
	names := make([]string, 8)
	for i := range names {
		names[i] = fmt.Sprint("user-", i)
		store := []presence.Store{p.a, p.b}[i%2]
		wg.Go(func() {
			one := seats(p.room, names[i])
			for range 50 {
				_, members := store.Members(p.Context(), ages, p.room)
				_, count := store.Count(p.Context(), ages, p.room)
				err := errors.Join(members, count, store.Leave(p.Context(), one...), store.Heartbeat(p.Context(), ages, one...))
				if err != nil {
					p.Error(err)
				}
			}
		})
	}
	wg.Wait()
	p.want(p.a, names...)
}

// until polls until f returns true.
func (p *attendees) until(what string, f func() bool) {
	p.Helper()
	eventually(p.T, func() error {
		if !f() {
			return fmt.Errorf("waited %v for %s", timeout, what)
		}
		return nil
	})
}

// eventually polls until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(timeout); ; <-tick.C {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
