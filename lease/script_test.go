package lease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/roost-cluster/roost/lease"
)

// Each script under testdata/script tells the story of a few leases. Run the test with -rewrite to record the
// current behavior, and read the difference.
//
//	node a [inc=N] [clock=D]   a process starts; its wall clock differs by D
//	node a newcomer [clock=D]  the same, but the process does not know cluster time yet
//	establish a                a has joined, or found no cluster to join
//	kill a                     a stops without a leave message
//	heartbeat a [load=N]       a renews its lease
//	drain a, leave a           a changes its state and sends a heartbeat
//	weigh a                    a changes its weight, and so its record, and sends a heartbeat
//	send a b                   a sends b a gossip message; b requests missing records
//	sync a b                   a and b exchange full syncs, as in a join
//	advance D                  time passes on all nodes
//	expire a                   a expires leases
//	suspend a                  a was paused for longer than the TTL
//	view a                     print the live nodes in a's view: id/incarnation, state, age,
//	                           and the weight if it is not 1
func TestScripts(t *testing.T) {
	clear(trusted) // a set remembers a limited number of senders
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		t.Helper()
		st := stage{now: epoch, nodes: make(map[string]*actor)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			st.out.Reset()
			st.run(t, d)
			if st.out.Len() == 0 {
				return "ok\n"
			}
			return st.out.String()
		})
	})
}

type stage struct {
	now   time.Time
	nodes map[string]*actor
	out   strings.Builder
}

type actor struct {
	set   *lease.Set
	clock time.Duration
	name  string
}

func (st *stage) printf(format string, args ...any) { fmt.Fprintf(&st.out, format+"\n", args...) }

func (st *stage) at(a *actor) time.Time { return st.now.Add(a.clock) }

func (st *stage) run(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	arg := func(i int) string {
		if i >= len(d.CmdArgs) {
			d.Fatalf(t, "%s: too few arguments", d.Cmd)
		}
		return d.CmdArgs[i].Key
	}
	node := func(i int) *actor {
		a := st.nodes[arg(i)]
		if a == nil {
			d.Fatalf(t, "no node %s", arg(i))
		}
		return a
	}
	switch d.Cmd {
	case "node":
		st.start(t, d, arg(0))
	case "establish":
		node(0).set.Establish()
	case "kill":
		delete(st.nodes, arg(0))
	case "heartbeat":
		var load int64
		d.MaybeScanArgs(t, "load", &load)
		a := node(0)
		a.set.Heartbeat(st.at(a), load, 0)
	case "drain", "leave":
		a := node(0)
		a.set.SetState(map[string]lease.State{"drain": lease.Draining, "leave": lease.Left}[d.Cmd])
		a.set.Heartbeat(st.at(a), 0, 0)
	case "weigh":
		a := node(0)
		a.set.Update(func(r *lease.Record) { r.Weight++ })
		a.set.Heartbeat(st.at(a), 0, 0)
	case "send":
		st.send(t, node(0), node(1))
	case "sync":
		a, b := node(0), node(1)
		st.deliver(t, a, b, a.set.Sync(st.at(a)))
		st.deliver(t, b, a, b.set.Sync(st.at(b)))
	case "advance":
		by, err := time.ParseDuration(arg(0))
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		st.now = st.now.Add(by)
	case "expire":
		a := node(0)
		st.printf("changed: %v", a.set.Expire(st.at(a)))
	case "suspend":
		a := node(0)
		a.set.ExpireOthers(st.at(a))
	case "view":
		st.view(node(0))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

func (st *stage) start(t *testing.T, d *datadriven.TestData, name string) {
	t.Helper()
	id, inc, clock := name, uint64(1), "0s"
	d.MaybeScanArgs(t, "id", &id)
	d.MaybeScanArgs(t, "inc", &inc)
	d.MaybeScanArgs(t, "clock", &clock)
	skew, err := time.ParseDuration(clock)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	a := &actor{name: name, clock: skew}
	a.set = offSet(st.now, skew, rec(lease.NodeID(id), inc))
	if d.HasArg("newcomer") {
		a.set = lease.NewSet(st.at(a), *a.set.Self(), testParams)
	}
	st.nodes[name] = a
}

func (st *stage) send(t *testing.T, a, b *actor) {
	t.Helper()
	messages := a.set.Compose(st.at(a), 1400, 1)
	if messages == nil {
		st.printf("%s has no news", a.name)
	}
	for _, m := range messages {
		st.deliver(t, a, b, m)
	}
}

// deliver carries m from a to b over the wire, and then the answers of b. It reports whether m or an echo of m answers
// a challenge.
func (st *stage) deliver(t *testing.T, a, b *actor, m *lease.Message) (answered bool) {
	t.Helper()
	before := b.set.Stats()
	e := b.set.Apply(st.at(b), carry(t, m))
	after := b.set.Stats()
	answered = e.Answered
	var notes []string
	note := func(when bool, format string, args ...any) {
		if when {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	renewed := after.HeartbeatsApplied - before.HeartbeatsApplied + after.AgesApplied - before.AgesApplied
	note(!e.Counts, "dropped")
	note(e.Changed, "changed")
	note(e.Urgent, "to be passed on at once")
	note(renewed > 0 && !e.Changed, "%d renewed", renewed)
	note(after.SkewRejected > before.SkewRejected, "clock too far ahead")
	note(after.Reincarnations > before.Reincarnations, "took a new incarnation")
	if e.Duplicate != nil {
		note(true, "has to stop for %s/%d", e.Duplicate.ID, e.Duplicate.Incarnation)
	}
	replies := b.set.Replies(st.at(b), m, e, 1400)
	for _, r := range replies {
		note(r.PullRecords != nil, "requests %d record(s)", len(r.PullRecords))
		note(r.PullBuckets != nil, "requests the rows of %d bucket(s)", len(r.PullBuckets))
	}
	note(m.PullLeases != nil, "is asked for %d row(s)", len(m.PullLeases))
	if notes == nil {
		notes = []string{"nothing new"}
	}
	st.printf("%s → %s: %s", a.name, b.name, strings.Join(notes, ", "))
	if e.Challenge != "" {
		st.printf("%s challenges %s:", b.name, e.Challenge)
		if st.deliver(t, b, a, b.set.Challenge(st.at(b), 4711)) {
			st.printf("%s reads it again:", b.name)
			st.deliver(t, a, b, m)
		}
	}
	for _, r := range replies {
		switch {
		case r.Echo != 0:
			st.printf("%s echoes:", b.name)
			answered = st.deliver(t, b, a, r.Message)
		case r.PullRecords != nil || r.PullBuckets != nil:
			for _, answer := range answer(a.set, st.at(a), carry(t, r.Message), 1400) {
				st.deliver(t, a, b, answer)
			}
		default:
			if !e.Counts || b.set.AddrOf(m.From) == "" {
				st.printf("%s answers %s:", b.name, a.name)
			}
			st.deliver(t, b, a, r.Message)
		}
	}
	return answered
}

func (st *stage) view(a *actor) {
	for _, m := range a.set.View().Members {
		age := st.at(a).Sub(m.Renewed).Round(ms)
		weight := ""
		if m.Weight != 1 {
			weight = fmt.Sprintf(", weight %d", m.Weight)
		}
		st.printf("%s/%d %v, %v old%s", m.ID, m.Incarnation, m.State, age, weight)
	}
}
