package sim_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"github.com/roost-cluster/roost/placement/assignment"
)

// An attacker who has the key pretends to be n02, and sends an absurd message about n01 to all nodes, once or for ten
// seconds. Either the nodes reject the message, or within 90 s all nodes list n01 as before, and agree. A newcomer can
// still join. A later incarnation is only sent once, because continued heartbeats would look like a later process of
// n01, and n01 would have to stop.
func TestAbsurdValues(t *testing.T) {
	const maxIncarnation, maxStart = 1 << 62, 1 << 52
	later := func(f *forgery, incarnation uint64, state lease.State) {
		f.record.Incarnation = incarnation
		f.heartbeat.Handle, f.heartbeat.State = lease.Incarnation{Node: f.record.ID, Number: incarnation}.Handle(), state
	}
	stamped := func(stamp lease.Stamp) func(*forgery) {
		return func(f *forgery) { f.Stamp, f.heartbeat.At = stamp, stamp }
	}
	for name, forge := range map[string]func(*forgery){
		"the last incarnation":                  func(f *forgery) { later(f, maxIncarnation, lease.Active) },
		"the last incarnation but one":          func(f *forgery) { later(f, maxIncarnation-1, lease.Active) },
		"leave message of the last incarnation": func(f *forgery) { later(f, maxIncarnation, lease.Left) },
		"an incarnation beyond":                 func(f *forgery) { later(f, math.MaxUint64, lease.Active) },
		"its leave message":                     func(f *forgery) { f.heartbeat.State = lease.Left },
		"its record, last version":              func(f *forgery) { f.record.Version, f.heartbeat.Version = math.MaxUint32, math.MaxUint32 },
		"its record, next version": func(f *forgery) {
			f.record.Version, f.heartbeat.Version = f.record.Version+1, f.heartbeat.Version+1
		},
		"its row, last version":          func(f *forgery) { f.Records, f.heartbeat.Version = nil, math.MaxUint32 },
		"the latest time":                stamped(maxStart),
		"a time near the latest":         stamped(maxStart - 1),
		"a time beyond":                  stamped(2*maxStart - 1),
		"a heartbeat of the far future":  func(f *forgery) { f.heartbeat.At += 6000; f.Stamp += 6000 },
		"the greatest load":              func(f *forgery) { f.heartbeat.Load = math.MaxInt64 - 2 },
		"the clock of the farthest past": func(f *forgery) { f.heartbeat.Clock = -99 * year },
		"a clock of the future":          func(f *forgery) { f.heartbeat.Clock = 99 * year },
	} {
		for _, times := range []int{1, 20} {
			if times > 1 && strings.Contains(name, "incarnation") {
				continue
			}
			t.Run(fmt.Sprint(name, ", ", times), func(t *testing.T) {
				var last *lease.Message
				c := started(t, 5, sim.Options{Tap: func(b []byte) { last, _ = lease.Decode(b) }})
				c.Run(ttl)
				before := c.member("n00", "n01")
				for range times {
					c.Run(500 * time.Millisecond)
					f := newForgery(c, last)
					forge(f)
					f.send(c)
				}
				c.heals(before)
			})
		}
	}
}

// forgery is a message from n02 with the record of n01 and a heartbeat of n01.
type forgery struct {
	*lease.Message
	record    *lease.Record
	heartbeat *lease.Heartbeat
}

func newForgery(c fleet, present *lease.Message) *forgery {
	victim := c.Node("n01").View().Live.Members[1]
	record := *victim.Record
	record.Weight, record.Addr = lease.MaxWeight, "nowhere:1"
	m := &lease.Message{
		From: c.member("n00", "n02").Handle, Stamp: present.Stamp, SentAt: c.Node("n02").Now(),
		Heartbeats: []lease.Heartbeat{{Handle: victim.Handle, At: present.Stamp, State: lease.Active, Version: record.Version}},
		Records:    []*lease.Record{&record},
	}
	return &forgery{m, &record, &m.Heartbeats[0]}
}

func (f *forgery) send(c fleet) {
	for _, id := range c.IDs() {
		c.Inject(id, lease.Encode(f.Message))
	}
}

