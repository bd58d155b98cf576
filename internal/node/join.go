package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// join finds other nodes. A joining node tries all seeds and lost members concurrently and repeatedly, until
// a node answers or the grace period ends. After it has joined, a node occasionally tries a few addresses at
// which no member is known, because a long split does not heal by itself.
type join struct {
	*Node
	until   time.Time // end of the grace period
	next    time.Time // when tryJoin has something to do; zero = nothing is planned
	targets []*target // targets since the join began, or of a member's latest attempt
	heard   time.Time // when the full state of another node last counted
	waits   time.Time // a full state can complete the join until then, after an exchange
	enterAt time.Time // when the join completes because newcomers have answered; zero = none have
	entered bool      // the node has been a member before
	lost    lost
	turns   map[string]int // the seed that a member tries next, by name, or "" for addresses
	firsts  int            // number of seeds whose first failure was logged
	hungLog limiter
}

// target is an address to try, or a seed name to resolve.
type target struct {
	kind     kind
	addr     string    // address, or name of seeds
	names    []string  // names that resolve to this address
	began    time.Time // when the latest attempt began; zero = there was none
	underWay bool
	next     time.Time // when it is tried again
	tries    int       // attempts that have ended
	namesUs  bool      // the latest lookup of this name returned the address of this node, perhaps among others
	reason   Reason    // reason of the latest failure
	since    time.Time // when an attempt first ended with this reason
	err      error
}

// kind is the kind of a target.
type kind int

const (
	memberAddr kind = iota // a current or former member
	seedAddr
	seedName
)

const (
	retryAfter  = 250 * time.Millisecond // until the next attempt, or up to twice as long
	hangsAfter  = 250 * time.Millisecond // after this time, another attempt takes the place of a hanging one
	lookupTime  = 5 * time.Second
	triesAtOnce = 8
	mostAtOnce  = 64
	leastGrace  = time.Second // shortest wait for a stuck seed
	maxFirsts   = 10          // maximum number of log lines about first failures of seeds
	maxErrors   = 8           // maximum number of errors in the error of a join
)

// Reason specifies why an exchange failed.
type Reason int

// The reasons are listed in order of increasing severity.
const (
	NoAnswer     Reason = iota // no node answered at the address
	HungUp                     // the connection was accepted and closed without a byte: a proxy whose target is down, or a node that is being stopped
	OtherCluster               // ErrOtherCluster, or something that is not a node
	Unfinished                 // the other side accepted the connection but did not finish in time, or did not answer over UDP: it is stuck but not gone
	Refused                    // the other side refused the key, settings or cluster name of this node
)

// begin starts to try targets, for the given grace period.
func (j *join) begin(now time.Time, grace time.Duration) {
	j.next, j.until, j.firsts = now, now.Add(grace), 0
}

// stop drops the attempts in progress, because their results would be out of date.
func (j *join) stop() {
	j.next, j.waits, j.enterAt = time.Time{}, time.Time{}, time.Time{}
	j.targets = nil
}

// finish completes the join at enterAt if newcomers have answered.
func (j *join) finish(now time.Time) {
	if due(now, j.enterAt) {
		if j.enterAt = (time.Time{}); !j.reach.outside() {
			j.enter(now, true)
		}
	}
}

// tryJoin decides which targets to try next, and whether the node continues alone without an answer.
func (j *join) tryJoin(now time.Time) {
	if !due(now, j.next) || j.life.phase == Over {
		return
	}
	if j.life.phase != Joining {
		j.heal(now)
		return
	}
	j.next = time.Time{}
	j.seek(now)
	j.reach.waitForMembers(now)
	switch hopeless, err := j.result(); {
	case hopeless && !j.entered:
		j.out.Hopeless = err
		j.End(now)
	case j.seeks(now):
		j.dial(now)
	case !j.mayAnswer():
		j.continueAlone(now, err)
	}
}

// seeks reports whether a joining node keeps trying.
func (j *join) seeks(now time.Time) bool {
	return len(j.targets) > 0 && (now.Before(j.until) || j.untried()) && !j.aloneByConfig()
}

// Discovered is the name in Config.SeedNames that represents a directory of nodes, for example the API of a
// cluster manager. The directory also contains this node.
const Discovered = "Config.Discover"

