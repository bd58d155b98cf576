package node

import (
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/internal/handoff"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Node is the state of a node. Each field is a separate type that makes one kind of decision. Most of these
// types embed the *Node, because their decisions affect each other. For example, a fence ends runs, leases
// and joins.
type Node struct {
	core
	life      lifecycle
	stall     stall
	waiting   pendingSenders
	join      join
	rejoin    rejoin
	reach     reach
	address   address
	identity  identity
	asleep    asleep
	clock     clock
	watch     watch
	health    health
	cordons   cordons
	damping   damping
	isolation isolation
	slowStart slowStart
	weight    autoWeight
	assigner  assigner
	handing   handing
	tables    tables
	duties    []duty
}

// core is the state that all parts of a Node share.
type core struct {
	cfg     Config
	self    lease.NodeID
	started time.Time
	rng     *rand.Rand
	set     *lease.Set
	lease   *OwnLease
	when    schedule
	load    int64
	changed bool // the live set changed since the last publication was planned
	heard   bool // a message was applied or a heartbeat was started since the last Show
	ended   bool

	refusedLog limiter

	stats Stats
	out   Ready
}

// New returns a node that starts to join. Nodes with equal seeds make equal random choices.
func New(now time.Time, cfg Config, seed uint64) *Node {
	cfg.Self.Handoff = cfg.Handoff > 0
	if cfg.Compute == nil {
		cfg.Compute = placement.Compute
	}
	n := &Node{
		core: core{
			cfg: cfg, self: cfg.Self.ID, started: now, rng: rand.New(rand.NewPCG(seed, 0)),
			set: lease.NewSet(now, cfg.Self, lease.Params{
				TTL: cfg.LeaseTTL, MaxSkew: cfg.MaxSkew, Settings: cfg.Settings,
			}),
			lease: new(OwnLease),
			when:  schedule{renewEvery: cfg.HeartbeatInterval, every: cfg.GossipInterval},
			load:  lease.NoLoad,
		},
		life:      lifecycle{debounce: cfg.Debounce, grace: cfg.StartupGrace, holds: make(holds)},
		isolation: isolationOf(cfg),
		stall:     stall{ttl: cfg.LeaseTTL, lastTurn: now},
		rejoin:    rejoin{debounce: cfg.Debounce},
		damping:   damping{off: cfg.DisableFlapDamping, ttl: cfg.LeaseTTL},
		slowStart: slowStart{over: cfg.SlowStart, wanted: cfg.Self.Weight},
		weight:    autoWeight{base: cfg.Self.Weight},
		asleep:    asleep{rng: rand.New(rand.NewPCG(seed, 1))},
		assigner:  assigner{on: placement.Remembers(cfg.Strategy), quorum: now},
		handing:   handing{bound: cfg.Handoff, state: handoff.New(), waits: make(map[placement.Partition]*wait)},
	}
	n.connect()
	n.duties = n.allDuties()
	if n.join.begin(now, cfg.StartupGrace); cfg.Bootstrap {
		n.join.until = now
	}
	if n.health.begin(cfg.Checked); cfg.Checked {
		n.life.holds[CauseUnhealthy] = Hold{Cause: CauseUnhealthy, Reason: n.health.why()} // not logged yet
		n.health.stateHealth()
	}
	if cfg.AutoWeight {
		n.weight.begin(now)
	}
	if cfg.StartDraining {
		n.life.hold(now, Hold{Cause: CauseDraining, Reason: "since its start"})
	}
	n.heartbeat(now)
	n.renew(now)
	n.out.Show = true
	return n
}

// connect gives each part a pointer to the node.
func (n *Node) connect() {
	n.life.Node, n.waiting.Node, n.join.Node, n.rejoin.Node, n.reach.Node, n.address.Node = n, n, n, n, n, n
	n.asleep.Node, n.clock.Node, n.watch.Node, n.health.Node, n.damping.Node = n, n, n, n, n
	n.identity.Node, n.cordons.Node, n.weight.Node = n, n, n
	n.isolation.Node, n.slowStart.Node, n.assigner.Node, n.handing.Node, n.tables.Node = n, n, n, n, n
}

// Ready does all work that is due. It returns the work for the shell that has accumulated since the last
// call, and the time of the next call.
func (n *Node) Ready(now time.Time) Ready {
	n.checkLease(now)
	if !n.ended {
		n.out.Next = n.advance(now)
	}
	n.watch.watchOthers()
	if n.out.Show {
		n.heard = false
		n.tables.divergence.count(now, n.tables.table != nil && !n.tables.outdated(), n.set.Differing(TableDigest(n.tables.table)))
	}
	r := n.out
	n.out = Ready{}
	return r
}

// expire ends the leases of other nodes that have run out. After a pause of this process, expire first waits
// until the node has read the heartbeats that arrived during the pause.
func (n *Node) expire(now time.Time) {
	forget := now.Sub(n.when.sweep) >= n.cfg.HeartbeatInterval
	switch {
	case now.Before(n.stall.holdExpiryUntil):
		n.when.expire = n.stall.holdExpiryUntil
		return
	case now.Before(n.when.expiry) && !forget:
		n.when.expire = n.when.expiry
		return
	}
	deadline, ok := n.set.NextDeadline()
	if forget || (ok && !now.Before(deadline)) {
		n.when.sweep = now
		expired := n.set.Stats().Expired
		if n.set.Expire(now) {
			n.note(true)
			if n.set.Stats().Expired > expired { // otherwise only a cordon may have ended
				n.when.lose(now)
			}
			n.join.lost.add(now, n.pick(n.set.ExpiredAddrs(nil), maxLost))
		}
		deadline, ok = n.set.NextDeadline()
	}
	if !ok {
		deadline = n.when.sweep.Add(n.cfg.HeartbeatInterval)
	}
	n.when.expiry, n.when.expire = deadline, deadline
}

// note records whether the live set changed.
func (n *Node) note(changed bool) {
	if changed {
		n.changed = true
		n.when.expiry = time.Time{}
		n.stats.ViewChanges++
	}
}

// heartbeat renews the lease of this node. The heartbeat is sent with the packets of this turn.
func (n *Node) heartbeat(now time.Time) {
	n.set.Heartbeat(now, n.load, TableDigest(n.tables.table))
	n.when.heartbeatSent(now, n.rng.Float64())
	n.heard = true
}

// announceNews sends a changed record or state of this node to other nodes immediately.
func (n *Node) announceNews(now time.Time) {
	n.heartbeat(now)
	n.changed = true
}

// gossip sends a message to a few random peers if there is news.
func (n *Node) gossip(now time.Time) {
	n.when.gossiped(now)
	n.clock.warnSkew(now)
	n.waiting.forgetStreams(now)
	if n.heard {
		n.out.Show = true // ages and loads have changed
	}
	peers := deck{size: n.set.PeerCount(), card: n.set.Peer}
	if !n.rejoin.began.IsZero() {
		all := n.set.ExpiredAddrs(n.set.Peers(nil)) // expired members are probably still running
		peers = deck{size: len(all), card: func(i int) string { return all[i] }}
	}
	recipients := min(n.cfg.GossipNodes, peers.size)
	if recipients == 0 {
		n.renew(n.set.Renewed())
		return
	}
	for _, m := range n.set.Compose(now, n.budget(), recipients) {
		b := n.encode(m)
		for i := range recipients {
			n.send(Packet{To: peers.draw(n.rng, i), Bytes: b, lease: n.lease, heartbeat: n.set.Renewed()})
		}
	}
}

// Sent reports that a packet was sent. If the packet contains a heartbeat, the node's own lease is extended
// from the time of that heartbeat. A lease that has expired, or that a fence has ended, is not extended,
// because other nodes may have taken over the partitions.
func (n *Node) Sent(now time.Time, p Packet) {
	if p.lease != nil && p.lease == n.lease && n.lease.Holds(now.Sub(n.started)) {
		n.renew(p.heartbeat)
	}
}

// apply applies a decoded message and sends the replies.
func (n *Node) apply(now time.Time, m *lease.Message) lease.Effect {
	e := n.set.Apply(now, m)
	n.heard = true
	if e.Duplicate != nil {
		n.out.Duplicate = e.Duplicate
		n.End(now)
		return e
	}
	n.note(e.Changed)
	if e.Urgent {
		n.when.urge(now)
	}
	if !e.Refute.IsZero() {
		n.watch.refute(now, e.Refute)
	}
	if e.Suspended {
		n.asleep.wake(now)
	}
	if e.Overdue {
		n.asleep.wonder(now)
	}
	if e.Counts {
		n.identity.setCluster(n.identity.cluster.Union(m.Cluster))
		n.watch.hear(m)
		n.assigner.applyExtra(now, m)
		n.handing.applyHandoff(now, m)
	}
	for _, r := range n.set.Replies(now, m, e, n.budget()) {
		n.send(Packet{To: r.To, Bytes: n.encode(r.Message)})
	}
	return e
}

// encode encodes m, and adds the identity of the cluster and the assignment stamp of this node.
func (n *Node) encode(m *lease.Message) []byte {
	m.Cluster = n.identity.cluster
	m.Extra = n.assigner.stamp()
	return lease.Encode(m)
}

// budget returns the maximum size of a packet in bytes, before the cluster identity and the stamp are added.
func (n *Node) budget() int {
	b := n.cfg.PacketBytes - n.identity.cluster.Bytes()
	if n.assigner.on {
		b -= maxStampBytes
	}
	return b
}

// send adds a packet to the next Ready, unless its address is empty.
func (n *Node) send(p Packet) {
	if p.To != "" {
		n.out.Packets = append(n.out.Packets, p)
	}
}

// End releases everything without sending a leave message.
func (n *Node) End(now time.Time) {
	n.dropLease()
	n.life.phase, n.ended = Over, true
	n.tables.publish(now)
}
