package node

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// join is how a node finds others. A joining node tries seeds and expired members until
// one answers, or until the grace is over. A member tries from time to time the ones
// that are no members, because a long split does not heal by itself.
type join struct {
	until   time.Time // end of the grace
	next    time.Time // when the next attempt begins; zero = not planned
	attempt *attempt  // under way; nil = none
	heard   bool      // a message of another node counted since the attempt began
	waits   bool      // for the answer to a challenge, after an exchange
	tries   int       // attempts that failed
	err     error     // of the latest one
	entered bool      // the node has been a member before
	known   []string  // addresses of before a fence, which may be forgotten by now
}

// attempt is one try of all addresses.
type attempt struct {
	seeds   []string // addresses
	rest    []string // addresses that are to be tried
	waiting int      // results that are missing
	lookup  error    // of names of seeds
	err     error    // of exchanges
	reason  Reason   // the worst one
}

const (
	retryAfter  = 250 * time.Millisecond // until the next attempt, or up to twice as long
	lookupTime  = 5 * time.Second
	triesAtOnce = 8 // a seed that answers must not wait for silent ones
)

// Reason says why an exchange failed.
type Reason int

// The reasons.
const (
	NoAnswer     Reason = iota
	OtherCluster        // hung up, as nodes of another cluster do, and seeds that are just being stopped
	Refused             // the key or the settings of this node
)

// begin plans attempts from now on.
func (j *join) begin(now time.Time, grace time.Duration) { j.next, j.until = now, now.Add(grace) }

// stop ends the attempt under way: what it learns is out of date.
func (j *join) stop() { j.next, j.attempt, j.waits = time.Time{}, nil, false }

// tryJoin begins an attempt if one is due, or ends the joining after the grace.
func (n *Node) tryJoin(now time.Time) {
	j := &n.join
	if !due(now, j.next) || n.life.phase == Over {
		return
	}
	timeout := lookupTime
	if n.life.phase == Joining {
		if !now.Before(j.until) {
			n.continueAlone(now)
			return
		}
		timeout = min(timeout, j.until.Sub(now))
	}
	a := &attempt{seeds: slices.Clone(n.cfg.Seeds), waiting: len(n.cfg.SeedNames)}
	j.next, j.attempt, j.heard, j.waits = time.Time{}, a, false, false
	for _, name := range n.cfg.SeedNames {
		n.out.Lookups = append(n.out.Lookups, Lookup{name, timeout, a})
	}
	if a.waiting == 0 {
		n.target(now, a)
	}
}

// Resolved reports the end of a lookup that Ready asked for.
func (n *Node) Resolved(now time.Time, l Lookup, addrs []string, err error) {
	n.checkLease(now)
	a := l.attempt
	a.seeds, a.lookup = append(a.seeds, addrs...), errors.Join(a.lookup, err)
	if a.waiting--; a.waiting == 0 && a == n.join.attempt {
		n.target(now, a)
	}
}

// target chooses the addresses of an attempt: seeds, then expired members, without
// members and this node. A seed that is a member has joined this node, which counts as
// an answer. In a rejoin, a first member may be all that is known so far, so members
// are tried, too.
func (n *Node) target(now time.Time, a *attempt) {
	members, others := n.set.Peers(nil), n.set.ExpiredAddrs(slices.Clone(n.join.known))
	if !n.rejoin.began.IsZero() {
		members, others = nil, append(others, members...)
	}
	if n.life.phase == Settling {
		a.rest = append(a.rest, n.pick(members, 1)...)
	}
	seeds := n.pick(a.seeds, len(a.seeds))
	for _, addr := range append(seeds, n.pick(others, len(others))...) {
		switch {
		case slices.Contains(members, addr):
			if n.life.phase == Joining {
				n.enter(now, true)
				return
			}
		case addr != n.cfg.Self.Addr && !slices.Contains(a.rest, addr):
			a.rest = append(a.rest, addr)
		}
	}
	if len(a.rest) == 0 && len(n.cfg.SeedNames) == 0 { // the addresses of names may change
		n.join.until = now
	}
	n.dial(now, a)
}

