package lease

import (
	"maps"
	"slices"
	"time"
)

// An attacker can record a message and replay it later. So a node accepts a message only if the sender is
// known to run. The sender must be live in the set, or must have recently answered a challenge of this node,
// perhaps with this message. Cluster time never goes back, so earlier messages of a running sender are at
// least as old as their stamps say. The node challenges any other sender. If the sender is behind, the node
// tells it the current cluster time instead. A challenge contains a random number that the answer must repeat,
// so a recorded message cannot answer it.
//
// A process cannot notice that it was suspended if its monotonic clock was suspended, too, as in a virtual
// machine. Other nodes expire the process's lease, take over its partitions, and forget it. When the process
// resumes, its lease is still valid by its own clock, and cluster time is ahead of its estimate.
//
// Cluster time is also ahead if the cluster meets another cluster that began with a later time. In this case
// no node was suspended, so the nodes should keep their leases. A node that just adopts the later time cannot
// distinguish the two cases. So if the stamp of a message implies that the node's own lease has ended, the
// node accepts the message only after its sender has answered a challenge. The answer shows whether the
// challenger is live at the sender:
//
//   - If the sender is a member and the challenger is live there, the member has met another cluster, and the
//     challenger adopts the member's time.
//   - If the sender is a member and the challenger is not live there, the member has seen the challenger's
//     lease end. So the challenger was suspended.
//   - Any other sender may belong to another cluster, or may have joined in the meantime. The challenger
//     accepts its message after the members have had time to answer.
//
// The decision depends only on answers to this node's random numbers, so replayed messages cannot end a
// lease.

// present is the protocol that rejects replayed messages, and adopts cluster time from the accepted messages.
type present struct {
	*core
	own      *own
	cordons  *cordons
	failures *failures

	nonce uint64 // the same for all nodes that this node challenges at about the same time
	since time.Time
	last  uint64 // the previous nonce, whose answers may still arrive

	runs     map[Handle]time.Time // when a sender last answered a challenge
	bothWays map[Handle]time.Time // when a sender last answered a challenge that was sent in a packet

	led     Stamp     // sum of the forward steps of cluster time since the last answer that explained a step
	doubted time.Time // when a message of a nonmember first implied that this node's lease has ended
}

const (
	// overStream marks a nonce that was sent over a stream instead of in a packet. The answer is a packet in
	// both cases. After a challenge over a stream, the answer only shows that packets arrive from the sender.
	overStream = 1 << 63

	// ofMember marks the nonce of a [Set.Question], which is sent to the address of a member. A later process
	// at the same address may answer the question.
	ofMember = 1 << 62

	// challengeLife is the minimum time for which a node uses a nonce. The node accepts answers to the nonce
	// for the same time after that.
	challengeLife = 2 * time.Second
)

// Establish makes other nodes accept this node's estimate of cluster time. Call it when the node has joined,
// or has found no cluster to join.
func (p *present) Establish() {
	if p.time.provisional {
		p.time.provisional = false
		p.recordNews(p.self) // members ignored earlier messages of this node
		p.self.agesSent = 0
	}
}

// Established reports whether other nodes accept this node's estimate of cluster time.
func (p *present) Established() bool { return !p.time.provisional }

// accepts decides whether this node accepts a message, and adopts the sender's cluster time if it does.
func (p *present) accepts(now time.Time, m *Message, e *Effect) bool {
	if m.Provisional && !p.time.provisional {
		return false // the sender learns the time when it joins
	}
	p.noteAnswer(now, m, e)
	learns := p.time.provisional && !m.Provisional
	by := m.Stamp - p.time.at(now)
	if !p.believes(now, m, millis(by), learns, e) {
		return false
	}
	p.lead(m, by, learns, e)
	if by > 0 || learns {
		p.advance(now, by)
	}
	if learns {
		p.Establish()
	}
	return true
}

// lead adds up how far messages advance cluster time. An answer that explains the step resets the sum.
func (p *present) lead(m *Message, by Stamp, learns bool, e *Effect) {
	if learns || e.Suspended || (e.Answered && (p.heldBy(m) || p.overdue(m, millis(by)))) {
		p.led = 0
		return
	}
	p.led += max(0, by)
}

// noteAnswer records in e whether m is an answer, and to which kind of challenge. A newcomer does not accept
// the answer to a challenge over a stream as proof that the sender runs. Otherwise the newcomer would relay a
// cluster time before it is part of that cluster.
func (p *present) noteAnswer(now time.Time, m *Message, e *Effect) {
	e.OfMember = p.counts(now, m.Echo^ofMember)
	e.BothWays = p.counts(now, m.Echo) || e.OfMember
	e.Arrives = e.BothWays || p.counts(now, m.Echo^overStream)
	e.Answered = e.BothWays || (e.Arrives && !p.time.provisional)
	if e.OfMember { // the answer only shows whether this node was suspended; it does not prove that the sender runs
		return
	}
	if e.Answered && len(p.runs) < MaxNodes {
		p.runs[m.From] = now
	}
	if e.BothWays && len(p.bothWays) < MaxNodes {
		p.bothWays[m.From] = now
	}
}

