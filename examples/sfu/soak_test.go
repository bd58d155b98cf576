//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak runs, with 60 rooms and 300 subscribers; 0: each fault once, with few")
	pictures = flag.Int("pictures", 30, "pictures a second of each publisher")
)

// soak contains the state and the results of a long test.
type soak struct {
	*trial
	every  time.Duration // from one fault to the next
	next   time.Time
	named  int // how many names of nodes and rooms were used
	immune string
	uses   map[string]growth // of the immune node, and of the bots
	splits *splits
	args   []string // of nodes
}

// TestSoak: calls continue for a long time while nodes fail. No client may give up, no room may have two hosts, and the
// numbers of goroutines and descriptors must not grow.
func TestSoak(t *testing.T) {
	t.Parallel()
	if *soakFor == 0 {
		args := []string{"-room-max", "3"}
		try(t, plan{nodes: "abcd", args: func(string) []string { return args }}, func(tr *trial) { soaked(tr, args, 5, 14, 6, 0) })
		return
	}
	pictureEvery = time.Second / time.Duration(*pictures)
	tr := &trial{TB: t}
	const rooms, subscribers, large, every = 60, 300, 24, 20 * time.Second
	args := []string{"-room-max", "10"}
	tr.run(plan{nodes: "abcd", args: func(string) []string { return args }},
		func(tr *trial) { soaked(tr, args, rooms, subscribers, large, every) })
	if line := agenttest.Starved(tr.started, tr.causes...); line != "" {
		t.Logf("a node had no CPU for as long as a lease at times: %s", line)
	}
	for _, failure := range tr.failures {
		t.Error(failure)
	}
}

// soaked runs the test. One of its rooms is so large that it spreads over several nodes.
func soaked(tr *trial, args []string, rooms, subscribers, large int, every time.Duration) {
	s := &soak{trial: tr, every: every, immune: "a", args: args, uses: make(map[string]growth)}
	before := s.use()
	ctx, stop := context.WithCancel(tr.ctx)
	s.splits = newSplits()
	var watch sync.WaitGroup
	watch.Go(func() { s.splits.watch(ctx, tr.farm) })
	end := func() { stop(); watch.Wait() }
	defer end()

	small := rooms - 1
	tr.rooms = roomNames(small)
	s.named = small
	tr.must(tr.crowd.fillWith(tr.ctx, tr.rooms, func(i int) int { return (subscribers-large)*(i+1)/small - (subscribers-large)*i/small }))
	tr.must(tr.crowd.call(tr.ctx, "large", large))
	tr.settles("all calls")
	s.Logf("%d nodes, %d rooms with a publisher each, %d subscribers, %d of them in one room with relays: 50 packets of sound and %d pictures a second",
		len(tr.farm.ids()), rooms, subscribers, large, time.Second/pictureEvery)
	s.Logf("%-10s %8s %8s %8s %6s %5s %7s   %-22s %-22s %s",
		"fault", "at", "took", "settled", "rooms", "moved", "gave up", "sound: p50 p95 max", "picture: p50 p95 max",
		"of subscribers of the rooms that moved, otherwise of all")
	began := time.Now()
	s.next = began
	for n := 0; n == 0 || time.Since(began) < *soakFor; n++ {
		s.round(n, began)
	}
	tr.print()
	s.pace()
	if every > 0 {
		s.judge()
	}
	s.quiet(before)
	end()
	gaveUp := 0
	for _, r := range s.table {
		gaveUp += len(r.gaveUp)
	}
	s.Logf("after %s: %d clients gave up, %d rooms had two hosts", time.Since(began).Round(time.Second), gaveUp, len(s.splits.found()))
	for _, split := range s.splits.found() {
		tr.errorf("two hosts: %s", split)
	}
}