// dial begins the next exchanges of an attempt, which fails if there are none. A member
// tries a few addresses only: the next attempt tries others.
func (n *Node) dial(now time.Time, a *attempt) {
	joining := n.life.phase == Joining
	if len(a.rest) == 0 || (joining && !now.Before(n.join.until)) || (!joining && a.err != nil) {
		n.failed(now, a)
		return
	}
	group := a.rest[:min(len(a.rest), triesAtOnce)]
	a.rest, a.waiting = a.rest[len(group):], len(group)
	for _, addr := range group {
		n.out.Exchanges = append(n.out.Exchanges, Exchange{addr, a})
	}
}

// errUnconfirmed ends an exchange with a node that has answered over TCP alone.
var errUnconfirmed = errors.New("it answers over TCP, but not over UDP: is UDP blocked, or its advertised address wrong?")

// Exchanged reports the end of an exchange that Ready asked for.
func (n *Node) Exchanged(now time.Time, x Exchange, reason Reason, err error) {
	n.checkLease(now)
	a := x.attempt
	switch {
	case a == nil:
		n.fetched(x.Addr, err)
	case a != n.join.attempt: // one answered already, or a fence came between
	case err != nil:
		a.err, a.reason = errors.Join(a.err, err), max(a.reason, reason)
		if a.waiting--; a.waiting == 0 {
			n.dial(now, a)
		}
	case n.life.phase != Joining:
		n.heal(now)
	case n.join.heard:
		n.enter(now, true)
	default: // others may answer until then
		a.err = errors.Join(a.err, fmt.Errorf("join %s: %w", x.Addr, errUnconfirmed))
		n.join.waits, n.join.err, n.join.next = true, a.err, now.Add(confirmTime)
	}
}

// hear notes that a message of another node counts. A node whose exchange is waiting for
// that has joined.
func (n *Node) hear(now time.Time) {
	n.join.heard = true
	if n.join.waits {
		n.enter(now, true)
	}
}

// failed plans what follows an attempt without an answer. A node that was never a
// member ends if the seeds that answer refuse it for good.
func (n *Node) failed(now time.Time, a *attempt) {
	j := &n.join
	if n.life.phase != Joining {
		if a.err != nil {
			n.log(Debug, "rejoin failed", "err", a.err)
		}
		n.heal(now)
		return
	}
	j.stop()
	j.tries++
	j.err = errors.Join(a.lookup, a.err)
	if !j.entered && (a.reason == Refused || (a.reason == OtherCluster && j.tries >= 3)) {
		n.out.Hopeless = a.err
		n.End(now)
		return
	}
	if j.next = earliest(j.until, now.Add(n.jitter(retryAfter, 1, 2))); !j.next.After(now) {
		n.continueAlone(now)
	}
}

// continueAlone ends the joining without an answer. Seeds are still tried from time to
// time.
func (n *Node) continueAlone(now time.Time) {
	if err := n.join.err; err != nil {
		n.log(Warn, "no seed answered; continuing alone and retrying", "err", err)
	}
	n.enter(now, false)
}

// enter makes the node a member that settles.
func (n *Node) enter(now time.Time, answered bool) {
	if n.life.phase != Joining {
		return
	}
	n.set.Establish()
	n.log(Info, "joined", "seed_answered", answered, "members", len(n.set.View().Members))
	n.life.joined(now, !n.othersOwn())
	n.rejoin.began = time.Time{}
	n.join.entered, n.join.known = true, nil
	n.heal(now)
	if n.life.coldStart {
		n.join.next = now.Add(n.jitter(n.cfg.QuietWindow, 0.5, 1.5))
	}
	n.changed = true
	n.out.Show = true // after the start, the caller wants to see who answered
}

// heal plans the next attempt of a member.
func (n *Node) heal(now time.Time) {
	n.join.stop()
	n.join.next = now.Add(n.jitter(n.cfg.RejoinInterval, 0.8, 1.2))
}

// jitter returns a random share of a time.
func (n *Node) jitter(d time.Duration, least, most float64) time.Duration {
	return time.Duration((least + n.rng.Float64()*(most-least)) * float64(d))
}