// aloneByConfig reports whether all seeds of a new node certainly lead to the node itself, so that it need
// not wait for others. A loopback address cannot lead to another host. If a directory contains only this
// node, no node was registered earlier, and later nodes will find this node there. Another node may be behind
// any other alias of this node, or behind a name that does not resolve yet.
func (j *join) aloneByConfig() bool {
	return !j.entered && len(j.targets) > 0 && j.set.PeerCount() == 0 && len(j.waiting.senders) == 0 &&
		!slices.ContainsFunc(j.targets, func(t *target) bool { return !j.isSelf(t) })
}

// isSelf reports whether a target can only lead to this node itself.
func (j *join) isSelf(t *target) bool {
	switch {
	case t.underWay || t.tries == 0 || t.kind == memberAddr:
		return false
	case t.kind == seedName:
		return t.err == nil && j.leadsHere(t)
	case loopback(t.addr) && errors.Is(t.err, ErrSelf):
		return true
	}
	return t.reason == NoAnswer && t.err != nil && j.isLocalhost(t)
}

// isLocalhost reports whether a target is an address of localhost. The name localhost resolves to both
// 127.0.0.1 and ::1, but this node listens on only one of them.
func (j *join) isLocalhost(t *target) bool {
	port := strings.TrimPrefix(j.cfg.Self.Addr, hostOf(j.cfg.Self.Addr))
	localhost := t.addr == "127.0.0.1"+port || t.addr == "[::1]"+port
	return localhost && slices.ContainsFunc(j.targets, func(name *target) bool {
		return name.kind == seedName && name.addr != Discovered && slices.Contains(t.names, name.addr) && j.leadsHere(name)
	})
}

// leadsHere reports whether a name resolved to this node and cannot lead to another node.
func (j *join) leadsHere(name *target) bool {
	if name.namesUs && (name.addr == Discovered || loopback(j.cfg.Self.Addr)) {
		return true
	}
	return slices.ContainsFunc(j.targets, func(t *target) bool {
		return slices.Contains(t.names, name.addr) && loopback(t.addr) && errors.Is(t.err, ErrSelf)
	})
}

// loopback reports whether an ip:port can only be reached from this host.
func loopback(addr string) bool {
	return strings.HasPrefix(addr, "127.") || hostOf(addr) == "[::1]"
}

// seek adds addresses and names for a joining node to try, after it has tried the earlier ones. Members are
// included, because a rejoining node may only know a single member.
func (j *join) seek(now time.Time) {
	if j.untried() {
		return
	}
	j.add(seedName, j.cfg.SeedNames, nil, len(j.cfg.SeedNames))
	j.add(seedAddr, j.cfg.Seeds, nil, len(j.cfg.Seeds))
	j.add(memberAddr, j.lost.addrs(now, nil), nil, maxLost)
	if !j.rejoin.began.IsZero() {
		members := j.set.Peers(nil)
		j.add(memberAddr, members, nil, len(members))
	}
}

// add adds up to most random addresses or names to the targets. It skips the address of this node and the
// addresses in except.
func (j *join) add(k kind, addrs, except []string, most int) {
	known := make(map[string]*target, len(j.targets))
	for _, t := range j.targets {
		known[t.addr] = t
	}
	for _, addr := range j.pick(slices.Clone(addrs), len(addrs)) {
		switch t := known[addr]; {
		case t != nil:
			t.kind = max(t.kind, k) // a member is a seed, too
		case most > 0 && addr != j.cfg.Self.Addr && !slices.Contains(except, addr):
			known[addr] = &target{kind: k, addr: addr}
			j.targets = append(j.targets, known[addr])
			most--
		}
	}
}

// untried reports whether some targets have not been tried yet.
func (j *join) untried() bool {
	return slices.ContainsFunc(j.targets, func(t *target) bool { return t.began.IsZero() })
}

// atOnce returns how many concurrent exchanges a joining node starts before one of them hangs. The number is
// chosen so that, if possible, all addresses are tried within half of the grace period.
func (j *join) atOnce() int {
	turns := max(1, int(j.cfg.StartupGrace/2/hangsAfter))
	return min(max(triesAtOnce, (len(j.targets)+turns-1)/turns), mostAtOnce)
}