// heals fails the test unless within 90 s all nodes list n01 as before, agree, and accept a newcomer.
func (c fleet) heals(before lease.Member) {
	c.t.Helper()
	listed := func() bool {
		for _, id := range c.IDs() {
			if !c.sees(id, "n01") {
				return false
			}
			m := c.member(id, "n01")
			if m.Weight != before.Weight || m.Addr != before.Addr || m.State != before.State || m.Load != before.Load {
				return false
			}
		}
		return len(c.Disagreements()) == 0
	}
	c.Run(ttl / 2)
	took := c.await("n01 is listed as before", 90*time.Second, listed)
	c.t.Logf("healed after %v", took+ttl/2)
	p := c.StartWith("new", sim.Setup{})
	c.await("a newcomer joins", 2*time.Second, func() bool { return p.View().Phase == node.Active })
	c.agree(2 * time.Second)
}

// Absurd assignments have no lasting effect, either: the nodes reject a forged assignment, or agree again.
func TestAbsurdAssignments(t *testing.T) {
	of := func(c fleet, who assignment.Coordinator) []byte {
		c.t.Helper()
		table, err := placement.Compute(placement.Input{
			Partitions: leastPartitions, Strategy: placement.LeastPartitions(1, 3), Nodes: []placement.Node{{ID: "zz", Weight: 1}},
		})
		if err != nil {
			c.t.Fatal(err)
		}
		return assignment.Record(table, who).Encode()
	}
	outsiders := []lease.NodeID{"x", "y", "zz"}
	for _, tc := range []struct {
		name  string
		moves bool
		forge func(c fleet) []byte
	}{
		{"the oldest beginning, by unknown nodes", false, func(c fleet) []byte {
			return of(c, assignment.Coordinator{ID: "zz", Voters: outsiders, Active: 3})
		}},
		{"the oldest beginning, by members", true, func(c fleet) []byte {
			return of(c, assignment.Coordinator{ID: "n01", Voters: []lease.NodeID{"n00", "n01"}, Active: 2})
		}},
		{"the greatest quorum", false, func(c fleet) []byte {
			return of(c, assignment.Coordinator{ID: "zz", Voters: append([]lease.NodeID{"n00"}, outsiders...), Active: -1})
		}},
		{"the last version", false, func(c fleet) []byte { return atVersion(c.assignment("n00"), 1<<53) }},
		{"a version beyond", false, func(c fleet) []byte { return atVersion(c.assignment("n00"), 1<<53+1) }},
		{"the latest version that counts", false, func(c fleet) []byte {
			a := c.assignment("n00")
			return atVersion(a, a.Version()+1<<32)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var last *lease.Message
			opts := least(leastPartitions, 3)
			opts.Tap = func(b []byte) { last, _ = lease.Decode(b) }
			c := started(t, 5, opts)
			c.Run(youth)
			before, extra := c.Owners(), append([]byte{2}, tc.forge(c)...)
			p := c.StartWith("new", sim.Setup{})
			for range 100 { // even while a newcomer has no assignment yet
				c.Run(10 * time.Millisecond)
				f := newForgery(c, last)
				f.Heartbeats, f.Records, f.Extra = nil, nil, extra
				f.send(c)
			}
			c.await("a newcomer has joined", time.Second, func() bool { return p.View().Phase == node.Active })
			if !tc.moves {
				c.Run(100 * time.Millisecond)
				c.onlyMoved(before, toNew)
			}
			c.level(90 * time.Second)
			c.Crash("new", "n01")
			c.agree(ttl + time.Second)
			c.await("a member writes", time.Minute, func() bool { return !slices.Contains(c.assignment("n00").Voters(), "zz") })
		})
	}
}

// atVersion returns the encoding of a, with a different version.
func atVersion(a *assignment.Assignment, version uint64) []byte {
	b := a.Encode()
	_, format := binary.Uvarint(b)
	_, partitions := binary.Uvarint(b[format:])
	_, old := binary.Uvarint(b[format+partitions:])

	head := b[: format+partitions : format+partitions]
	return append(binary.AppendUvarint(head, version), b[len(head)+old:]...)
}
