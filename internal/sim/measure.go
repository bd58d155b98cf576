package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Trial configures [Cluster.Measure].
type Trial struct {
	Nodes int           // number of nodes that start at the same time
	Rest  time.Duration // time without a change of members, to measure leases and traffic
	Crash int           // number of nodes that crash at the same time; less than Nodes
	Limit time.Duration // time limit for each agreement

	// Vanish makes the hosts of the nodes that crash vanish, too, so that nothing refuses connections to them.
	Vanish bool

	// Tick is called at least every 100 ms with the name of the current phase. If it returns an error, the
	// trial ends. Default: nothing.
	Tick func(phase string) error
}

// Measurement is the result of a Trial.
type Measurement struct {
	// FalseExpiries counts leases that expired at a node during the trial although the process that held them
	// ran and took part. It does not count leases that end at other nodes after a leave message or a crash.
	FalseExpiries int

	OldestAge time.Duration // of a lease at any node, at rest; measured each second
	Bytes     float64       // sent in packets by a node per second, at rest
	Packets   float64       // packets sent by a node per second, at rest
	Agree     Agreements
}

// Agreements are the times until all nodes agreed on members and owners after a change,
// or Never.
type Agreements struct {
	Start time.Duration // of all nodes at once
	Join  time.Duration // of one node
	Leave time.Duration // of one node, from its leave message, which it sends after its drain
	Crash time.Duration // of Trial.Crash nodes at once; Never for none
}

// Never is the time of an agreement that was not reached within Trial.Limit.
const Never time.Duration = -1

// Measure runs a trial with a new cluster: a mass start, a time of rest, a join, a leave and a crash. It only
// fails with the error of Trial.Tick.
func (c *Cluster) Measure(t Trial) (Measurement, error) {
	c.measured, c.shared.records = true, make(map[version]*lease.Record)
	m := measuring{
		c: c, trial: t, rng: rand.New(rand.NewPCG(c.opts.Seed, 3)),
		ended: make(map[lease.NodeID]bool), due: make(map[*Process]int),
	}
	m.result.Agree = Agreements{Never, Never, Never, Never}
	for _, phase := range []struct {
		name string
		run  func() error
	}{{"mass start", m.start}, {"rest", m.rest}, {"join", m.join}, {"leave", m.leave}, {"crash", m.crash}} {
		m.phase = phase.name
		if err := phase.run(); err != nil {
			return Measurement{}, err
		}
		if err := m.pass(m.settle(), tick); err != nil {
			return Measurement{}, err
		}
	}
	m.result.FalseExpiries = m.false
	for _, p := range c.nodes {
		m.result.FalseExpiries += m.falseAt(p)
	}
	return m.result, nil
}

const tick = 100 * time.Millisecond

// measuring is the state of a trial.
type measuring struct {
	c      *Cluster
	trial  Trial
	rng    *rand.Rand
	phase  string
	result Measurement

	ended map[lease.NodeID]bool // processes that have exited
	due   map[*Process]int      // how many of their leases a node held when they exited
	false int                   // expiries at nodes that have exited
}

// pass lets time pass in steps.
func (m *measuring) pass(d, step time.Duration) error {
	for ; d > 0; d -= step {
		m.c.Run(min(d, step))
		if m.trial.Tick == nil {
			continue
		}
		if err := m.trial.Tick(m.phase); err != nil {
			return err
		}
	}
	return nil
}

// await lets time pass until the condition holds or the limit is over. It returns how
// long that took since begin, or Never.
func (m *measuring) await(begin time.Time, limit time.Duration, condition func() bool) (time.Duration, error) {
	for !condition() {
		if m.c.now.Sub(begin) >= limit {
			return Never, nil
		}
		if err := m.pass(look, look); err != nil {
			return Never, err
		}
	}
	return m.c.now.Sub(begin), nil
}

// settle returns how long messages about a change continue to spread after the nodes agree.
func (m *measuring) settle() time.Duration {
	ttl := m.c.all()[0].ttl
	if m.phase == "mass start" {
		return 2 * ttl
	}
	return ttl / 2
}