// dial starts the attempts of a joining node that are due. It starts a few attempts at the same time, and more as soon
// as those hang. If a seed is already a member, it has joined this node, which is as good as an answer.
func (j *join) dial(now time.Time) {
	var members []string
	if j.rejoin.began.IsZero() {
		members = j.set.Peers(nil)
	}
	slices.SortStableFunc(j.targets, func(a, b *target) int { return a.began.Compare(b.began) })
	atOnce, most := j.underWay(now), j.atOnce()
	if j.next = j.until; !now.Before(j.next) {
		j.next = now.Add(hangsAfter)
	}
	for _, t := range j.targets {
		switch {
		case t.underWay:
		case now.Before(t.next):
			j.next = earliest(j.next, t.next)
		case slices.Contains(members, t.addr) && !j.reach.outside():
			j.enter(now, true)
			return
		case t.kind == seedName:
			j.try(now, t)
		case atOnce < most:
			j.try(now, t)
			atOnce++
		default:
			j.next = earliest(j.next, now.Add(hangsAfter))
		}
	}
}

// underWay counts the exchanges in progress that are not hanging.
func (j *join) underWay(now time.Time) (count int) {
	for _, t := range j.targets {
		if t.underWay && t.kind != seedName && now.Sub(t.began) < hangsAfter {
			count++
		}
	}
	return count
}

// try starts a lookup or an exchange.
func (j *join) try(now time.Time, t *target) {
	t.began, t.underWay = now, true
	if t.kind != seedName {
		j.out.Exchanges = append(j.out.Exchanges, Exchange{t.addr, t})
		return
	}
	lookup := lookupTime
	if j.life.phase == Joining {
		lookup = max(min(lookup, j.until.Sub(now)/2), hangsAfter) // leave time to try the addresses that are found
	}
	j.out.Lookups = append(j.out.Lookups, Lookup{t.addr, lookup, t})
}

// Resolved reports that a lookup requested by Ready has finished.
func (n *Node) Resolved(now time.Time, l Lookup, addrs []string, err error) {
	n.checkLease(now)
	if !slices.Contains(n.join.targets, l.target) {
		return
	}
	n.join.tried(now, l.target, NoAnswer, err)
	joining := n.life.phase == Joining
	members, most := []string(nil), len(addrs)
	if !joining {
		members, most = n.set.Peers(nil), n.join.seedsAtOnce()
		addrs = n.join.inTurn(l.Name, addrs, most)
	}
	l.target.namesUs = slices.Contains(addrs, n.cfg.Self.Addr)
	before := len(n.join.targets)
	n.join.add(seedAddr, addrs, members, most)
	for i, t := range n.join.targets {
		if slices.Contains(addrs, t.addr) && !slices.Contains(t.names, l.Name) {
			t.names = append(t.names, l.Name) // even if the target existed before
		}
		if i >= before && !joining {
			n.join.try(now, t)
		}
	}
}

// errUnconfirmed ends an exchange with a node that has answered over TCP but not over UDP.
var errUnconfirmed = errors.New("it answers over TCP, and not yet over UDP")

// Exchanged reports that an exchange requested by Ready has finished.
func (n *Node) Exchanged(now time.Time, x Exchange, reason Reason, err error) {
	n.checkLease(now)
	t := x.target
	if t != nil && err == nil {
		n.reach.noteExchange(t.began)
	}
	switch {
	case t == nil:
		n.assigner.fetched(x.Addr, err)
	case !slices.Contains(n.join.targets, t): // another target has answered already, or this node was fenced in between
	case err != nil || n.life.phase != Joining:
		n.join.tried(now, t, reason, err)
	case !n.join.heard.Before(t.began) && !n.reach.outside():
		n.join.tried(now, t, NoAnswer, nil)
		n.join.answered(now)
	default: // a full state may still be confirmed until then
		n.join.tried(now, t, Unfinished, fmt.Errorf("join %s: %w: %s", x.Addr, errUnconfirmed, n.reach.blame()))
		t.next = now.Add(confirmTime)
		n.join.waits = t.next
	}
}

// tried records the end of an attempt. If a seed accepts connections without answering, the grace period
// starts again, because the seed may belong to a cluster.
func (j *join) tried(now time.Time, t *target, reason Reason, err error) {
	if t.tries == 0 || t.reason != reason {
		t.since = now
	}
	t.underWay, t.tries, t.reason, t.err = false, t.tries+1, reason, err
	leave := now.Add(j.lostPause(reason))
	j.lost.tried(t.addr, leave)
	if j.life.phase != Joining {
		if err != nil {
			j.log(Debug, "rejoin failed", "err", err)
		}
		return
	}
	t.next = now.Add(j.jitter(retryAfter, 1, 2))
	if t.kind == memberAddr && reason != Unfinished {
		t.next = latest(t.next, leave)
	}
	j.next = now
	j.tell(now, t)
}

