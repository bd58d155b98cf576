package sim_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// A holder of the key sends an absurd message about n01, as if it were n02, to all nodes,
// once or for ten seconds. It is refused, or within 90 s all nodes list n01 again as it
// was, and agree. A newcomer still joins. A later incarnation is sent once only: one that
// goes on is a later process of n01, and n01 has to stop.
func TestAbsurdValues(t *testing.T) { // S9.3
	const maxIncarnation, maxStart = 1 << 62, 1 << 52
	later := func(f *forgery, incarnation uint64, state lease.State) {
		f.record.Incarnation = incarnation
		f.beat.Handle, f.beat.State = lease.HandleOf(f.record.ID, incarnation), state
	}
	stamped := func(stamp lease.Stamp) func(*forgery) {
		return func(f *forgery) { f.Stamp, f.beat.At = stamp, stamp }
	}
	for name, forge := range map[string]func(*forgery){
		"the last incarnation":             func(f *forgery) { later(f, maxIncarnation, lease.Active) },
		"the last incarnation but one":     func(f *forgery) { later(f, maxIncarnation-1, lease.Active) },
		"farewell of the last incarnation": func(f *forgery) { later(f, maxIncarnation, lease.Left) },
		"an incarnation beyond":            func(f *forgery) { later(f, math.MaxUint64, lease.Active) },
		"its farewell":                     func(f *forgery) { f.beat.State = lease.Left },
		"its record, last version":         func(f *forgery) { f.record.Version, f.beat.Version = math.MaxUint32, math.MaxUint32 },
		"its record, next version":         func(f *forgery) { f.record.Version, f.beat.Version = f.record.Version+1, f.beat.Version+1 },
		"its row, last version":            func(f *forgery) { f.Records, f.beat.Version = nil, math.MaxUint32 },
		"the latest time":                  stamped(maxStart),
		"a time near the latest":           stamped(maxStart - 1),
		"a time beyond":                    stamped(2*maxStart - 1),
		"a beat of the far future":         func(f *forgery) { f.beat.At += 6000; f.Stamp += 6000 },
		"the greatest load":                func(f *forgery) { f.beat.Load = math.MaxInt64 - 2 },
		"the clock of the farthest past":   func(f *forgery) { f.beat.Clock = -99 * year },
		"a clock of the future":            func(f *forgery) { f.beat.Clock = 99 * year },
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

// forgery is a message of n02 with the record of n01 and a beat of it.
type forgery struct {
	*lease.Message
	record *lease.Record
	beat   *lease.Beat
}

func newForgery(c fleet, present *lease.Message) *forgery {
	victim := c.Node("n01").View().Live.Members[1]
	record := *victim.Record
	record.Weight, record.Addr = lease.MaxWeight, "nowhere:1"
	m := &lease.Message{
		From: c.member("n00", "n02").Handle, Stamp: present.Stamp, SentAt: c.Node("n02").Now(),
		Beats:   []lease.Beat{{Handle: victim.Handle, At: present.Stamp, State: lease.Active, Version: record.Version}},
		Records: []*lease.Record{&record},
	}
	return &forgery{m, &record, &m.Beats[0]}
}

func (f *forgery) send(c fleet) {
	for _, id := range c.IDs() {
		c.Inject(id, lease.Encode(f.Message))
	}
}

// heals fails the test unless all nodes list n01 as before within 90 s, agree, and take
// in a newcomer.
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
