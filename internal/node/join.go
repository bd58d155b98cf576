package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// join is how a node finds others. A joining node tries all seeds and lost members side
// by side, each again and again, until one answers or the grace is over. A member tries
// from time to time a few addresses without a member, because a long split does not heal
// by itself.
type join struct {
	until   time.Time // end of the grace
	next    time.Time // when tryJoin has something to do; zero = nothing is planned
	targets []*target // since the joining began, or of the latest attempt of a member
	heard   time.Time // when the full state of another node counted
	waits   time.Time // until when such a state ends the joining, after an exchange
	enterAt time.Time // when the joining ends since newcomers answered; zero = none did
	entered bool      // the node has been a member before
	lost    lost
	turns   map[string]int // by name, "" for addresses: the seed that a member tries next
	firsts  int            // seeds whose first failure was logged
	hungLog limiter
}

// target is an address that is tried, or a name of seeds that is looked up.
type target struct {
	kind     kind
	addr     string    // or the name
	names    []string  // of which it is an address
	began    time.Time // the latest try; zero = there was none
	underWay bool
	next     time.Time // when it is tried again
	tries    int       // that ended
	namesUs  bool      // the latest lookup of this name led to the address of this node, among others perhaps
	reason   Reason    // of the latest one
	since    time.Time // when a try first ended with this reason
	err      error
}

// kind is what a target is.
type kind int

const (
	memberAddr kind = iota // of now or before
	seedAddr
	seedName
)

const (
	retryAfter  = 250 * time.Millisecond // until the next try, or up to twice as long
	hangsAfter  = 250 * time.Millisecond // then another try takes the turn of one that hangs
	lookupTime  = 5 * time.Second
	triesAtOnce = 8
	mostAtOnce  = 64
	leastGrace  = time.Second // for a seed that is stuck
	maxFirsts   = 10          // lines about the first failures of seeds
	maxErrors   = 8           // in the error of a join
)

// Reason says why an exchange failed.
type Reason int

// The reasons, the worst last.
const (
	NoAnswer     Reason = iota // the address has no node
	HungUp                     // something accepted the connection and closed it without a byte: a proxy whose target is away, or a node that is being stopped
	OtherCluster               // ErrOtherCluster, or something that is no node
	Unfinished                 // the other side accepted the connection, and did not finish in time, or not over UDP: it is stuck, not gone
	Refused                    // the key, the settings or the cluster name of this node
)

// begin plans tries from now on.
func (j *join) begin(now time.Time, grace time.Duration) {
	j.next, j.until, j.firsts = now, now.Add(grace), 0
}

// stop forgets the tries under way: what they learn is out of date.
func (j *join) stop() {
	j.next, j.waits, j.enterAt = time.Time{}, time.Time{}, time.Time{}
	j.targets = nil
}

// tryJoin decides what is tried next, and whether the joining ends without an answer.
func (n *Node) tryJoin(now time.Time) {
	j := &n.join
	if due(now, j.enterAt) {
		if j.enterAt = (time.Time{}); !n.outside() {
			n.enter(now, true)
		}
	}
	if !due(now, j.next) || n.life.phase == Over {
		return
	}
	if n.life.phase != Joining {
		n.heal(now)
		return
	}
	j.next = time.Time{}
	n.seek(now)
	n.waitForMembers(now)
	switch hopeless, err := j.result(); {
	case hopeless && !j.entered:
		n.out.Hopeless = err
		n.End(now)
	case n.seeks(now):
		n.dial(now)
	case !j.mayAnswer():
		n.continueAlone(now, err)
	}
}

// seeks reports whether a joining node goes on trying.
func (n *Node) seeks(now time.Time) bool {
	return len(n.join.targets) > 0 && (now.Before(n.join.until) || n.join.untried()) && !n.aloneByConfig()
}

// Discovered is the name among Config.SeedNames that stands for a directory in which nodes find themselves as
// well, as in the API of a cluster manager.
const Discovered = "Config.Discover"

// aloneByConfig reports whether a new node has seeds, and all of them lead to itself by what they are, so
// that waiting for others is in vain. A loopback address leads to no other host. A directory that names this
// node and nobody else has no earlier node; a later one finds this node there. Any other alias of this node
// may hide another one, and a name that is not found yet, too.
func (n *Node) aloneByConfig() bool {
	j := &n.join
	return !j.entered && len(j.targets) > 0 && n.set.PeerCount() == 0 && len(n.waiting.senders) == 0 &&
		!slices.ContainsFunc(j.targets, func(t *target) bool { return !n.isSelf(t) })
}