// counts reports whether nonce is a current nonce of this node.
func (p *present) counts(now time.Time, nonce uint64) bool {
	age := now.Sub(p.since)
	return nonce != 0 && ((nonce == p.nonce && age <= 2*challengeLife) || (nonce == p.last && age <= challengeLife))
}

// believes decides whether a message is current rather than replayed. If that is unclear, believes records in
// e what the caller must do.
func (p *present) believes(now time.Time, m *Message, ahead time.Duration, learns bool, e *Effect) bool {
	behind := ahead < -p.params.TTL && !e.Answered
	switch {
	case ahead > p.params.TTL && !p.readable(m):
		p.follow(now, m, e)
	case behind && !learns:
		p.stats.FromPast++
		e.behind = !m.Provisional
	case p.overdue(m, ahead):
		return p.believesOverdue(now, m, ahead, e)
	case !behind && (e.Answered || p.isRunning(now, m.From)):
		return true
	case ahead > p.params.TTL:
		p.stats.FromFuture++
		fallthrough
	default:
		e.Challenge = p.addrOfSender(m)
	}
	return false
}

// readable reports whether this node's messages would remain readable if it adopted the cluster time of m.
func (p *present) readable(m *Message) bool {
	return m.Stamp <= maxStart || (p.time.provisional && m.Stamp <= maxLearned)
}

// follow adopts a cluster time step by step if it is too late to adopt in a single step. A step goes up to maxStart, or
// is a TTL long. Otherwise a single absurd message would permanently separate its receiver from all other nodes,
// because the receiver's cluster time would already be beyond maxStart when the other nodes receive it.
func (p *present) follow(now time.Time, m *Message, e *Effect) {
	p.stats.FromFuture++
	switch {
	case p.time.provisional || m.Stamp > maxLearned:
	case e.Answered || p.isRunning(now, m.From):
		p.advance(now, max(maxStart-p.time.at(now), stamps(p.params.TTL)))
	default:
		e.Challenge = p.addrOfSender(m)
	}
}

// isRunning reports whether a process is known to run now. An expired lease does not prove that the process
// runs, because its cluster time may have advanced while it was unreachable.
func (p *present) isRunning(now time.Time, h Handle) bool {
	e := p.known[h]
	return e != nil && e.status == live || within(p.params.TTL, now, p.runs, h)
}

// within reports whether a sender has answered within the last d.
func within(d time.Duration, now time.Time, answers map[Handle]time.Time, h Handle) bool {
	at, ok := answers[h]
	return ok && now.Sub(at) <= d
}

// overdue reports whether this node's lease has ended by the stamp of a message, but not by this node's own
// clock. It adds up earlier steps, because packets that were queued while a node was suspended would
// otherwise advance its time, and extend its lease, in small steps.
func (p *present) overdue(m *Message, ahead time.Duration) bool {
	ttl := p.params.TTL
	return !p.time.provisional && m.From != p.self.handle &&
		ahead+millis(p.led) > ttl/8 && millis(m.Stamp-p.self.at+p.led) > ttl-ttl/8
}

// believesOverdue decides whether this node accepts a message whose stamp implies that the node's own lease
// has ended. If not, believesOverdue records in e what the caller must do.
func (p *present) believesOverdue(now time.Time, m *Message, ahead time.Duration, e *Effect) bool {
	sender := p.known[m.From]
	if e.Answered && p.explains(now, m, sender, e) {
		return true
	}
	delete(p.runs, m.From) // otherwise older messages of the sender would make it a member
	delete(p.bothWays, m.From)
	e.Overdue = e.Overdue || (sender != nil && sender.status == live)
	if !e.Overdue && ahead > p.params.TTL {
		p.stats.FromFuture++
	}
	e.Challenge = p.addrOfSender(m)
	return false
}

// explains decides whether this node accepts an answer whose stamp implies that the node's own lease has
// ended, and whether the answer shows that this node was suspended.
func (p *present) explains(now time.Time, m *Message, sender *entry, e *Effect) bool {
	if e.OfMember || (sender != nil && sender.hadLease() && sender.status != retired) {
		e.Suspended = !p.heldBy(m)
		return true
	}
	if p.census.reachable == 0 {
		return true
	}
	if now.Sub(p.doubted) > 2*p.params.TTL {
		p.doubted = now
	}
	e.Overdue = true
	return now.Sub(p.doubted) >= p.params.TTL/8
}

