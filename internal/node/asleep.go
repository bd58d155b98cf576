package node

import (
	"math/rand/v2"
	"slices"
	"time"
)

// asleep finds out that this process was suspended together with its monotonic clock: see
// lease/suspended.go. Nothing in the process shows it, so it asks a member from time to time. If there is a
// reason to believe it, the process asks many members at once. It goes on owning partitions until one answers:
// somebody may only have set the wall clock.
type asleep struct {
	rng    *rand.Rand // of its own, so that questions change no other choice
	ask    time.Time  // when the next question is sent
	until  time.Time  // until when many are asked; zero = there is no reason to
	misses int        // questions in a row without an answer
}

const (
	asksInTTL  = 12 // how often a member is asked
	mostMisses = 8  // after which questions are not repeated any sooner
)

// wallStepped reports whether the wall clock went ahead of the monotonic clock since the latest turn.
func (s *stall) wallStepped(now time.Time) bool {
	wall := now.Round(0).Sub(s.lastTurn.Round(0))
	return wall-now.Sub(s.lastTurn) > s.ttl/8
}

// wonder asks many members from now on, for a moment.
func (n *Node) wonder(now time.Time) {
	a := &n.asleep
	if now.Before(a.until) || n.life.phase == Joining || n.life.phase == Over {
		return
	}
	a.ask, a.until = now, now.Add(n.cfg.LeaseTTL/asksInTTL)
	if n.set.PeerCount() == 0 {
		n.join.next = now // the others may be anywhere
	}
}

// checkAwake asks members whether they hold this node for live.
func (n *Node) checkAwake(now time.Time) {
	a := &n.asleep
	if now.Before(a.ask) || n.life.phase == Joining || n.life.phase == Over {
		return
	}
	a.ask = now.Add(n.cfg.GossipInterval / 4) // unless it is answered by then: packets get lost
	if now.Before(a.until) {
		others := n.set.ExpiredAddrs(n.set.Peers(nil)) // O(nodes)
		for _, lost := range n.join.lost {
			if !slices.Contains(others, lost.addr) {
				others = append(others, lost.addr)
			}
		}
		for range min(n.cfg.GossipNodes, len(others)) {
			n.question(now, others[a.rng.IntN(len(others))])
		}
		return
	}
	if a.misses++; a.misses > mostMisses {
		a.ask = now.Add(n.cfg.LeaseTTL / asksInTTL)
	}
	if peers := n.set.PeerCount(); peers > 0 {
		n.question(now, n.set.Peer(a.rng.IntN(peers)))
	}
}

func (n *Node) question(now time.Time, addr string) {
	n.send(Packet{To: addr, Bytes: n.encode(n.set.Question(now, n.asleep.rng.Uint64()|1))})
}

// noteAnswer notes that a member has answered a question.
func (n *Node) noteAnswer(now time.Time) {
	a := &n.asleep
	if a.misses = 0; !now.Before(a.until) {
		a.ask = now.Add(n.cfg.LeaseTTL / asksInTTL)
	}
}

// wake fences this node: it was suspended for longer than its lease. It tells that to others at once, which may
// have been suspended with it. It knows the present time, so it can tell what is out of date, and joins again
// at once.
func (n *Node) wake(now time.Time) {
	if n.life.phase == Joining || n.life.phase == Over {
		return
	}
	n.log(Warn, "fenced: this process was suspended; rejoining", "ttl", n.cfg.LeaseTTL)
	n.expel(now, "the process was suspended together with its clock")
	n.stall.discardUntil = now
	n.rejoin.began = now
	n.gossip(now)
	n.when.urge(now)
}