// isSelf reports whether a target leads to this node alone, by what it is.
func (n *Node) isSelf(t *target) bool {
	switch {
	case t.underWay || t.tries == 0 || t.kind == memberAddr:
		return false
	case t.kind == seedName:
		return t.err == nil && n.leadsHere(t)
	case loopback(t.addr) && errors.Is(t.err, ErrSelf):
		return true
	}
	return t.reason == NoAnswer && t.err != nil && n.isLocalhost(t)
}

// isLocalhost reports whether a target is an address of localhost, which is 127.0.0.1 and ::1: this node
// listens at one of them.
func (n *Node) isLocalhost(t *target) bool {
	port := strings.TrimPrefix(n.cfg.Self.Addr, hostOf(n.cfg.Self.Addr))
	localhost := t.addr == "127.0.0.1"+port || t.addr == "[::1]"+port
	return localhost && slices.ContainsFunc(n.join.targets, func(name *target) bool {
		return name.kind == seedName && name.addr != Discovered && slices.Contains(t.names, name.addr) && n.leadsHere(name)
	})
}

// leadsHere reports whether a name led to this node, and cannot lead to another one instead.
func (n *Node) leadsHere(name *target) bool {
	if name.namesUs && (name.addr == Discovered || loopback(n.cfg.Self.Addr)) {
		return true
	}
	return slices.ContainsFunc(n.join.targets, func(t *target) bool {
		return slices.Contains(t.names, name.addr) && loopback(t.addr) && errors.Is(t.err, ErrSelf)
	})
}

// loopback reports whether an ip:port is at this host alone.
func loopback(addr string) bool {
	return strings.HasPrefix(addr, "127.") || hostOf(addr) == "[::1]"
}

// seek adds the addresses and names that a joining node tries, once it has tried the
// ones before. In a rejoin, a first member may be all that is known so far, so members
// are tried, too.
func (n *Node) seek(now time.Time) {
	j := &n.join
	if j.untried() {
		return
	}
	n.add(seedName, n.cfg.SeedNames, nil, len(n.cfg.SeedNames))
	n.add(seedAddr, n.cfg.Seeds, nil, len(n.cfg.Seeds))
	n.add(memberAddr, j.lost.addrs(now, nil), nil, maxLost)
	if !n.rejoin.began.IsZero() {
		members := n.set.Peers(nil)
		n.add(memberAddr, members, nil, len(members))
	}
}

// add makes some addresses or names targets: random ones, without this node and the
// exceptions.
func (n *Node) add(k kind, addrs, except []string, most int) {
	known := make(map[string]*target, len(n.join.targets))
	for _, t := range n.join.targets {
		known[t.addr] = t
	}
	for _, addr := range n.pick(slices.Clone(addrs), len(addrs)) {
		switch t := known[addr]; {
		case t != nil:
			t.kind = max(t.kind, k) // a member is a seed, too
		case most > 0 && addr != n.cfg.Self.Addr && !slices.Contains(except, addr):
			known[addr] = &target{kind: k, addr: addr}
			n.join.targets = append(n.join.targets, known[addr])
			most--
		}
	}
}

// untried reports whether there are addresses or names that were not tried yet.
func (j *join) untried() bool {
	return slices.ContainsFunc(j.targets, func(t *target) bool { return t.began.IsZero() })
}

// atOnce is how many exchanges a joining node begins before any of them hangs: so many that all addresses are tried
// within half the grace, if that is possible.
func (n *Node) atOnce() int {
	turns := max(1, int(n.cfg.StartupGrace/2/hangsAfter))
	return min(max(triesAtOnce, (len(n.join.targets)+turns-1)/turns), mostAtOnce)
}

// dial begins the tries of a joining node that are due: a few at once, and others as soon
// as these hang. A seed that is a member has joined this node, which counts as an answer.
func (n *Node) dial(now time.Time) {
	j := &n.join
	var members []string
	if n.rejoin.began.IsZero() {
		members = n.set.Peers(nil)
	}
	slices.SortStableFunc(j.targets, func(a, b *target) int { return a.began.Compare(b.began) })
	atOnce, most := j.underWay(now), n.atOnce()
	if j.next = j.until; !now.Before(j.next) {
		j.next = now.Add(hangsAfter)
	}
	for _, t := range j.targets {
		switch {
		case t.underWay:
		case now.Before(t.next):
			j.next = earliest(j.next, t.next)
		case slices.Contains(members, t.addr) && !n.outside():
			n.enter(now, true)
			return
		case t.kind == seedName:
			n.try(now, t)
		case atOnce < most:
			n.try(now, t)
			atOnce++
		default:
			j.next = earliest(j.next, now.Add(hangsAfter))
		}
	}
}

