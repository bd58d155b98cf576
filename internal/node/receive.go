package node

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Receive applies a message that another node sent in a packet.
func (n *Node) Receive(now time.Time, message []byte) {
	if m := n.open(now, message, false); m != nil {
		n.receive(now, m, pendingMessage{bytes: message})
	}
}

// open decodes a message. It returns nil if the message must be ignored.
func (n *Node) open(now time.Time, message []byte, stream bool) *lease.Message {
	n.checkLease(now)
	if n.ended {
		return nil
	}
	if n.stall.discarding(now) {
		n.stats.StaleDropped++
		return nil
	}
	m, err := n.decode(message)
	switch {
	case err == nil && n.identity.ours(now, m, stream):
		return m
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrVersion):
		n.stats.VersionErrors++
	default:
		n.stats.DecodeErrors++
	}
	n.log(Debug, "unreadable message", "err", err)
	return nil
}

// receive applies a message, or first challenges its sender.
func (n *Node) receive(now time.Time, m *lease.Message, l pendingMessage) {
	e := n.apply(now, m)
	if e.Challenge != "" {
		n.waiting.confirm(now, m.From, e.Challenge, l)
	}
	if e.Counts {
		if l.state {
			n.join.noteState(now, m)
		}
		if e.Answered {
			n.waiting.admit(now, m.From, e.BothWays)
		}
	}
	if e.BothWays {
		n.asleep.noteAnswer(now, e)
	}
	if n.life.phase == Joining && (e.Arrives || (n.join.entered && !l.state)) {
		n.reach.arrives = true
	}
	if e.Counts {
		n.reach.hearOthers(now, m)
	}
}

func (n *Node) decode(message []byte) (*lease.Message, error) {
	m, err := lease.Decode(message)
	if err == nil && n.cfg.Share != nil {
		for i, r := range m.Records {
			m.Records[i] = n.cfg.Share(r)
		}
	}
	return m, err
}

// Merge applies the full state of another node that arrived over a stream.
func (n *Node) Merge(now time.Time, state []byte) {
	m := n.open(now, state, true)
	if m == nil {
		return
	}
	active := activeIn(m, n.self)
	n.reach.notePresent(now, m, active)
	l := pendingMessage{state, true}
	if r, newcomer := n.set.Unconfirmed(now, m); r != nil {
		n.waiting.noteState(now, r, slices.Contains(active, r.ID))
		if len(active) > 0 {
			n.reach.dialBack(now, r.Addr)
		}
		if !newcomer {
			if len(active) > 0 {
				n.reach.silent = r.Addr
			}
			n.waiting.confirm(now, m.From, r.Addr, l)
			return
		}
	}
	n.receive(now, m, l)
}

// A message may be a replay of an earlier message. So if a sender is not live in the view of this node, the
// sender must first answer a challenge to show that it is running. The messages of the sender wait until
// then.

// pendingSenders contains the challenged senders and their waiting messages.
type pendingSenders struct {
	*Node
	senders []*pendingSender
	bytes   int       // size of all messages
	next    time.Time // when to check the senders again

	streams map[lease.NodeID]streamed
}

// streamed is a node that is not active and whose full states arrive over streams. Since its first full
// state, such a node has not answered any packet.
type streamed struct {
	handle        lease.Handle
	addr          string
	first, latest time.Time
}

type pendingSender struct {
	handle   lease.Handle
	addr     string
	since    time.Time
	again    time.Time        // when the next challenge is sent
	messages []pendingMessage // the first messages and the latest
}

// pendingMessage is an encoded message that waits until its sender has answered a challenge.
type pendingMessage struct {
	bytes []byte
	state bool // the full state of the sender, which came over a stream
}

const (
	// confirmTime is how long a sender has to answer a challenge. A message that arrives later causes a new
	// challenge.
	confirmTime = 2 * time.Second

	// remindAfter is the time after which a sender is challenged again, because challenges and answers are packets that
	// may get lost. The time doubles after each repetition, so there are up to five repetitions.
	remindAfter = 100 * time.Millisecond

	// maxReminded is the maximum number of senders per host that are challenged again. The limit is needed
	// because an unauthenticated peer can name any address in a message, and a challenge is as large as such
	// a message.
	maxReminded = 4

	// streamedFor is how long a streamed node is shown to users after its latest state arrived. maxStreamed
	// is the maximum number of such nodes.
	streamedFor = 30 * time.Second
	maxStreamed = 64

	maxWaitingSenders = 1 << 10
	maxWaiting        = 4 // messages per sender
)

// confirm challenges the sender of a message, and keeps the message until the sender answers.
func (w *pendingSenders) confirm(now time.Time, from lease.Handle, addr string, l pendingMessage) {
	if l.state {
		w.makeRoom(len(l.bytes))
	}
	s := w.sender(from)
	if s != nil && l.state {
		s.since = now // a state has the full time to be confirmed
	}
	if s == nil {
		if len(w.senders) >= maxWaitingSenders {
			return
		}
		s = &pendingSender{handle: from, addr: addr, since: now}
		w.senders = append(w.senders, s)
		w.challenge(now, s)
	}
	w.keep(s, l)
}