// tell logs the end of a joining node's attempt. If a seed accepts connections but does not answer, the node
// waits for it.
func (j *join) tell(now time.Time, t *target) {
	if t.reason == Refused && !j.entered {
		j.identity.setCluster(lease.ClusterID{}) // don't keep the identity of a cluster that refuses this node
	}
	if t.stuck() {
		j.until = latest(j.until, now.Add(max(j.cfg.StartupGrace, leastGrace)))
		j.out.Show = true
		soon := now.Sub(t.since) < confirmTime // it may be starting at the same moment, or may still answer over UDP
		if !soon && j.reach.whyOneWay() == nil && j.hungLog.allow(now, time.Minute) {
			j.log(Warn, "waiting for a seed that does not answer", "err", t.err)
		}
	}
	if t.tries == 1 && t.err != nil && !errors.Is(t.err, errUnconfirmed) && t.kind != memberAddr && j.firsts < maxFirsts {
		j.firsts++
		j.log(Info, "seed did not answer; trying again", "err", t.err)
	}
}

// lostPause returns how long to wait before the address of a lost member is tried again. The process at that
// address may not be a member and may log each attempt, so all members together try it about once a minute. A
// process that does not answer in time may also be a paused member, so all members together try it once per
// RejoinInterval.
func (j *join) lostPause(reason Reason) time.Duration {
	members := time.Duration(j.set.Live())
	switch reason {
	case OtherCluster, HungUp, Refused:
		return members * j.jitter(time.Minute, 0.8, 1.2)
	case Unfinished:
		return members * j.cfg.RejoinInterval
	case NoAnswer:
	}
	return 0
}

// stuck reports whether a seed accepts connections but does not answer.
func (t *target) stuck() bool { return t.kind == seedAddr && t.reason == Unfinished }

// result joins the errors of the latest attempts, with refusals first. The join is hopeless if all targets
// were tried, some of them refuse this node permanently, and none has answered over TCP. Refusals of members
// that are not seeds are ignored, because other nodes supplied their addresses and may be wrong.
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

// mayAnswer reports whether an attempt in progress may still show that there is a node at a target.
func (j *join) mayAnswer() bool {
	return slices.ContainsFunc(j.targets, func(t *target) bool {
		return t.underWay && t.kind != seedName && (t.tries == 0 || t.stuck())
	})
}

// noteState records that a valid full state of another node has arrived. If an exchange of this node was
// waiting for such a state, the node has now joined. Other messages do not complete a join, because they do
// not list all members. A node that joined after such a message would take over partitions that unknown
// members own.
func (j *join) noteState(now time.Time, m *lease.Message) {
	if len(activeIn(m, j.self)) > 0 {
		j.reach.seen, j.reach.oneWay = time.Time{}, false // packets have now shown what streams had shown
	}
	j.heard = now
	if now.Before(j.waits) && !j.reach.outside() {
		j.answered(now)
	}
}

// answered completes the join. If only newcomers have answered so far, the node first waits for a moment, because a
// member, which knows the cluster time, may be about to answer.
func (j *join) answered(now time.Time) {
	switch {
	case j.set.Established():
		j.enter(now, true)
	case j.enterAt.IsZero():
		j.enterAt = now.Add(retryAfter)
	}
}

// continueAlone completes the join without an answer. The node still tries the seeds occasionally.
func (j *join) continueAlone(now time.Time, err error) {
	switch {
	case j.aloneByConfig():
		j.log(Info, "all seeds are this node; starting a cluster")
	case err != nil:
		j.log(Warn, "no seed answered; continuing alone and retrying", "owns_everything", j.cfg.MinMembers < 2, "err", err)
	}
	j.enter(now, false)
}

// enter turns the joining node into a settling member.
func (j *join) enter(now time.Time, answered bool) {
	if j.life.phase != Joining {
		return
	}
	j.set.Establish()
	j.log(Info, "joined", "seed_answered", answered, "members", len(j.set.View().Members))
	j.life.joined(now, !j.othersOwn())
	j.rejoin.began = time.Time{}
	j.reach = reach{Node: j.Node, answered: now}
	j.entered = true
	j.stop()
	j.next = now.Add(j.jitter(j.cfg.RejoinInterval, 0.8, 1.2))
	if j.life.coldStart {
		j.next = now.Add(j.jitter(j.cfg.Debounce, 0.5, 1.5))
	}
	j.changed = true
	j.out.Show = true // after the start, the caller wants to see who answered
}
