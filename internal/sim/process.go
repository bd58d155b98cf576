package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/ledger"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

type status int

const (
	running status = iota
	paused
	suspended
	crashed
)

// maxBacklog is the maximum number of bytes of packets that wait for a paused process in its socket. maxHeld
// is the maximum number that wait for a suspended process in the queue of its network interface. Further
// packets are lost.
const (
	maxBacklog = 2 << 20
	maxHeld    = 64 << 10
)

// Process runs a core, like an agent. Its methods carry out the core's decisions before they return.
type Process struct {
	ID, Addr string

	c      *Cluster
	core   *node.Node
	offset time.Duration // offset of its wall clock
	status status
	boot   time.Time
	slept  time.Duration // how long it was suspended in total
	since  time.Time     // when it was suspended, if it is
	ttl    time.Duration
	bound  time.Duration // maximum wait of a handoff
	rng    *rand.Rand
	wake   time.Time // when the core wants to be called next

	unfinished   *node.Ready // the turn that the pause interrupted
	backlog      []event     // what waits while the process is paused or suspended
	backlogBytes int

	published *events.State
	runs      map[placement.Partition]*run
	ledger    ledger.Ledger
	view      node.View
	stale     bool // view is older than the latest Show
	sent      Traffic
	duplicate *lease.Record // record of a later process with this ID
	watches   []*watching
}

// Traffic counts what a process has sent, packets only.
type Traffic struct{ Packets, Bytes int }

// Now returns the time by the clocks of the process.
func (p *Process) Now() time.Time { return clock(p.c.now.Add(p.offset), p.c.Elapsed()-p.slept) }

// age returns the time since the process began, by its own clock.
func (p *Process) age() time.Duration { return p.c.now.Sub(p.boot) - p.slept }

// turn carries out the core's decisions.
func (p *Process) turn() {
	r := p.core.Ready(p.Now())
	if p.status == paused { // paused during the turn, for example by a strategy
		p.unfinished = &r
		return
	}
	p.carryOut(r)
	if p.status == running && !r.Next.IsZero() {
		p.wake = p.c.now.Add(r.Next.Sub(p.Now()))
		p.c.queue.push(event{at: p.wake, to: p, slept: p.slept})
	}
}

func (p *Process) carryOut(r node.Ready) {
	if log := p.c.opts.Log; log != nil {
		for _, e := range r.Log {
			log(p, e)
		}
	}
	if r.Show {
		p.stale, p.view = true, node.View{} // views are large: don't keep outdated ones
	}
	p.publish(r)
	for _, packet := range r.Packets {
		p.c.send(p, packet.To, packet.Bytes)
		p.core.Sent(p.Now(), packet)
	}
	for _, x := range r.Exchanges {
		p.c.exchange(p, x, func(reason node.Reason, err error) { p.core.Exchanged(p.Now(), x, reason, err) })
	}
	if r.Watch != nil && !p.c.opts.Unwatched {
		p.watch(r.Watch)
	}
	for _, l := range r.Lookups {
		p.c.after(p, l.Timeout, func() { p.core.Resolved(p.Now(), l, nil, errNoDNS) })
	}
	if r.Duplicate != nil {
		p.duplicate = r.Duplicate
		p.c.exit(p)
	}
}

// publish passes a new state to watchers, if there is a new state. A trial has no watchers.
func (p *Process) publish(r node.Ready) {
	switch {
	case r.State == nil:
	case p.c.measured:
		r.State.Members, r.State.Details = p.c.shared.sameMembers(r.State.Members), nil // there are no watchers
		p.report(r.Stop)
	default:
		b := events.Diff(p.published, r.State)
		p.ledger.Add(b)
		p.published = r.State
		p.follow(b, r.Stop)
	}
}

// handle handles an event of this process.
func (p *Process) handle(e event) {
	switch {
	case p.status == crashed:
		return
	case p.status == paused:
		p.wait(e, maxBacklog)
		return
	case p.status == suspended:
		p.wait(e, maxHeld)
		return
	case e.packet == nil && e.slept < p.slept: // its timer was suspended, too
		e.at, e.slept = e.at.Add(p.slept-e.slept), p.slept
		p.c.queue.push(e)
		return
	case e.packet != nil:
		p.core.Receive(p.Now(), e.packet)
	case e.do != nil:
		e.do()
	case !e.at.Equal(p.wake):
		return // a later call has planned another time
	}
	p.turn()
}

// wait keeps an event until the process continues. Packets beyond most bytes are lost.
func (p *Process) wait(e event, most int) {
	if p.backlogBytes += len(e.packet); e.packet != nil && p.backlogBytes > most {
		p.backlogBytes -= len(e.packet)
		return
	}
	p.backlog = append(p.backlog, e)
}