// makeRoom drops senders of packets if there is no room for a full state, starting with the sender that has waited
// longest. Packets must give way because unauthenticated peers can send any number of them.
func (w *pendingSenders) makeRoom(bytes int) {
	for len(w.senders) >= maxWaitingSenders || w.bytes+bytes > lease.MaxMessageBytes {
		i := slices.IndexFunc(w.senders, func(s *pendingSender) bool {
			return !slices.ContainsFunc(s.messages, func(l pendingMessage) bool { return l.state })
		})
		if i < 0 {
			return
		}
		w.take(w.senders[i], true)
	}
}

func (w *pendingSenders) sender(h lease.Handle) *pendingSender {
	if i := slices.IndexFunc(w.senders, func(s *pendingSender) bool { return s.handle == h }); i >= 0 {
		return w.senders[i]
	}
	return nil
}

// keep stores a message. If maxWaiting messages of the sender are already stored, the new message replaces
// the latest. A packet never replaces a full state.
func (w *pendingSenders) keep(s *pendingSender, l pendingMessage) {
	if len(s.messages) == maxWaiting {
		if s.messages[maxWaiting-1].state && !l.state {
			return
		}
		w.bytes -= len(s.messages[maxWaiting-1].bytes)
		s.messages = s.messages[:maxWaiting-1]
	}
	if w.bytes+len(l.bytes) <= lease.MaxMessageBytes {
		s.messages = append(s.messages, l)
		w.bytes += len(l.bytes)
	}
}

// take removes the packets of a sender and returns them. If states is true, take also removes and returns its
// full states, and removes the sender.
func (w *pendingSenders) take(s *pendingSender, states bool) (taken []pendingMessage) {
	var kept []pendingMessage
	for _, l := range s.messages {
		if l.state && !states {
			kept = append(kept, l)
			continue
		}
		taken = append(taken, l)
		w.bytes -= len(l.bytes)
	}
	if s.messages = kept; len(kept) == 0 {
		w.senders = slices.DeleteFunc(w.senders, func(other *pendingSender) bool { return other == s })
	}
	return taken
}

// noteState records a node whose full state arrived over a stream. A node that is active according to this
// state is on another side of a split and is not trying to join, so it is not recorded.
func (w *pendingSenders) noteState(now time.Time, r *lease.Record, active bool) {
	if active {
		delete(w.streams, r.ID)
		return
	}
	s, known := w.streams[r.ID]
	if !known && len(w.streams) >= maxStreamed {
		return
	}
	if h := r.Handle(); s.handle != h || s.addr != r.Addr {
		s = streamed{handle: h, addr: r.Addr, first: now}
	}
	s.latest = now
	if w.streams == nil {
		w.streams = make(map[lease.NodeID]streamed)
	}
	w.streams[r.ID] = s
}

// streamsAlone returns the addresses of nodes that are trying to join but do not answer packets. It only
// includes a node whose states have been arriving for so long that a packet should have been answered by now.
func (w *pendingSenders) streamsAlone(live *lease.View) map[lease.NodeID]string {
	if len(w.streams) == 0 {
		return nil
	}
	alone := make(map[lease.NodeID]string)
	for id, s := range w.streams {
		if s.latest.Sub(s.first) >= confirmTime {
			alone[id] = s.addr
		}
	}
	for i := range live.Members {
		if m := &live.Members[i]; m.State != lease.Settling {
			delete(alone, m.ID)
		}
	}
	return alone
}

// forgetStreams drops nodes whose latest state arrived long ago.
func (w *pendingSenders) forgetStreams(now time.Time) {
	maps.DeleteFunc(w.streams, func(_ lease.NodeID, s streamed) bool { return now.Sub(s.latest) > streamedFor })
}

// hostOf returns the host part of an ip:port.
func hostOf(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		return addr[:i]
	}
	return addr
}

func (w *pendingSenders) challenge(now time.Time, s *pendingSender) {
	s.again = earliest(now.Add(max(remindAfter, now.Sub(s.since))), s.since.Add(confirmTime))
	if w.next.IsZero() || s.again.Before(w.next) {
		w.next = s.again
	}
	w.send(Packet{To: s.addr, Bytes: w.encode(w.set.Challenge(now, w.random()))})
}

// random returns a random nonzero number for lease.Set.Challenge.
func (n *Node) random() uint64 { return n.rng.Uint64() | 1 }

// admit applies the packets of a sender that has answered a challenge. If packets arrive in both directions,
// admit also applies the sender's full states.
func (w *pendingSenders) admit(now time.Time, from lease.Handle, bothWays bool) {
	if bothWays {
		maps.DeleteFunc(w.streams, func(_ lease.NodeID, s streamed) bool { return s.handle == from })
	}
	s := w.sender(from)
	if s == nil {
		return
	}
	for _, l := range w.take(s, bothWays) {
		if m, err := w.decode(l.bytes); err == nil && !w.ended && w.apply(now, m).Counts && l.state {
			w.join.noteState(now, m)
		}
	}
}

// remind repeats the challenge for senders that have not answered, and drops senders whose time is up.
func (w *pendingSenders) remind(now time.Time) {
	if !due(now, w.next) {
		return
	}
	w.next = time.Time{}
	waiting := make(map[string]int) // by host
	for _, s := range slices.Clone(w.senders) {
		if now.Sub(s.since) >= confirmTime {
			w.take(s, true)
			continue
		}
		host := hostOf(s.addr)
		if waiting[host]++; due(now, s.again) {
			if waiting[host] <= maxReminded {
				w.challenge(now, s)
				continue
			}
			s.again = s.since.Add(confirmTime)
		}
		if w.next.IsZero() || s.again.Before(w.next) {
			w.next = s.again
		}
	}
}
