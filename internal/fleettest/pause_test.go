package fleettest

import (
	"fmt"
	"net/rpc"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// A process that was paused for longer than its lease first releases its rooms, and its
// overdue refresh claims none of them back.
func TestPause(t *testing.T) { // S0.5, S0.7, S0.8
	long(t)
	t.Parallel()
	redis := redistest.Start(t)
	look := newEye(t, redis.URL())
	const refresh = 8 * time.Second // overdue when the lease has expired, and before pins expire
	h := newHerd(t, setup{URL: redis.URL(), PinTTL: 3 * refresh}, "a", "b", "c")
	h.host(names("room-", 300))
	before := look.mustPins(h.rooms)
	c := h.nodes["c"]
	var stale []string
	for room, pin := range before {
		if pin.Node == "c" {
			stale = append(stale, room)
		}
	}

	c.signal(syscall.SIGSTOP)
	stopped := time.Now()
	delete(h.nodes, "c") // the next checks concern the others
	h.waitGone(look, c.incarnation, stopped)
	h.unharmed(before, look.mustPins(h.rooms), "c")
	h.takeUp(look, stale)
	during := look.mustPins(h.rooms)
	settle(t, "while it is stopped", time.Until(stopped.Add(refresh+time.Second)), func() error {
		return h.same(during, look.mustPins(h.rooms))
	})

	// The calls wait in its pipe, so it handles them first.
	var answers, hosted []Answer
	first := c.rpc.Go("Remote.Host", Batch{stale}, &answers, make(chan *rpc.Call, 1))
	c.signal(syscall.SIGCONT)
	if done := <-first.Done; done.Error != nil {
		t.Fatal(done.Error)
	}
	hosted = c.hosted(stale)
	fenced := 0
	for i, room := range stale {
		if a := answers[i]; a.Err == "" {
			t.Fatalf("it hosts %s again: %#v", room, a)
		}
		if a := hosted[i]; !a.Lost || (!a.Fenced && !a.NotOwner) {
			t.Fatalf("it still hosts %s: %#v", room, a)
		}
		if answers[i].Fenced {
			fenced++
		}
	}
	t.Logf("%d rooms, of which %d were refused since its lease had run out", len(stale), fenced)
	settle(t, "after it came back", 4*time.Second, func() error { return h.same(during, look.mustPins(h.rooms)) })

	h.nodes["c"] = c
	c.incarnation = c.status().Incarnation
	h.waitAgreed()
	redistest.Eventually(t, "c to learn where they live", func() error {
		for i, a := range c.host(stale) {
			if pin := during[stale[i]]; a.Epoch != 0 {
				t.Fatalf("it hosts %s, which is pinned to %v: %#v", stale[i], pin, a)
			} else if !a.NotOwner {
				return fmt.Errorf("%s, which is pinned to %v: %#v", stale[i], pin, a)
			}
		}
		return h.same(during, look.mustPins(h.rooms))
	})
	rooms := h.rooms
	h.host(names("new-", 100))
	if c.status().Hosted == 0 {
		t.Error("it hosts no new rooms")
	}
	h.rooms = rooms
	noScan(t, redis)
}

// takeUp hosts rooms on the nodes of their current pins, as clients would do.
func (h *herd) takeUp(look *eye, rooms []string) {
	h.t.Helper()
	for room, pin := range look.mustPins(rooms) {
		if a := h.nodes[pin.Node].host([]string{room})[0]; a.Err != "" {
			h.t.Fatalf("%v hosts %s: %#v", pin.Node, room, a)
		}
	}
}
