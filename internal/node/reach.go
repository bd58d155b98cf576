package node

import (
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// reach checks whether packets of this node reach other nodes, and whether packets of other nodes reach this node.
// Normally the messages of other nodes show that they receive packets of this node, because these messages contain what
// their senders know about this node. If they don't show it, this node asks other nodes, with packets and over streams.
// If other nodes answer only over streams, this node releases its partitions, because other nodes have taken them over
// or are about to.
type reach struct {
	*Node
	answered time.Time // time of the latest heartbeat before another node answered a challenge; leases count from this heartbeat
	since    time.Time // when the doubt began; zero = there is none
	ask      time.Time // when the next challenges are sent
	dial     time.Time // when the next exchanges start
	present  time.Time // when active members were found since the doubt began; zero = none were
	streamed time.Time // when the latest stream showed active members to this joining node; the message may be a replay
	first    time.Time // when an exchange of this node first brought such a stream; starts over when seen is zero
	seen     time.Time // when the latest such stream came; zero = none
	oneWay   bool      // packets have had enough time to show what streams have shown
	arrives  bool      // packets have arrived at the advertised address of this joining node
	loops    bool      // this node's own messages have come back to it
	silent   string    // advertised address of the sender of the latest state that names active members and waits for an answer
	limit    limiter
}

// doubts reports whether this node has a reason to suspect that no other node hears it.
func (r *reach) doubts() bool { return !r.since.IsZero() }

// unheard returns how long this node has been without a sign that another node hears it.
func (r *reach) unheard(now time.Time) time.Duration {
	return now.Sub(latest(r.answered, r.set.Shown()))
}

// cutOffAfter returns how long this node may be unheard. This is as long as the node considers its own lease
// valid. Other nodes end the lease a little later.
func (r *reach) cutOffAfter() time.Duration { return r.cfg.LeaseTTL - r.cfg.LeaseTTL/8 }

// mayBeCutOff reports whether this node will soon find out that other nodes do not hear it.
func (r *reach) mayBeCutOff(now time.Time) bool {
	return r.doubts() && (r.unheard(now) <= r.cutOffAfter() || !r.present.IsZero())
}

// checkReach checks whether other nodes hear this node, and fences it if they do not.
func (r *reach) checkReach(now time.Time) {
	unheard := r.unheard(now)
	var others []string
	if r.watch.watches() && unheard > r.cfg.LeaseTTL*5/8 {
		others = r.set.ExpiredAddrs(r.set.Peers(nil)) // O(nodes)
	}
	if len(others) == 0 {
		r.since, r.present, r.ask = time.Time{}, time.Time{}, time.Time{}
		return
	}
	if !r.doubts() {
		r.since, r.ask, r.dial = now, now, now.Add(r.cfg.LeaseTTL/16)
	}
	r.askOthers(now, others)
	if !r.present.IsZero() && unheard > r.cutOffAfter() && now.Sub(r.present) >= r.cfg.LeaseTTL/8 && !now.Before(r.stall.holdExpiryUntil) {
		r.cutOff(now)
	}
}

// askOthers asks other nodes whether they hear this node, and whether they are running.
func (r *reach) askOthers(now time.Time, others []string) {
	ttl := r.cfg.LeaseTTL
	if due(now, r.ask) {
		r.ask = now.Add(r.cfg.GossipInterval)
		if r.unheard(now) > 2*ttl {
			r.ask = now.Add(r.cfg.HeartbeatInterval)
		}
		asked := r.pick(others, r.cfg.GossipNodes)
		for i := range r.cfg.GossipNodes { // if there are few nodes, ask them several times, because packets get lost
			r.send(Packet{To: asked[i%len(asked)], Bytes: r.encode(r.set.Challenge(now, r.random()))})
		}
	}
	if due(now, r.dial) && r.present.IsZero() && r.unheard(now) <= 2*ttl {
		r.dial = now.Add(ttl / 4)
		r.exchangeWith(now, others)
	}
}

// exchangeWith starts exchanges with a few of these addresses.
func (r *reach) exchangeWith(now time.Time, addrs []string) {
	r.join.targets = slices.DeleteFunc(r.join.targets, func(t *target) bool { return !t.underWay })
	before := len(r.join.targets)
	r.join.add(memberAddr, addrs, nil, r.cfg.GossipNodes)
	for _, t := range r.join.targets[before:] {
		r.join.try(now, t)
	}
}

// cutOff fences this node because other members are running but do not hear it. Before the node rejoins, it
// announces its fence to other members, in case some of them hear it after all.
func (r *reach) cutOff(now time.Time) {
	r.log(Warn, "fenced: not heard over UDP; rejoining", "why", "other members run and do not hear this node",
		"advertised", r.cfg.Self.Addr, "unheard", r.unheard(now).Round(time.Millisecond))
	r.rejoin.began = now // so that expired members receive this news, too
	r.life.fence()
	r.announce(now)
	r.gossip(now)
	r.rejoin.expel(now, "other members run, but do not hear this node over UDP")
}

// notePresent records from a message, which may be a replay, that active members are running. If there is only one
// active member, it may be cut off just like this node. In this case, the node with the lower id ignores the other node
// and continues. This exception does not apply to a newcomer.
func (r *reach) notePresent(now time.Time, m *lease.Message, active []lease.NodeID) {
	newcomer := r.life.phase == Joining && !r.join.entered
	if len(active) == 0 || (len(active) == 1 && active[0] > r.self && !newcomer) {
		return
	}
	if r.life.phase == Joining {
		r.streamed = now
	} else if r.doubts() && r.present.IsZero() && r.set.SentSince(m, r.since) {
		r.present = now
	}
}

// dialBack makes a joining node connect to the sender of a state that arrived over a stream, unless this node
// started that exchange. This detects a replayed state, because no node answers at the address in such a
// state.
func (r *reach) dialBack(now time.Time, addr string) {
	if r.life.phase != Joining || len(r.join.targets) >= maxLost+len(r.cfg.Seeds) {
		return
	}
	before := len(r.join.targets)
	r.join.add(memberAddr, []string{addr}, nil, 1)
	if len(r.join.targets) > before {
		r.join.next = now
	}
}

// noteExchange records the end of an exchange that a joining node started. A state that arrived during the
// exchange shows which nodes are running now. A replayed state has the same effect only if it happens to
// arrive during an exchange.
func (r *reach) noteExchange(began time.Time) {
	if r.life.phase != Joining || r.streamed.IsZero() || r.streamed.Before(began) {
		return
	}
	if r.seen.IsZero() {
		r.first = r.streamed
	}
	r.seen = r.streamed
}

// hearOthers records a message that arrived in a packet while this node doubts that other nodes hear it.
func (r *reach) hearOthers(now time.Time, m *lease.Message) {
	if r.doubts() && now.Sub(r.since) >= r.cfg.LeaseTTL/8 {
		r.notePresent(now, m, r.set.Active())
	}
}

// activeIn returns the nodes other than self that are active according to a full state.
func activeIn(m *lease.Message, self lease.NodeID) (ids []lease.NodeID) {
	active := make(map[lease.Handle]bool)
	for _, b := range m.Heartbeats {
		active[b.Handle] = b.State == lease.Active || b.State == lease.Draining
	}
	for _, r := range m.Records {
		if r.ID != self && active[r.Handle()] && !slices.Contains(ids, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// heardByPacket records that another node has answered a challenge, so packets arrive in both directions.
func (r *reach) heardByPacket() {
	r.answered = r.set.Renewed()
	if !r.outside() {
		r.seen, r.oneWay = time.Time{}, false
	}
}

// outside reports whether a joining node has seen active members over streams, but none of them in packets. Other
// joining nodes cannot make such a node a member, because packets of the members may not reach these nodes either. The
// node is no longer outside if a full state names active members, even if their heartbeats are rejected because of a
// clock: see join.noteState.
func (r *reach) outside() bool { return !r.seen.IsZero() && !r.set.OthersActive() }

// answerWithin returns how long this node waits for packets to show what a stream has shown.
func (r *reach) answerWithin() time.Duration { return r.cfg.LeaseTTL / 8 }

// whyOneWay returns why a node is still joining although members answer, or nil if there is no such reason.
func (r *reach) whyOneWay() error {
	if r.life.phase != Joining || !r.oneWay {
		return nil
	}
	return fmt.Errorf("members answer over TCP, but UDP does not get through both ways: %s", r.blame())
}

// blame returns the most likely reason why packets are lost.
func (r *reach) blame() string {
	if err := r.address.reason; err != nil {
		return err.Error()
	}
	if r.loops {
		return fmt.Sprintf("packets that this node sends to others come back to it: do they advertise an address that every host has, such as a bridge's? This node advertises %s",
			r.cfg.Self.Addr)
	}
	if r.arrives && r.silent != "" {
		return fmt.Sprintf("packets of others arrive here, but %s, which a member advertises, does not answer: is UDP blocked, or is that address wrong?",
			r.silent)
	}
	return fmt.Sprintf("is UDP blocked, or can others not reach this node at its advertised address %s?", r.cfg.Self.Addr)
}

// waitForMembers makes a joining node wait if it sees active members only over streams, because the node is
// not alone.
func (r *reach) waitForMembers(now time.Time) {
	// The next attempt comes after confirmTime, even if leases are shorter.
	if now.Sub(r.seen) > max(r.cfg.LeaseTTL, 2*confirmTime) {
		r.seen = time.Time{}
	}
	r.oneWay = !r.seen.IsZero() && now.Sub(r.first) >= r.answerWithin()
	err := r.whyOneWay()
	switch {
	case r.life.phase != Joining || r.seen.IsZero():
		return
	case err == nil:
		r.join.until = latest(r.join.until, r.first.Add(r.answerWithin()))
		return
	}
	r.out.Show = true
	r.join.until = latest(r.join.until, now.Add(max(r.cfg.StartupGrace, leastGrace)))
	if r.limit.allow(now, time.Minute) {
		r.log(Warn, "not heard over UDP; waiting", "err", err)
	}
}

// address watches the advertised address of this node, because other nodes reach it only there. While other nodes may
// not reach this address, the shell checks whether the host still has it, and whether the host has a better address.
type address struct {
	*Node
	next   time.Time // when the shell checks again; zero = no check is needed
	looks  bool      // a check is in progress
	reason error     // why other nodes do not reach this node, as of the latest check; nil = unknown
	limit  limiter
}

// mostToReach is the maximum number of addresses that a check considers.
const mostToReach = 64

// checkAddress makes the shell check the address of this node while other nodes may not reach it.
func (a *address) checkAddress(now time.Time) {
	pause := a.cfg.LeaseTTL / 8
	switch {
	case a.reach.doubts(), a.life.phase == Joining:
	case a.set.PeerCount() == 0 && a.life.phase != Over: // newcomers may not find this node
		pause = a.cfg.RejoinInterval
	default:
		a.next, a.reason = time.Time{}, nil
		return
	}
	if a.next.IsZero() && a.life.phase == Joining && !a.join.entered {
		a.next = now.Add(pause) // the shell has checked at the start
	}
	if a.looks || now.Before(a.next) {
		return
	}
	a.next, a.looks = now.Add(pause), true
	a.out.Locate = a.toReach(now)
}

// toReach returns the addresses of other nodes that this node needs to reach.
func (a *address) toReach(now time.Time) []string {
	all := slices.Clone(a.cfg.Seeds)
	for _, t := range a.join.targets {
		if t.kind == seedAddr {
			all = append(all, t.addr)
		}
	}
	all = append(all, a.set.ExpiredAddrs(a.set.Peers(nil))...)
	all = append(all, a.join.lost.addrs(now, nil)...)
	all = slices.DeleteFunc(all, func(addr string) bool { return addr == a.cfg.Self.Addr })
	return append([]string{}, all[:min(len(all), mostToReach)]...)
}

// Located is the result of the shell's check of this node's address.
type Located struct {
	Addr   string // address that the node advertises from now on
	HTTP   uint32 // as in a record
	Reason error  // why other nodes do not reach it there; nil = unknown
	Final  bool   // other nodes never will, so a node that has never been a member ends
}

// Located reports the result of a check that Ready requested.
func (n *Node) Located(now time.Time, found Located) {
	n.checkLease(now)
	a := &n.address
	n.out.Show = n.out.Show || (a.reason != nil) != (found.Reason != nil)
	a.looks, a.reason = false, found.Reason
	switch {
	case n.ended, n.life.phase == Over:
		return
	case found.Addr != n.cfg.Self.Addr:
		n.address.readdress(now, found)
	case found.Reason == nil:
		return
	case found.Final && n.life.phase == Joining && !n.join.entered:
		n.out.Hopeless = found.Reason
		n.End(now)
	case a.limit.allow(now, time.Minute):
		n.log(Warn, "others cannot reach this node", "advertised", n.cfg.Self.Addr, "why", found.Reason)
	}
	n.out.Show = true
}

// readdress announces the new address of this node. A joining node retries immediately. A member exchanges
// states with another member, because its memberlist was restarted and does not know any members.
func (a *address) readdress(now time.Time, found Located) {
	a.log(Warn, "own address changed", "from", a.cfg.Self.Addr, "to", found.Addr)
	a.cfg.Self.Addr, a.cfg.Self.HTTP = found.Addr, found.HTTP
	a.set.Update(func(r *lease.Record) { r.Addr, r.HTTP = found.Addr, found.HTTP })
	a.announceNews(now)
	if a.life.phase != Joining {
		a.reach.exchangeWith(now, a.pick(a.set.Peers(nil), 1))
		return
	}
	a.reach.seen, a.reach.oneWay = time.Time{}, false
	for _, t := range a.join.targets {
		t.next = now
	}
	a.join.next = now
}