// round causes each fault once. Before each fault, a call ends and another one begins.
func (s *soak) round(n int, began time.Time) {
	const pause = ttl + 2*time.Second
	nobody := func() string { return "" }
	paused := func() string { // in every other round the immune node, which then loses all its rooms
		id := s.immune
		if n%2 == 1 {
			id = s.victim()
		}
		s.causes = append(s.causes, `"node":"`+id+`"`, `"member":"`+id+`"`)
		return id
	}
	add := func(string) error { s.named++; return s.farm.add(s.ctx, fmt.Sprint("n", s.named), s.args...) }
	for _, f := range []struct {
		what string
		at   func() string
		do   func(id string) error
	}{
		{"kill -9", s.victim, s.farm.kill},
		{"node joins", nobody, add},
		{"SIGTERM", s.victim, s.farm.drain},
		{"node joins", nobody, add},
		{"SIGSTOP", paused, func(id string) error { return s.farm.pause(s.ctx, id, pause) }},
	} {
		s.renew()
		s.pace()
		s.strike(f.what, f.at(), began, f.do)
	}
}

// pace records what the processes use, and waits until the next fault is due.
func (s *soak) pace() {
	bots, err := used(os.Getpid(), runtime.NumGoroutine(), len(s.crowd.all()))
	s.must(err)
	s.uses["bots"] = append(s.uses["bots"], bots)
	s.uses[s.immune] = append(s.uses[s.immune], s.use())
	s.next = s.next.Add(s.every)
	s.pass(time.Until(s.next))
}

// use returns what the immune node uses now.
func (s *soak) use() usage {
	st, err := s.farm.stats(s.ctx, s.immune)
	s.must(err)
	u, err := used(s.farm.node(s.immune).PID(), st.Goroutines, st.Peers)
	s.must(err)
	return u
}

// victim returns the node with the most rooms, except the immune node.
func (s *soak) victim() (id string) {
	most := -1
	for _, name := range s.farm.ids() {
		if st, err := s.farm.stats(s.ctx, name); err == nil && name != s.immune && st.Hosted > most {
			id, most = name, st.Hosted
		}
	}
	return id
}

// renew ends the oldest call and starts another call of the same size.
func (s *soak) renew() {
	room := s.rooms[0]
	left := s.crowd.dismiss(func(b *bot) bool { return b.room == room })
	s.named++
	next := fmt.Sprint("room-", s.named)
	s.rooms = append(s.rooms[1:], next)
	s.must(s.crowd.call(s.ctx, next, left-1))
	s.settles("a new call")
}

// settles waits until all participants play at the node where their room or their relay lives. It returns the locations
// of the rooms and relays.
func (t *trial) settles(what string) (homes map[string]reconnect.Directive) {
	t.Helper()
	var last error
	began, slow := time.Now(), 5*time.Second
	t.until(what, func() (err error) {
		if homes, err = t.present(); err != nil {
			last = err
		}
		return err
	})
	if took := time.Since(began); took > slow {
		t.Logf("%s: waited %s, last because %v", what, took.Round(100*time.Millisecond), last)
	}
	return homes
}

// present returns where all rooms and their relays live, or an error if not all participants are there.
func (t *trial) present() (homes map[string]reconnect.Directive, err error) {
	names := make(map[string]bool)
	for _, b := range t.crowd.all() {
		names[b.room], names[b.current().room] = true, true
	}
	if homes, err = t.farm.homes(t.ctx, slices.Sorted(maps.Keys(names))); err == nil {
		err = t.crowd.at(homes)
	}
	return homes, err
}

// strike applies a fault to a node, and records how it affected the calls.
func (s *soak) strike(what, id string, start time.Time, do func(id string) error) {
	before := s.settles("before " + what)
	began := s.crowd.begin()
	s.must(do(id))
	done := time.Now()
	after := s.settles(what)
	settled := time.Since(done)
	maps.DeleteFunc(before, func(room string, _ reconnect.Directive) bool { return after[room].To == "" }) // relays that have ended
	n := moved(before, after)
	m := s.crowd.measuredOf(began, func(b *bot) bool {
		room := b.current().room
		return n == 0 || before[room].To != after[room].To
	})
	s.add(what, n, m)
	s.Logf("%-10s %8s %8s %8s %6d %5d %7d   %-22s %-22s", what, time.Since(start).Round(time.Second), done.Sub(began).Round(time.Second),
		settled.Round(100*time.Millisecond), len(after), n, len(m.gaveUp), spreadOf(m.sound), spreadOf(m.image))
	s.healthy(what, m)
}

