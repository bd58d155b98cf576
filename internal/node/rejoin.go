package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// rejoin brings a node back after its own lease expired. The rejoin starts when the node trusts messages
// again.
type rejoin struct {
	*Node
	debounce time.Duration
	began    time.Time // zero = not rejoining
	asked    time.Time // when the node asked for missing members; zero = it has not asked
}

// enterAt returns the time at which gossip alone has delivered enough news for this node to become a member.
// It is a fixed time after the rejoin began, or after the node asked for missing members.
func (r *rejoin) enterAt() time.Time {
	if !r.asked.IsZero() {
		return r.asked.Add(r.debounce)
	}
	return r.began.Add(4 * r.debounce)
}

// checkLease fences this node if its own lease has expired. This happens if the process was paused, or could
// not send, for so long that other nodes have taken over. A fenced node owns nothing, forgets what it knows,
// and must rejoin.
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

// expel fences this node, makes it forget what it knows, and makes it rejoin.
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
	r.changed = false // the current knowledge is out of date
	r.when.publish = time.Time{}
}

// listenAgain stops discarding messages and starts the rejoin. An attempt may hang on a node that does not
// answer, so enough news from gossip also completes the rejoin. Gossip is not enough while the full state of
// another node waits for an answer. In that case packets are being lost, and those that arrive only name a
// few members.
func (r *rejoin) listenAgain(now time.Time) {
	if r.stall.discarded(now) {
		r.began = now
		r.join.begin(now, r.cfg.StartupGrace)
	}
	if r.began.IsZero() || now.Before(r.enterAt()) || now.Before(r.join.waits) || len(r.set.Peers(nil)) == 0 {
		return
	}
	// Heartbeats that arrived while messages were discarded are only relayed a few times. If this node did
	// not ask for the missing members, they would be missing until their next heartbeats.
	if missing := r.set.ExpiredHandles(); r.asked.IsZero() && len(missing) > 0 {
		r.asked = now
		r.askFor(now, missing)
		return
	}
	r.join.enter(now, true)
}

// askFor asks a few members for the records of other nodes.
func (r *rejoin) askFor(now time.Time, others []lease.Handle) {
	b := r.encode(r.set.Request(now, others, nil))
	for _, addr := range r.pick(r.set.Peers(nil), r.cfg.GossipNodes) {
		r.send(Packet{To: addr, Bytes: b})
	}
}

const (
	maxLost     = 64
	rememberFor = 24 * time.Hour

	// lostAtOnce is the average number of lost members that one side of a split tries per RejoinInterval. The
	// limit keeps a large fleet from overloading the hosts of dead nodes.
	lostAtOnce = 16
)

// lost contains the addresses of lost members, in the order in which their leases ran out. It does not
// contain members that left.
type lost []loss

type loss struct {
	addr string
	at   time.Time
	next time.Time // earliest next attempt
}

// add appends addresses that are not in the list yet.
func (l *lost) add(now time.Time, addrs []string) {
	for _, addr := range addrs {
		if !slices.ContainsFunc(*l, func(o loss) bool { return o.addr == addr }) {
			*l = append(*l, loss{addr: addr, at: now})
		}
	}
	*l = slices.Delete(*l, 0, max(0, len(*l)-maxLost))
}

// tried records when an address may be tried again.
func (l *lost) tried(addr string, next time.Time) {
	if i := slices.IndexFunc(*l, func(o loss) bool { return o.addr == addr }); i >= 0 {
		(*l)[i].next = next
	}
}

// addrs returns the addresses that may be tried now. It removes addresses of live members, and those that
// were lost long ago.
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

// seedsAtOnce returns how many seeds a member tries at the same time. The number is larger while the member
// is alone.
func (j *join) seedsAtOnce() int {
	if j.set.PeerCount() == 0 {
		return mostAtOnce
	}
	return triesAtOnce
}

// inTurn returns k of the seeds that belong to a name. Each call returns the next k seeds, so that every seed
// gets its turn.
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

// heal makes a member try a few seeds and lost members that are not live. While the node settles, heal also
// exchanges states with a member.
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
