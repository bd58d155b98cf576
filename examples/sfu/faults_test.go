//go:build linux

package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

const ttl = 6 * time.Second // of the nodes

func repetitions() int {
	const many = 5
	if *long {
		return many
	}
	return 1
}

// TestFaults: when a node dies, only its rooms move, and each moves once. When a node joins, no room moves. In a drain,
// clients connect to the new node before they leave the old node. A node that was stopped for longer than its lease
// closes its rooms.
func TestFaults(t *testing.T) {
	t.Parallel()
	try(t, plan{nodes: "abc", rooms: 6, subscribers: 2}, faults)
}

func faults(tr *trial) {
	for i := range repetitions() {
		for _, report := range []bool{true, false} {
			tr.crowd.report.Store(report)
			id := tr.farm.busiest(tr.ctx)
			tr.fault(fmt.Sprintf("kill -9, reports: %v", report), on(id), func() { tr.must(tr.farm.kill(id)) })
			next := fmt.Sprintf("k%d-%t", i, report)
			tr.unbroken("a node joins", func() {
				tr.fault("a node joins", nothing, func() { tr.must(tr.farm.add(tr.ctx, next)) })
			})
			if !*long {
				break
			}
		}
		id := tr.farm.busiest(tr.ctx)
		tr.unbroken("SIGTERM", func() {
			tr.fault("SIGTERM", on(id), func() { tr.must(tr.farm.drain(id)) })
		})
		tr.must(tr.farm.add(tr.ctx, fmt.Sprintf("d%d", i)))
		tr.unbroken("a rolling restart", tr.roll)
		tr.stop(tr.farm.busiest(tr.ctx))
	}
}

// roll restarts all nodes, one after the other.
func (t *trial) roll() {
	before, began := t.homes(), t.crowd.begin()
	for _, id := range t.farm.ids() {
		t.must(t.farm.drain(id))
		t.must(t.farm.add(t.ctx, id))
	}
	after := t.settled("a rolling restart")
	m := t.crowd.measured(began)
	t.note("a rolling restart of all", moved(before, after), m)
	t.healthy("a rolling restart", m)
}

// stop pauses a node until other nodes have its rooms, and checks what it does when it continues.
func (t *trial) stop(id string) {
	t.Helper()
	n := t.farm.node(id)
	t.causes = append(t.causes, `"node":"`+id+`"`, `"member":"`+id+`"`)
	t.farm.hide(id, true)
	t.fault("SIGSTOP", on(id), func() {
		t.must(n.Pause())
		t.pass(ttl + time.Second)
	})
	t.must(n.Resume())
	t.until("the stopped node to close its rooms", func() error {
		s, err := t.farm.stats(t.ctx, id)
		if err == nil && (s.Hosted > 0 || s.Calls > 0) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	t.until("one connection each", func() error {
		return errors.Join(t.crowd.single(), t.crowd.at(t.homes()))
	})
	t.farm.hide(id, false)
	t.must(t.farm.meet(t.ctx))
}

// TestRedisAway: without Redis for 30 s, calls continue, and new calls can begin. When Redis is back without data, all
// rooms are still where they were.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	try(t, plan{nodes: "abc", rooms: 4, subscribers: 1}, withoutRedis)
}

func withoutRedis(tr *trial) {
	tr.causes, tr.restored = []string{"store does not answer"}, true
	tr.unbroken("Redis away", func() {
		tr.fault("Redis away for 30 s", nothing, func() {
			tr.redis.Kill()
			const away = 30 * time.Second
			end := time.Now().Add(away)
			tr.must(tr.crowd.call(tr.ctx, "new", 1))
			tr.more = 1
			tr.until("the new room to play", tr.crowd.settled)
			tr.pass(time.Until(end))
			tr.redis.Restart()
			tr.until("all pins", func() error {
				for _, room := range append(tr.rooms, "new") {
					if len(tr.redis.Do("KEYS", "*:r:"+room)) == 0 {
						return errors.New(room + " has no pin")
					}
				}
				return nil
			})
		})
	})
}

// TestGossipCut: while the nodes cannot reach each other but can reach Redis, no room moves.
func TestGossipCut(t *testing.T) {
	t.Parallel()
	var wires []*wire
	try(t, plan{nodes: "abc", rooms: 4, subscribers: 1, args: func(string) []string {
		bind := fmt.Sprint("127.0.0.1:", redistest.FreePort(t))
		wires = append(wires, newWire(t, bind))
		return []string{"-bind", bind, "-advertise", wires[len(wires)-1].addr()}
	}}, func(tr *trial) {
		cut(tr, wires[len(wires)-3:])
	})
}

func cut(tr *trial, wires []*wire) {
	tr.causes = []string{`"reason":"expired"`, "not heard over UDP"}
	tr.unbroken("gossip cut", func() {
		tr.fault("gossip cut", nothing, func() {
			for _, w := range wires {
				w.cut()
			}
			tr.until("each node to be alone", func() error {
				for _, id := range tr.farm.ids() {
					if s, err := tr.farm.stats(tr.ctx, id); err != nil || s.Members != 1 {
						return fmt.Errorf("%s: %+v, %w", id, s, err)
					}
				}
				return nil
			})
			tr.pass(ttl)
			for _, w := range wires {
				w.heal()
			}
			tr.must(tr.farm.meet(tr.ctx))
		})
	})
}