func (m *measuring) start() (err error) {
	ids := make([]string, m.trial.Nodes)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%05d", i)
	}
	begin := m.c.now
	m.c.Start(ids...)
	m.result.Agree.Start, err = m.await(begin, m.trial.Limit, m.c.agreed)
	return err
}

func (m *measuring) rest() error {
	if m.trial.Rest <= 0 {
		return nil
	}
	before := m.traffic()
	for left := m.trial.Rest; left > 0; left -= time.Second {
		if err := m.pass(min(left, time.Second), tick); err != nil {
			return err
		}
		m.result.OldestAge = max(m.result.OldestAge, m.oldest())
	}
	after, share := m.traffic(), float64(m.trial.Nodes)*m.trial.Rest.Seconds()
	m.result.Bytes = float64(after.Bytes-before.Bytes) / share
	m.result.Packets = float64(after.Packets-before.Packets) / share
	return nil
}

func (m *measuring) join() (err error) {
	begin := m.c.now
	m.c.Start("node-new")
	m.result.Agree.Join, err = m.await(begin, m.trial.Limit, m.c.agreed)
	return err
}

func (m *measuring) leave() (err error) {
	p := m.some(1)[0]
	p.Drain()
	if _, err := m.await(m.c.now, p.ttl, func() bool { return p.View().Diverged == 0 }); err != nil {
		return err
	}
	begin := m.c.now
	m.false += m.falseAt(p)
	m.c.sendLeave(p)
	m.result.Agree.Leave, err = m.await(begin, m.trial.Limit, func() bool {
		since, agreed := m.c.now.Sub(begin), m.c.agreed()
		if since >= lastWords {
			m.c.exit(p)
		}
		if !m.ended[lease.NodeID(p.ID)] && (agreed || since >= p.ttl/3) { // the leave message has arrived everywhere
			m.miss(p)
		}
		return agreed
	})
	if err == nil {
		err = m.pass(begin.Add(lastWords).Sub(m.c.now), tick)
	}
	m.c.exit(p)
	return err
}

func (m *measuring) crash() (err error) {
	if m.trial.Crash == 0 {
		return nil
	}
	begin, lost := m.c.now, m.some(m.trial.Crash)
	crash := m.c.Crash
	if m.trial.Vanish {
		crash = m.c.Vanish
	}
	for _, p := range lost {
		m.false += m.falseAt(p)
		crash(p.ID)
	}
	m.miss(lost...)
	m.result.Agree.Crash, err = m.await(begin, m.trial.Limit, m.c.agreed)
	return err
}

// miss notes that nodes have exited, so that their leases may expire at the nodes where they now hold.
func (m *measuring) miss(ps ...*Process) {
	ids := make(map[lease.NodeID]bool)
	for _, p := range ps {
		ids[lease.NodeID(p.ID)] = true
	}
	for _, p := range m.c.nodes {
		m.due[p] += p.holds(ids)
	}
	maps.Copy(m.ended, ids)
}

// falseAt returns how many leases have wrongly expired at p, which are all expired leases except those of
// nodes that have exited.
func (m *measuring) falseAt(p *Process) int {
	stats := p.glance().Stats
	return max(0, int(stats.Expired+stats.Crashed)-(m.due[p]-p.holds(m.ended)))
}

// holds returns how many of the leases are still valid at p.
func (p *Process) holds(ids map[lease.NodeID]bool) (n int) {
	for r := range p.core.Members {
		if ids[r.ID] {
			n++
		}
	}
	return n
}

// some returns n random nodes.
func (m *measuring) some(n int) []*Process {
	all := m.c.all()
	m.rng.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:n]
}

// oldest returns the age of the oldest lease at any node.
func (m *measuring) oldest() (age time.Duration) {
	for _, p := range m.c.nodes {
		age = max(age, p.core.OldestLease(p.Now()))
	}
	return age
}

func (m *measuring) traffic() (sum Traffic) {
	for _, p := range m.c.nodes {
		sum.Packets += p.sent.Packets
		sum.Bytes += p.sent.Bytes
	}
	return sum
}
