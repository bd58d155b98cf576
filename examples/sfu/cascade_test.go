//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestChain: the names of relays come from clients. A name with a number that is too large is not a relay's name, and a
// relay has no relays of its own.
func TestChain(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"r":       "r | r r~1",
		"r~1":     "r r~1 | r r~1 r~2",
		"r~2":     "r r~1 r~2 | r r~1 r~2 r~3",
		"~1":      "~1 | ~1 ~1~1",
		"r~":      "r~ | r~ r~~1",
		"r~0":     "r~0 | r~0 r~0~1",
		"a~b":     "a~b | a~b a~b~1",
		"r~01":    "r~01 | r~01 r~01~1",
		"r~+1":    "r~+1 | r~+1 r~+1~1",
		"r~1~1":   "r~1~1 | r~1~1 r~1~1~1",
		"r~1~1~1": "r~1~1 r~1~1~1 | r~1~1 r~1~1~1 r~1~1~2",
	} {
		if got := strings.Join(chain(name, 0), " ") + " | " + strings.Join(chain(name, 1), " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for name, want := range map[string]int{
		"room" + strings.Repeat("~1", 1_000_000): 1, // a hostile name must not need a deep stack
		"room~64":                                65, "room~65": 1, "room~2000000000": 1, "room~-1": 1, "room~x": 1,
	} {
		if got := len(chain(name, 0)); got != want {
			t.Errorf("%s has a chain of %d, want %d", name, got, want)
		}
	}
}

// TestKeepApart: a relay causes at most one call per second to the store, whatever its number is, even if no room of
// its chain has a pin.
func TestKeepApart(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"room~1", "room~64"} {
		synctest.Test(t, func(t *testing.T) {
			const seconds = 1000
			ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
			defer cancel()
			calls := 0
			(&relay{ctx: ctx, chain: chain(name, 0)}).keepApart(func(_ context.Context, chain []string, _ int) (d reconnect.Directive, err error) {
				calls += len(chain) - 1
				return d, nil
			})
			if calls < seconds*9/10 || calls > seconds {
				t.Errorf("%s: %d calls in %d seconds", name, calls, seconds)
			}
		})
	}
}

// TestTakeover: a new upstream replaces the former upstream at a keyframe, once it carries as many lines or the former
// upstream has ended. If nothing arrives on a line for a while, other sources can use the line.
func TestTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, takeover)
}

func takeover(t *testing.T) {
	e := &relay{call: new(call)}
	link := func(order int) *upstream {
		return &upstream{outbound: outbound{order: order, ended: make(chan struct{})}, relay: e}
	}
	first, second, third := link(1), link(2), link(3)
	asked := 0
	sources := make(map[string]*source)
	take := func(u *upstream, line int, key, want, asks bool) (s *source) {
		t.Helper()
		asked = 0
		name := fmt.Sprint(u.order, line)
		if sources[name] == nil {
			sources[name] = &source{kind: webrtc.RTPCodecTypeVideo, ask: func() { asked++ }}
		}
		s = e.take(u, pulled+line, picture(key, 1, 1), sources[name])
		if (s != nil) != want || (asked > 0) != asks {
			t.Errorf("line %d of upstream %d, keyframe: %v: taken: %v, asked for a keyframe: %v", line, u.order, key, s != nil, asked > 0)
		}
		return s
	}
	take(first, 0, false, false, true)
	take(first, 0, false, false, false) // it has asked
	time.Sleep(time.Second / 10)
	take(first, 0, false, false, true)
	one := take(first, 0, true, true, false)
	take(first, 0, false, true, false)
	take(first, 1, true, true, false)
	take(second, 0, true, false, false) // the upstream does not carry the other line yet
	take(second, 1, false, false, true)
	take(second, 1, true, true, false)
	take(first, 1, true, false, false)
	if other := take(second, 0, true, true, false); other == one || slices.Contains(e.call.sources, one) || len(e.call.sources) != 2 {
		t.Error("the source has not changed")
	}
	close(second.ended)
	take(third, 0, false, false, true)
	take(third, 0, true, true, false)
	e.tidy(time.Now().Add(silence + time.Second))
	if len(e.call.sources) != 0 {
		t.Error("silent lines keep their sources")
	}
	take(third, 0, false, true, false) // the receivers ask for a keyframe
}

// TestOutgrown: a room of 12 subscribers (30 with -long) spreads over its own node and two other nodes. A fault of any
// of these nodes must not cost more than a fault of a room's only node: the clients follow the room, and nobody gives
// up.
func TestOutgrown(t *testing.T) {
	t.Parallel()
	most := 4 // on one node
	if *long {
		most = 10
	}
	args := []string{"-room-max", fmt.Sprint(most)}
	try(t, plan{nodes: "abcd", args: func(string) []string { return args }}, func(tr *trial) { outgrown(tr, args, most) })
}

