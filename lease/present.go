package lease

import (
	"maps"
	"slices"
	"time"
)

// A message may be an old one that somebody recorded and sent again. So it only counts if its sender is known
// to run: the sender is live here, or has recently answered a challenge of this node, perhaps with this
// message. Cluster time never goes back, so what such a sender sent before is at least as old as its stamp
// says. This node challenges any other sender or, if the sender is behind, tells it the time. A challenge has
// a random number, which the answer must repeat. No recorded message does.
//
// A process that is suspended together with its monotonic clock, as in a virtual machine, does not notice it.
// Others end its lease, own what it owned, and forget it. When the process continues, its lease still holds
// by its own clock, and cluster time is ahead of it.
//
// Cluster time is also ahead if a cluster meets another one that began with a later time. Its nodes were not
// suspended, and should keep their leases. Both cases look the same to a node that just adopts the later
// time. So a message by whose time the own lease has ended only counts if its sender answers a challenge. The
// answer says whether the challenger is live at the sender:
//
//   - If a member says yes, it has met another cluster itself, and this node follows it.
//   - If a member says no, it has seen the lease of this node end, so this node was suspended.
//   - Any other sender may belong to another cluster, or have joined in the meantime. It is believed after
//     the members have had time to answer.
//
// Only answers with a random number of this node decide, so recorded messages cannot end a lease.

// present finds out which messages are from the present, and adopts cluster time from them.
type present struct {
	*core
	own      *own
	cordons  *cordons
	failures *failures

	nonce uint64 // the same for all nodes that are challenged at about the same time
	since time.Time
	last  uint64 // the previous nonce, whose answers may be on their way

	runs     map[Handle]time.Time // when a sender answered
	bothWays map[Handle]time.Time // when a sender answered what came in a packet

	led     Stamp     // sum of the forward steps of cluster time since a member said that this node is live
	doubted time.Time // when a sender that is not a member first had a time by which the own lease has ended
}

const (
	// overStream distinguishes the nonce of a stream from that of a packet. The answer to a stream is a
	// packet, too, but only shows that packets from its sender arrive.
	overStream = 1 << 63

	// ofMember marks the nonce of a question that was sent to the address of a member. The process that
	// answers there may be a later one.
	ofMember = 1 << 62

	// challengeLife is how long a nonce is at least used. Its answers count for the same time after that.
	challengeLife = 2 * time.Second
)

// Establish makes this node's own estimate of cluster time count for others. Call it when the node has
// joined, or has found no cluster to join.
func (p *present) Establish() {
	if p.time.provisional {
		p.time.provisional = false
		p.recordNews(p.self) // members ignored what this node sent before
		p.self.agesSent = 0
	}
}

// Established reports whether this node's cluster time counts for others.
func (p *present) Established() bool { return !p.time.provisional }