// heldBy reports whether this node is live at the sender of an answer.
func (p *present) heldBy(m *Message) bool {
	return slices.ContainsFunc(m.Heartbeats, func(b Heartbeat) bool { return b.Handle == p.self.handle })
}

// advance corrects the estimate of cluster time. A small step makes all leases older or younger by the size
// of the step. A larger step, or many small steps, do not change when leases end, so no lease ends because
// two clusters meet. This node still relays heartbeats with the stamps that it received, because some of
// these stamps already use the later time. Only a provisional node steps back. The stamps that it received
// before the step are then meaningless.
func (p *present) advance(now time.Time, by Stamp) {
	if by == 0 {
		return
	}
	p.time.base += by
	large := !p.time.isSmall(now, by, p.params.TTL)
	if large || by < 0 {
		p.own.shift(by)
	}
	if by < 0 {
		p.cordons.drop()
	}
	if !large {
		return
	}
	p.oldest = 0
	if by < 0 {
		p.failures.drop()
	}
	tooOld := p.self.at - stamps(p.params.TTL) - 1
	for _, e := range p.known {
		if e == p.self || !e.hadLease() {
			continue
		}
		end := e.renewed() + by
		if by < 0 {
			e.at, e.rowAt = max(1, min(e.at+by, tooOld)), max(1, min(e.rowAt+by, tooOld))
		}
		if e.status == live {
			e.grace = end - e.at
		}
	}
}

// expire forgets old answers.
func (p *present) expire(now time.Time) {
	for _, answers := range []map[Handle]time.Time{p.runs, p.bothWays} {
		maps.DeleteFunc(answers, func(_ Handle, at time.Time) bool { return now.Sub(at) > p.params.TTL })
	}
}

// Overslept reports whether a message of another cluster shows that this node was suspended while all members
// restarted. The message must answer a [Set.Question] that this node sent to the address of a member, and
// this node's lease must have ended by the message's stamp. If this node had not been suspended, a new
// cluster at the address of a member would have about the same time as this node.
func (p *present) Overslept(now time.Time, m *Message) bool {
	return m.Settings == p.params.Settings && !m.Provisional && p.counts(now, m.Echo^ofMember) &&
		p.overdue(m, millis(m.Stamp-p.time.at(now)))
}

// SentSince reports whether the sender sent m at or after the given time.
func (p *present) SentSince(m *Message, at time.Time) bool { return m.Stamp >= p.time.at(at) }

// Unconfirmed returns the record of a sender that the caller must challenge before it applies m, a message
// from a stream. It returns nil if packets are known to arrive both ways, or if the sender's record is
// unknown. An open stream does not prove that packets arrive. Leases need packets, so a node that is only
// reachable over streams would join and expire repeatedly. The caller must not challenge a newcomer, because
// a newcomer learns the time when it joins.
func (p *present) Unconfirmed(now time.Time, m *Message) (sender *Record, newcomer bool) {
	if m.Settings != p.params.Settings || within(challengeLife, now, p.bothWays, m.From) {
		return nil, false
	}
	return p.sender(m), m.Provisional && !p.time.provisional
}

// EchoTo returns the address to which the caller must send the [Set.Echo] of m, or "" if m is not a
// challenge.
func (p *present) EchoTo(m *Message) string {
	if m.Challenge == 0 || m.Settings != p.params.Settings {
		return ""
	}
	return p.addrOfSender(m)
}

// addrOfSender returns the gossip address in the record of a sender, or "". The sender need not be live. If
// the message is a replay, the answer goes to the process that currently uses this address.
func (p *present) addrOfSender(m *Message) string {
	if r := p.sender(m); r != nil {
		return r.Addr
	}
	return ""
}

// sender returns the record of a sender, or nil. The sender need not be live.
func (p *present) sender(m *Message) *Record {
	if m.From == p.self.handle {
		return nil
	}
	for _, r := range m.Records {
		if r.Handle() == m.From {
			return r
		}
	}
	if e := p.known[m.From]; e != nil {
		return e.rec
	}
	return nil
}

// StreamNonce returns the Message.Challenge for a message that the caller sends over a stream. The answer
// shows that its sender runs, but not that packets reach the sender. The random number must be odd.
func (p *present) StreamNonce(now time.Time, random uint64) uint64 {
	return p.nonceAt(now, random) ^ overStream
}

// nonceAt returns the nonce that answers must repeat. It is the given random number, which must be odd, or an
// earlier random number that is still in use.
func (p *present) nonceAt(now time.Time, random uint64) uint64 {
	if age := now.Sub(p.since); p.nonce == 0 || age > challengeLife {
		if p.last = p.nonce; age > 2*challengeLife {
			p.last = 0
		}
		p.nonce, p.since = random, now
	}
	return p.nonce
}
