package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// rejoin brings a node back after its own lease expired, from the moment when it believes messages again.
type rejoin struct {
	*Node
	debounce time.Duration
	began    time.Time // zero = not rejoining
	asked    time.Time // when it asked for missing members; zero = it has not
}

// enterAt returns when gossip alone has brought enough news to enter: some time after the rejoin began, and
// after the node asked for missing members.
func (r *rejoin) enterAt() time.Time {
	if !r.asked.IsZero() {
		return r.asked.Add(r.debounce)
	}
	return r.began.Add(4 * r.debounce)
}

// checkLease fences this node if its own lease has expired, because the process was paused, or could not
// send, for so long that others have taken over. The node then owns nothing, forgets what it knows, and has
// to join again.
func (n *Node) checkLease(now time.Time) {
	if n.stall.wallStepped(now) {
		n.asleep.wonder(now)
	}
	n.health.paused(n.stall.turn(now))
	if n.life.phase == Over || n.lease.Holds(now.Sub(n.started)) {
		return
	}
	n.log(Warn, "fenced: own lease expired; rejoining", "ttl", n.cfg.LeaseTTL,
		"why", "the process was paused, or its sends failed")
	n.rejoin.expel(now, "own lease expired: the process was paused, or could not send")
}

// expel fences this node, and makes it forget what it knows and join again.
func (r *rejoin) expel(now time.Time, why string) {
	r.life.fence()
	r.join.stop()
	r.reach.loops = false
	r.tables.stale = true
	r.asked = time.Time{}
	r.stall.discard(now)
	r.tables.fence(now, why)
	r.damping.lose(r.set.Revived())
	r.damping.fenced = true
	r.set.ExpireOthers(now)
	r.join.lost.add(now, r.pick(r.set.ExpiredAddrs(nil), maxLost))
	r.announce(now)
	r.changed = false // the present knowledge is out of date
	r.when.publish = time.Time{}
}

// listenAgain stops discarding messages and begins to rejoin. Because an attempt may wait for a node that
// does not answer, news from gossip is also enough. It is not enough while the full state of a node waits for
// an answer, because packets then get lost, and those that arrive only name a few members.
func (r *rejoin) listenAgain(now time.Time) {
	if r.stall.discarded(now) {
		r.began = now
		r.join.begin(now, r.cfg.StartupGrace)
	}
	if r.began.IsZero() || now.Before(r.enterAt()) || now.Before(r.join.waits) || len(r.set.Peers(nil)) == 0 {
		return
	}
	// Heartbeats that came while messages were discarded are only relayed a few times, so their senders would
	// be missing until their next heartbeat.
	if missing := r.set.ExpiredHandles(); r.asked.IsZero() && len(missing) > 0 {
		r.asked = now
		r.askFor(now, missing)
		return
	}
	r.join.enter(now, true)
}

// askFor asks a few members for the records of others.
func (r *rejoin) askFor(now time.Time, others []lease.Handle) {
	b := r.encode(r.set.Request(now, others, nil))
	for _, addr := range r.pick(r.set.Peers(nil), r.cfg.GossipNodes) {
		r.send(Packet{To: addr, Bytes: b})
	}
}

const (
	maxLost     = 64
	rememberFor = 24 * time.Hour

	// lostAtOnce is how many lost members all members on a side of a split try together per RejoinInterval,
	// on average. It is limited because a large fleet must not overload the hosts of dead nodes.
	lostAtOnce = 16
)

// lost has the addresses of lost members, in the order in which their leases ran out. It does not include
// members that left.
type lost []loss

type loss struct {
	addr string
	at   time.Time
	next time.Time // earliest next attempt
}

// add adds addresses that are not known as lost yet.
func (l *lost) add(now time.Time, addrs []string) {
	for _, addr := range addrs {
		if !slices.ContainsFunc(*l, func(o loss) bool { return o.addr == addr }) {
			*l = append(*l, loss{addr: addr, at: now})
		}
	}
	*l = slices.Delete(*l, 0, max(0, len(*l)-maxLost))
}

// tried notes until when to leave an address alone.
func (l *lost) tried(addr string, next time.Time) {
	if i := slices.IndexFunc(*l, func(o loss) bool { return o.addr == addr }); i >= 0 {
		(*l)[i].next = next
	}
}

// addrs returns the addresses to try. It forgets members, and addresses that were lost long ago.
func (l *lost) addrs(now time.Time, members []string) (all []string) {
	*l = slices.DeleteFunc(*l, func(o loss) bool {
		return now.Sub(o.at) > rememberFor || slices.Contains(members, o.addr)
	})
	for _, o := range *l {
		if !now.Before(o.next) {
			all = append(all, o.addr)
		}
	}
	return all
}

// seedsAtOnce returns how many seeds a member tries at the same time, which is more while it is alone.
func (j *join) seedsAtOnce() int {
	if j.set.PeerCount() == 0 {
		return mostAtOnce
	}
	return triesAtOnce
}

// inTurn returns k of the seeds of a name. Each call returns the next ones, so that every seed gets its turn.
func (j *join) inTurn(name string, seeds []string, k int) []string {
	if len(seeds) <= k {
		return seeds
	}
	if j.turns == nil {
		j.turns = make(map[string]int)
	}
	from := j.turns[name] % len(seeds)
	j.turns[name] = from + k
	return slices.Concat(seeds, seeds)[from : from+k]
}

// heal begins an attempt of a member, which tries a few seeds and lost members that are not live. While the
// node settles, it also exchanges states with a member.
func (j *join) heal(now time.Time) {
	j.stop()
	j.next = now.Add(j.jitter(j.cfg.RejoinInterval, 0.8, 1.2))
	members := j.set.Peers(nil)
	if j.life.settles() {
		j.add(memberAddr, members, nil, 1)
	}
	j.add(seedName, j.cfg.SeedNames, nil, len(j.cfg.SeedNames))
	most := j.seedsAtOnce()
	isMember := func(addr string) bool { return addr == j.cfg.Self.Addr || slices.Contains(members, addr) }
	j.add(seedAddr, j.inTurn("", slices.DeleteFunc(slices.Clone(j.cfg.Seeds), isMember), most), nil, most)
	share := lostAtOnce / float64(len(members)+1)
	j.add(memberAddr, j.lost.addrs(now, members), nil, int(share+j.rng.Float64()))
	for _, t := range j.targets {
		j.try(now, t)
	}
}