// accepts decides whether a message counts, and adopts the cluster time of its sender.
func (p *present) accepts(now time.Time, m *Message, e *Effect) bool {
	if m.Provisional && !p.time.provisional {
		return false // it learns the time from its own join
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

// lead notes that a message is about to advance cluster time, unless its sender has shown why.
func (p *present) lead(m *Message, by Stamp, learns bool, e *Effect) {
	if learns || e.Suspended || (e.Answered && (p.heldBy(m) || p.overdue(m, millis(by)))) {
		p.led = 0
		return
	}
	p.led += max(0, by)
}

// noteAnswer notes in e whether m is an answer, and to what. For a newcomer, an answer to a stream does not
// count as proof that the sender runs. Otherwise the newcomer would pass on a cluster time before it is part
// of that cluster.
func (p *present) noteAnswer(now time.Time, m *Message, e *Effect) {
	e.OfMember = p.counts(now, m.Echo^ofMember)
	e.BothWays = p.counts(now, m.Echo) || e.OfMember
	e.Arrives = e.BothWays || p.counts(now, m.Echo^overStream)
	e.Answered = e.BothWays || (e.Arrives && !p.time.provisional)
	if e.OfMember { // this only says whether this node was suspended, and is no reason to believe later messages
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

// believes decides whether a message is from the present, and notes in e what to do if it may not be.
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

// readable reports whether messages would stay readable if this node adopted the cluster time of m.
func (p *present) readable(m *Message) bool {
	return m.Stamp <= maxStart || (p.time.provisional && m.Stamp <= maxLearned)
}

// follow adopts a part of a cluster time that is too late to be adopted at once: up to maxStart, or a TTL.
// Otherwise one absurd message would permanently separate its receiver from all other nodes, because the
// receiver's time would be beyond maxStart when they hear of it.
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

// isRunning reports whether a process is known to run at present. A process with an expired lease is not,
// because its time may have stepped ahead while it was cut off from here.
func (p *present) isRunning(now time.Time, h Handle) bool {
	e := p.known[h]
	return e != nil && e.status == live || within(p.params.TTL, now, p.runs, h)
}

// within reports whether a sender has answered within the last d.
func within(d time.Duration, now time.Time, answers map[Handle]time.Time, h Handle) bool {
	at, ok := answers[h]
	return ok && now.Sub(at) <= d
}

// overdue reports whether the own lease has ended by the time of a message, although not by the clock of this
// node. Packets that have waited for a suspended node would advance its time step by step, and its lease with
// it.
func (p *present) overdue(m *Message, ahead time.Duration) bool {
	ttl := p.params.TTL
	return !p.time.provisional && m.From != p.self.handle &&
		ahead+millis(p.led) > ttl/8 && millis(m.Stamp-p.self.at+p.led) > ttl-ttl/8
}

// believesOverdue decides whether a message counts by whose time the own lease has ended, and notes in e what
// to do if it does not.
func (p *present) believesOverdue(now time.Time, m *Message, ahead time.Duration, e *Effect) bool {
	sender := p.known[m.From]
	if e.Answered && p.explains(now, m, sender, e) {
		return true
	}
	delete(p.runs, m.From) // otherwise its older messages would make it a member
	delete(p.bothWays, m.From)
	e.Overdue = e.Overdue || (sender != nil && sender.status == live)
	if !e.Overdue && ahead > p.params.TTL {
		p.stats.FromFuture++
	}
	e.Challenge = p.addrOfSender(m)
	return false
}

// explains decides whether an answer counts by whose time the own lease has ended, and whether it shows that
// this node was suspended.
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

// advance corrects the estimate of cluster time. A small step makes all leases older or younger by as much.
// After a larger step, or many small ones, leases end when they would have ended without the step, so no
// lease ends because two clusters meet. This node still relays heartbeats with the stamps that it received,
// because some of them are already of the later time. Only a provisional node steps back, and what it heard
// until then has no known stamp.
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

// Overslept reports whether a message of another cluster shows that this node was suspended: its sender has
// answered a [Set.Question] at the address of a member, and the own lease has ended by its time. So all
// members have been restarted in the meantime. If this node had not been suspended, the clocks of a cluster
// at the address of a member would show about the same time as its own.
func (p *present) Overslept(now time.Time, m *Message) bool {
	return m.Settings == p.params.Settings && !m.Provisional && p.counts(now, m.Echo^ofMember) &&
		p.overdue(m, millis(m.Stamp-p.time.at(now)))
}

// SentSince reports whether a message was sent after an instant.
func (p *present) SentSince(m *Message, at time.Time) bool { return m.Stamp >= p.time.at(at) }

// Unconfirmed is for messages that came over a stream. If the message has to wait for an answer which shows
// that packets arrive both ways, it returns the sender's record, which has the address to challenge.
// Otherwise it returns nil. An open stream does not show that packets arrive, but leases need packets, so a
// node that is only heard over streams would come and go. A newcomer is not challenged, because it learns the
// time from its own join.
func (p *present) Unconfirmed(now time.Time, m *Message) (sender *Record, newcomer bool) {
	if m.Settings != p.params.Settings || within(challengeLife, now, p.bothWays, m.From) {
		return nil, false
	}
	return p.sender(m), m.Provisional && !p.time.provisional
}

// EchoTo returns the address to which to send the [Set.Echo] for a message, or "".
func (p *present) EchoTo(m *Message) string {
	if m.Challenge == 0 || m.Settings != p.params.Settings {
		return ""
	}
	return p.addrOfSender(m)
}

// addrOfSender returns the gossip address in the record of a sender, or "". The sender need not be live. If
// the message was a recorded one, the present process at this address gets the answer, if there is one.
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

// StreamNonce returns the Message.Challenge of a message for a stream. The answer shows that its sender runs,
// but not that packets reach it. The random number must be odd.
func (p *present) StreamNonce(now time.Time, random uint64) uint64 {
	return p.nonceAt(now, random) ^ overStream
}

// nonceAt returns the number that others have to repeat: the given random number, which must be odd, or one
// that was given recently.
func (p *present) nonceAt(now time.Time, random uint64) uint64 {
	if age := now.Sub(p.since); p.nonce == 0 || age > challengeLife {
		if p.last = p.nonce; age > 2*challengeLife {
			p.last = 0
		}
		p.nonce, p.since = random, now
	}
	return p.nonce
}