// underWay counts the exchanges under way that do not hang.
func (j *join) underWay(now time.Time) (count int) {
	for _, t := range j.targets {
		if t.underWay && t.kind != seedName && now.Sub(t.began) < hangsAfter {
			count++
		}
	}
	return count
}

// try begins one lookup or exchange.
func (n *Node) try(now time.Time, t *target) {
	t.began, t.underWay = now, true
	if t.kind != seedName {
		n.out.Exchanges = append(n.out.Exchanges, Exchange{t.addr, t})
		return
	}
	lookup := lookupTime
	if n.life.phase == Joining {
		lookup = max(min(lookup, n.join.until.Sub(now)/2), hangsAfter) // the results of all are needed
	}
	n.out.Lookups = append(n.out.Lookups, Lookup{t.addr, lookup, t})
}

// Resolved reports the end of a lookup that Ready asked for.
func (n *Node) Resolved(now time.Time, l Lookup, addrs []string, err error) {
	n.checkLease(now)
	if !slices.Contains(n.join.targets, l.target) {
		return
	}
	n.tried(now, l.target, NoAnswer, err)
	joining := n.life.phase == Joining
	members, most := []string(nil), len(addrs)
	if !joining {
		members, most = n.set.Peers(nil), n.seedsAtOnce()
		addrs = n.inTurn(l.Name, addrs, most)
	}
	l.target.namesUs = slices.Contains(addrs, n.cfg.Self.Addr)
	before := len(n.join.targets)
	n.add(seedAddr, addrs, members, most)
	for i, t := range n.join.targets {
		if slices.Contains(addrs, t.addr) && !slices.Contains(t.names, l.Name) {
			t.names = append(t.names, l.Name) // also of a target that was there before
		}
		if i >= before && !joining {
			n.try(now, t)
		}
	}
}

// errUnconfirmed ends an exchange with a node that has answered over TCP alone.
var errUnconfirmed = errors.New("it answers over TCP, and not yet over UDP")

// Exchanged reports the end of an exchange that Ready asked for.
func (n *Node) Exchanged(now time.Time, x Exchange, reason Reason, err error) {
	n.checkLease(now)
	t := x.target
	if t != nil && err == nil {
		n.noteExchange(t.began)
	}
	switch {
	case t == nil:
		n.fetched(x.Addr, err)
	case !slices.Contains(n.join.targets, t): // one answered already, or a fence came between
	case err != nil || n.life.phase != Joining:
		n.tried(now, t, reason, err)
	case !n.join.heard.Before(t.began) && !n.outside():
		n.tried(now, t, NoAnswer, nil)
		n.answered(now)
	default: // others may answer until then
		n.tried(now, t, Unfinished, fmt.Errorf("join %s: %w: %s", x.Addr, errUnconfirmed, n.blame()))
		t.next = now.Add(confirmTime)
		n.join.waits = t.next
	}
}

// tried notes the end of a try. A seed that accepts connections may have a cluster: the grace
// begins again.
func (n *Node) tried(now time.Time, t *target, reason Reason, err error) {
	if t.tries == 0 || t.reason != reason {
		t.since = now
	}
	t.underWay, t.tries, t.reason, t.err = false, t.tries+1, reason, err
	leave := now.Add(n.lostPause(reason))
	n.join.lost.tried(t.addr, leave)
	if n.life.phase != Joining {
		if err != nil {
			n.log(Debug, "rejoin failed", "err", err)
		}
		return
	}
	t.next = now.Add(n.jitter(retryAfter, 1, 2))
	if t.kind == memberAddr && reason != Unfinished {
		t.next = latest(t.next, leave)
	}
	n.join.next = now
	n.tell(now, t)
}