// judge prints the trends of the processes, and records a failure for each resource that grows.
func (s *soak) judge() {
	for _, who := range slices.Sorted(maps.Keys(s.uses)) {
		g := s.uses[who]
		for i, name := range resources {
			t := g.trend(i)
			s.Logf("%s: %.0f %s on average of %d samples, %+.2f a minute (± %.2f)", who, t.mean, name, len(g), t.perMinute, t.deviation)
			if i < judged && g.grows(t) {
				s.errorf("%s: %s grow by %.2f (± %.2f) a minute", who, name, t.perMinute, t.deviation)
			}
		}
	}
}

// quiet ends all calls, and waits until the immune node uses about as much as before the first call.
func (s *soak) quiet(before usage) {
	s.crowd.dismiss(func(*bot) bool { return true })
	s.crowd.http.CloseIdleConnections() // each open connection needs a goroutine of the node
	const more = 30                     // the number of connections to nodes and Redis varies
	err := until(s.ctx, func() error {
		for _, id := range s.farm.ids() {
			if st, err := s.farm.stats(s.ctx, id); err != nil || st.Calls > 0 || st.Hosted > 0 || st.Peers > 0 {
				return fmt.Errorf("%s: %+v, %w", id, st, err)
			}
		}
		now := s.use()
		for i, name := range resources[:judged] {
			if now.values[i] > before.values[i]+more {
				return fmt.Errorf("%v %s before the first call, %v after the last one", before.values[i], name, now.values[i])
			}
		}
		return nil
	})
	if err != nil { // SIGQUIT writes the stacks of all goroutines to the node's log
		_ = s.farm.node(s.immune).Signal(syscall.SIGQUIT)
		<-s.farm.node(s.immune).Done()
	}
	s.must(err)
}

// splits records the rooms that two nodes hosted at the same time.
type splits struct {
	mu   sync.Mutex
	seen map[string]int // samples in a row
	all  []string
}

func newSplits() *splits { return &splits{seen: make(map[string]int)} }

// watch samples all nodes until ctx ends. The nodes are not sampled at exactly the same time, so a room counts only if
// two nodes host it in several samples in a row.
func (s *splits) watch(ctx context.Context, f *farm) {
	const often = 250 * time.Millisecond
	for ; ctx.Err() == nil; wait(ctx, often) {
		hosts := make(map[string][]string)
		var mu sync.Mutex
		var ask sync.WaitGroup
		for id := range f.visible() {
			ask.Go(func() {
				st, err := f.stats(ctx, id)
				mu.Lock()
				defer mu.Unlock()
				for room := range st.Rooms {
					if err == nil {
						hosts[room] = append(hosts[room], id)
					}
				}
			})
		}
		ask.Wait()
		s.note(hosts)
	}
}

func (s *splits) note(hosts map[string][]string) {
	const many = 4
	s.mu.Lock()
	defer s.mu.Unlock()
	for room, ids := range hosts {
		if len(ids) < 2 {
			delete(s.seen, room)
		} else if s.seen[room]++; s.seen[room] == many {
			slices.Sort(ids)
			s.all = append(s.all, room+" on "+strings.Join(ids, " and "))
		}
	}
}

func (s *splits) found() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// TestSplits: a room that is on two nodes in several samples in a row is reported, but a room that moves is not.
func TestSplits(t *testing.T) {
	t.Parallel()
	s := newSplits()
	ids := []string{"a", "b"}
	for i := range 10 {
		s.note(map[string][]string{"split": ids, "moves": ids[i%2 : i%2+1], "skewed": ids[:1+min(1, i%4)]})
	}
	if got := s.found(); len(got) != 1 || got[0] != "split on a and b" {
		t.Errorf("found %q", got)
	}
}