// do passes a command to the core, unless the process is stopped.
func (p *Process) do(command func(now time.Time)) {
	if p.status == running {
		command(p.Now())
		p.turn()
	}
}

// Drain, Undrain, SetWeight and SetLoad are like those of cluster.Agent, but do not wait.

// Clock returns how far the wall clock is ahead of the true time.
func (p *Process) Clock() time.Duration { return p.offset }

// StepClock sets the wall clock of the host forward or back. The monotonic clock continues.
func (p *Process) StepClock(by time.Duration) { p.offset += by }

// Drain makes the node release what it owns.
func (p *Process) Drain() { p.do(p.core.Drain) }

// DrainAt makes the node drain at the given time of the process's clock.
func (p *Process) DrainAt(at time.Time) { p.do(func(now time.Time) { p.core.DrainAt(now, at) }) }

// Undrain allows the node to own partitions again.
func (p *Process) Undrain() { p.do(p.core.Undrain) }

// SetWeight sets the share of the node.
func (p *Process) SetWeight(w uint32) { p.do(func(now time.Time) { p.core.SetWeight(now, w) }) }

// Cordon makes this node cordon a member for a time, or end its cordon.
func (p *Process) Cordon(id string, d time.Duration) (err error) {
	p.do(func(now time.Time) { err = p.core.Cordon(now, lease.NodeID(id), d, "by "+p.ID) })
	return err
}

// Checked reports the health of the application of this node.
func (p *Process) Checked(err error) { p.do(func(now time.Time) { p.core.Checked(now, err) }) }

// View returns what the node knows, as its agent would show it.
func (p *Process) View() node.View {
	if p.stale {
		p.view, p.stale = p.core.View(), false
	}
	return p.view
}

// glance returns View without Live. In a trial it does not build a list of live members, because the lists of
// all nodes together are large.
func (p *Process) glance() node.View {
	if p.c.measured {
		return p.core.Glance()
	}
	return p.View()
}

// hasMembers reports whether the members of p are exactly these nodes.
func (p *Process) hasMembers(nodes []*Process) bool {
	if !p.c.measured {
		return slices.EqualFunc(p.Members(), nodes, func(id lease.NodeID, n *Process) bool { return string(id) == n.ID })
	}
	i := 0
	for r := range p.core.Members {
		if i == len(nodes) || string(r.ID) != nodes[i].ID {
			return false
		}
		i++
	}
	return i == len(nodes)
}

// Self returns what the node announces about itself, or nil if it is not a member.
func (p *Process) Self() *lease.Member {
	members := p.View().Live.Members
	if i := slices.IndexFunc(members, func(m lease.Member) bool { return string(m.ID) == p.ID }); i >= 0 {
		return &members[i]
	}
	return nil
}

// Stopped reports whether the process is paused or suspended.
func (p *Process) Stopped() bool { return p.status == paused || p.Suspended() }

// Suspended reports whether the process is suspended together with its host.
func (p *Process) Suspended() bool { return p.status == suspended }

// Live reports whether the node takes part in placement, its own lease is valid, and the process is not
// suspended.
func (p *Process) Live() bool {
	return p.status != suspended && p.View().Phase == node.Active && p.view.Lease.Holds(p.age())
}

// Owned returns the partitions that the node owns, in ascending order. It returns no partitions if the node's
// lease is not valid, or while the process is suspended.
func (p *Process) Owned() []placement.Partition {
	v := p.glance()
	if v.State == nil || p.status == suspended || !v.Lease.Holds(p.age()) {
		return nil
	}
	return v.State.Owned()
}

// Batches returns what a watcher receives if it reads every state, beginning with the first state.
func (p *Process) Batches() []events.Batch { return p.ledger.Batches }

// Problems returns the contradictions in Batches, and the differences between their sum and the given state
// of the node.
func (p *Process) Problems(owned []placement.Partition, members []lease.NodeID) []string {
	return p.ledger.Problems(owned, members)
}

// Members returns the ids of the live nodes, sorted.
func (p *Process) Members() []lease.NodeID {
	ids := make([]lease.NodeID, len(p.View().Live.Members))
	for i := range ids {
		ids[i] = p.view.Live.Members[i].ID
	}
	return ids
}

// Sent returns what the process has sent so far.
func (p *Process) Sent() Traffic { return p.sent }

// Duplicate returns the record of a later process that has taken this process's ID, or nil.
func (p *Process) Duplicate() *lease.Record { return p.duplicate }

// SetLoad sets the load that the next heartbeat reports.
func (p *Process) SetLoad(units int64) { p.do(func(time.Time) { p.core.SetLoad(units) }) }