func outgrown(tr *trial, args []string, most int) {
	tr.must(tr.crowd.call(tr.ctx, "room", 3*most))
	load := int64(most)
	homes := tr.spread("a room that outgrows its node", 3)
	tr.loads(homes, map[string]int64{"room": load + 2, "room~1": load, "room~2": load}) // each relay counts as a subscriber of the room
	for range repetitions() {
		for _, step := range []struct {
			what, room string
			unbroken   bool
			do         func(id string) error
		}{
			{"kill -9 of a relay", "room~1", false, tr.farm.kill},
			{"SIGTERM to the room's node", "room", true, tr.farm.drain},
			{"SIGTERM to a relay", "room~2", true, tr.farm.drain},
			{"kill -9 of the room's node", "room", false, tr.farm.kill},
		} {
			id := string(homes[step.room].To)
			broken, began := tr.crowd.broken(), tr.crowd.begin()
			tr.must(step.do(id))
			after := tr.spread(step.what, 3)
			m := tr.crowd.measured(began)
			tr.note(step.what, moved(homes, after), m)
			tr.healthy(step.what, m)
			if n := tr.crowd.broken() - broken; step.unbroken && n > 0 {
				tr.errorf("%s: connections ended %d times before there was another one", step.what, n)
			}
			tr.must(tr.farm.add(tr.ctx, id+"x", args...))
			homes = tr.spread("a node joins", 3)
		}
	}
	tr.alone(load)
}

// spread waits until all participants are where their room or relay is, and the room and its relays are all on
// different nodes.
func (t *trial) spread(what string, nodes int) (homes map[string]reconnect.Directive) {
	t.Helper()
	t.until(what, func() (err error) {
		if homes, err = t.present(); err != nil {
			return err
		}
		on := make(map[lease.NodeID]bool)
		for _, d := range homes {
			on[d.To] = true
		}
		if len(on) != nodes || len(homes) != nodes {
			return fmt.Errorf("%v", homes)
		}
		return t.crowd.single()
	})
	return homes
}

// single returns an error unless each participant has exactly one connection.
func (c *crowd) single() error {
	for _, b := range c.all() {
		b.mu.Lock()
		links := len(b.links)
		b.mu.Unlock()
		if links != 1 {
			return fmt.Errorf("a participant of %s has %d connections", b.room, links)
		}
	}
	return nil
}

// dismiss ends the chosen participants, and returns how many there were.
func (c *crowd) dismiss(which func(*bot) bool) (n int) {
	leave := func(b *bot) bool {
		if !which(b) {
			return false
		}
		b.leave()
		n++
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bots = slices.DeleteFunc(c.bots, leave)
	return n
}

// loads checks the pins of the room and its relays in Redis, and their load on the pinned nodes.
func (t *trial) loads(homes map[string]reconnect.Directive, want map[string]int64) {
	t.Helper()
	t.until("the loads", func() error {
		for room, load := range want {
			id := string(homes[room].To)
			if pin := t.redis.Do("GET", strings.TrimSpace(t.redis.Do("KEYS", "*:r:"+room))); !strings.HasPrefix(pin, id+"|") {
				return fmt.Errorf("%s is on %s, and its pin is %q", room, id, pin)
			}
			s, err := t.farm.stats(t.ctx, id)
			if err == nil && (s.Load != load || s.Rooms[room] != load) {
				err = fmt.Errorf("%s: %+v, want %d", room, s, load)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// alone ends the clients of the relays, and waits until the relays have ended. The room must keep its load.
func (t *trial) alone(load int64) {
	t.crowd.dismiss(func(b *bot) bool { return b.current().room != b.room })
	homes := t.spread("the room alone", 1)
	t.loads(homes, map[string]int64{"room": load})
	t.until("the end of the relays", func() error {
		for _, id := range t.farm.ids() {
			s, err := t.farm.stats(t.ctx, id)
			if err != nil {
				return err
			}
			delete(s.Rooms, "room")
			if len(s.Rooms) > 0 || s.Calls > 1 {
				return fmt.Errorf("%s: %+v", id, s)
			}
		}
		return nil
	})
}

// TestOutgrownWHEP: WHEP subscribers are redirected to a relay, too. If the store is slow, the room's node serves the
// subscriber itself, and asks the store again for the next subscriber.
func TestOutgrownWHEP(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	for _, n := range p.nodes {
		n.most = 1
	}
	if err := p.crowd.join(p.ctx, "room", true); err != nil {
		t.Fatal(err)
	}
	subscribe := func() {
		plays := &player{room: fingerprint("room")}
		p.post(p.link(&bot{crowd: p.crowd, ctx: p.ctx, plays: plays}), 0, "/whep/room")
		plays.hears(t)
	}
	subscribe()
	redistest.Eventually(t, "a room and its relay", func() error {
		subscribe()
		for _, n := range p.nodes {
			if s := n.fleet.stats(); s.Hosted != 1 || s.Calls != 1 {
				wait(p.ctx, time.Second)
				return fmt.Errorf("%+v and %+v", p.nodes[0].fleet.stats(), p.nodes[1].fleet.stats())
			}
		}
		return nil
	})
}

// TestRelayPublisher: a publisher that joins a relay by its name takes part in the room's call, together with the
// subscribers of the room and of the relay.
func TestRelayPublisher(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	const room = "room"
	if err := p.crowd.join(p.ctx, room, false); err != nil {
		t.Fatal(err)
	}
	sends, err := newPublisher(room)
	if err != nil {
		t.Fatal(err)
	}
	p.crowd.spawn(func() { sends.run(p.ctx) })
	p.post(p.link(&bot{crowd: p.crowd, ctx: p.ctx, sends: sends}), 0, "/whip/"+room+"~1")
	plays := &player{room: fingerprint(room)}
	p.post(p.link(&bot{crowd: p.crowd, ctx: p.ctx, plays: plays}), 1, "/whep/"+room+"~1")
	plays.hears(t)
	redistest.Eventually(t, "the subscriber of the room", p.crowd.settled)
}