// tell says what the end of a try means to a joining node. It waits for a seed that is stuck.
func (n *Node) tell(now time.Time, t *target) {
	if t.reason == Refused && !n.join.entered {
		n.setCluster(lease.ClusterID{}) // not of a cluster that does not take this node
	}
	if t.stuck() {
		n.join.until = latest(n.join.until, now.Add(max(n.cfg.StartupGrace, leastGrace)))
		n.out.Show = true
		soon := now.Sub(t.since) < confirmTime // it starts at this moment, too, or may still answer over UDP
		if !soon && n.oneWay() == nil && n.join.hungLog.allow(now, time.Minute) {
			n.log(Warn, "a seed accepts connections but does not answer; waiting for it", "err", t.err)
		}
	}
	if t.tries == 1 && t.err != nil && !errors.Is(t.err, errUnconfirmed) && t.kind != memberAddr && n.join.firsts < maxFirsts {
		n.join.firsts++
		n.log(Info, "seed did not answer; trying again", "err", t.err)
	}
}

// lostPause is how long the address of a lost member is left alone after a try, because something is there that may
// not be a member, and perhaps logs each try. All members together try it about once a minute. What does not answer in
// time may be a paused member as well: they try that once in a RejoinInterval.
func (n *Node) lostPause(reason Reason) time.Duration {
	members := time.Duration(n.set.Live())
	switch reason {
	case OtherCluster, HungUp, Refused:
		return members * n.jitter(time.Minute, 0.8, 1.2)
	case Unfinished:
		return members * n.cfg.RejoinInterval
	case NoAnswer:
	}
	return 0
}

// stuck reports whether a seed is there, and does not answer.
func (t *target) stuck() bool { return t.kind == seedAddr && t.reason == Unfinished }

// result joins the errors of the latest tries, refusals first. It is hopeless to go on if all targets were
// tried, some refuse this node for good, and none has answered over TCP. A member that is no seed was named by
// others, perhaps wrongly.
func (j *join) result() (hopeless bool, err error) {
	var refusals, errs []error
	tried := true
	for _, t := range j.targets {
		switch {
		case t.err == nil:
		case t.reason == Refused:
			refusals = append(refusals, t.err)
		default:
			errs = append(errs, t.err)
		}
		switch {
		case errors.Is(t.err, errUnconfirmed):
			tried = false
		case t.tries == 0:
			tried = tried && t.kind == memberAddr && !t.underWay
		}
	}
	hopeless = tried && slices.ContainsFunc(j.targets, func(t *target) bool { return t.reason == Refused && t.kind != memberAddr })
	errs = append(refusals, errs...)
	if more := len(errs) - maxErrors; more > 1 {
		errs = append(errs[:maxErrors:maxErrors], fmt.Errorf("and %d others", more))
	}
	return hopeless, errors.Join(errs...)
}

// mayAnswer reports whether a try under way may show that a node is there.
func (j *join) mayAnswer() bool {
	return slices.ContainsFunc(j.targets, func(t *target) bool {
		return t.underWay && t.kind != seedName && (t.tries == 0 || t.stuck())
	})
}

// noteState notes that the full state of another node counts. A node whose exchange waits for
// that has joined. Other messages do not say who all members are: a node that entered by
// them would take over what others own.
func (n *Node) noteState(now time.Time, m *lease.Message) {
	if len(activeIn(m, n.self)) > 0 {
		n.reach.seen, n.reach.oneWay = time.Time{}, false // packets show what streams have shown
	}
	n.join.heard = now
	if now.Before(n.join.waits) && !n.outside() {
		n.answered(now)
	}
}

// answered ends the joining. A newcomer that has heard newcomers alone waits for a moment:
// a member, which knows cluster time, may be about to answer.
func (n *Node) answered(now time.Time) {
	switch {
	case n.set.Established():
		n.enter(now, true)
	case n.join.enterAt.IsZero():
		n.join.enterAt = now.Add(retryAfter)
	}
}

// continueAlone ends the joining without an answer. Seeds are still tried from time to
// time.
func (n *Node) continueAlone(now time.Time, err error) {
	switch {
	case n.aloneByConfig():
		n.log(Info, "seeds lead to this node alone; starting a cluster")
	case err != nil:
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
	n.reach = reach{answered: now}
	n.join.entered = true
	n.join.stop()
	n.join.next = now.Add(n.jitter(n.cfg.RejoinInterval, 0.8, 1.2))
	if n.life.coldStart {
		n.join.next = now.Add(n.jitter(n.cfg.Debounce, 0.5, 1.5))
	}
	n.changed = true
	n.out.Show = true // after the start, the caller wants to see who answered
}
