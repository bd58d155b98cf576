package node

import (
	"errors"
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Receive applies a message of another node, which came in a packet.
func (n *Node) Receive(now time.Time, message []byte) {
	if m := n.open(now, message); m != nil {
		n.receive(now, m, message)
	}
}

// open decodes a message, or returns nil.
func (n *Node) open(now time.Time, message []byte) *lease.Message {
	n.checkLease(now)
	if n.ended {
		return nil
	}
	if n.stall.discarding(now) {
		n.stats.StaleDropped++
		return nil
	}
	m, err := n.decode(message)
	if err == nil {
		return m
	}
	if errors.Is(err, lease.ErrVersion) {
		n.stats.VersionErrors++
	} else {
		n.stats.DecodeErrors++
	}
	n.log(Debug, "unreadable message", "err", err)
	return nil
}

// receive applies a message, or challenges its sender first.
func (n *Node) receive(now time.Time, m *lease.Message, message []byte) {
	e := n.apply(now, m)
	if e.Challenge != "" {
		n.confirm(now, m.From, e.Challenge, message)
	}
	if e.Answered {
		n.heardByPacket()
		n.admit(now, m.From)
	}
	if e.Counts {
		n.hearOthers(now)
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

// Merge applies the full state of another node, which came over a stream.
func (n *Node) Merge(now time.Time, state []byte) {
	m := n.open(now, state)
	if m == nil {
		return
	}
	n.notePresent(now, activeIn(m, n.self))
	if addr := n.set.Unconfirmed(now, m); addr != "" {
		n.confirm(now, m.From, addr, state)
		return
	}
	n.receive(now, m, state)
}

// A message may be a recorded one, sent again. A sender that is not live here has to show
// first that it runs, by the answer to a challenge; its messages wait for that.

// waitingRoom has the senders that were challenged.
type waitingRoom struct {
	senders []*waitingSender
	bytes   int       // of all messages
	next    time.Time // when to look at the senders again
}

type waitingSender struct {
	handle   lease.Handle
	addr     string
	since    time.Time
	again    time.Time // when the next challenge is sent
	messages [][]byte  // the first ones, and the latest
}

const (
	// confirmTime is how long a sender has for its answer. A message that arrives later is
	// a reason for a new challenge.
	confirmTime = 2 * time.Second

	// remindAfter is when a sender is challenged again, then after twice the time, and so
	// on, five times in all: challenge and answer are packets, which get lost.
	remindAfter = 100 * time.Millisecond

	maxWaitingSenders = 1 << 10
	maxWaiting        = 4 // messages of a sender
)

// confirm challenges the sender of a message, and keeps the message until it answers.
func (n *Node) confirm(now time.Time, from lease.Handle, addr string, message []byte) {
	w := &n.waiting
	s := w.sender(from)
	if s == nil {
		if len(w.senders) >= maxWaitingSenders {
			return
		}
		s = &waitingSender{handle: from, addr: addr, since: now}
		w.senders = append(w.senders, s)
		n.challenge(now, s)
	}
	w.keep(s, message)
}

func (w *waitingRoom) sender(h lease.Handle) *waitingSender {
	if i := slices.IndexFunc(w.senders, func(s *waitingSender) bool { return s.handle == h }); i >= 0 {
		return w.senders[i]
	}
	return nil
}

// keep keeps a message, in place of the latest one if there are many.
func (w *waitingRoom) keep(s *waitingSender, message []byte) {
	if len(s.messages) == maxWaiting {
		w.bytes -= len(s.messages[maxWaiting-1])
		s.messages = s.messages[:maxWaiting-1]
	}
	if w.bytes+len(message) <= lease.MaxMessageBytes {
		s.messages = append(s.messages, message)
		w.bytes += len(message)
	}
}

func (w *waitingRoom) drop(gone *waitingSender) {
	w.senders = slices.DeleteFunc(w.senders, func(s *waitingSender) bool { return s == gone })
	for _, message := range gone.messages {
		w.bytes -= len(message)
	}
}

func (n *Node) challenge(now time.Time, s *waitingSender) {
	s.again = earliest(now.Add(max(remindAfter, now.Sub(s.since))), s.since.Add(confirmTime))
	if n.waiting.next.IsZero() || s.again.Before(n.waiting.next) {
		n.waiting.next = s.again
	}
	n.send(Packet{To: s.addr, Bytes: n.encode(n.set.Challenge(now, n.random()))})
}

// random returns a number for lease.Set.Challenge.
func (n *Node) random() uint64 { return n.rng.Uint64() | 1 }

// admit applies the messages of a sender that has answered.
func (n *Node) admit(now time.Time, from lease.Handle) {
	s := n.waiting.sender(from)
	if s == nil {
		return
	}
	n.waiting.drop(s)
	for _, message := range s.messages {
		if m, err := n.decode(message); err == nil && !n.ended {
			n.apply(now, m)
		}
	}
}

// remind challenges the senders again that have not answered, or forgets them.
func (n *Node) remind(now time.Time) {
	if !due(now, n.waiting.next) {
		return
	}
	n.waiting.next = time.Time{}
	for _, s := range slices.Clone(n.waiting.senders) {
		switch {
		case now.Sub(s.since) >= confirmTime:
			n.waiting.drop(s)
		case due(now, s.again):
			n.challenge(now, s)
		case n.waiting.next.IsZero() || s.again.Before(n.waiting.next):
			n.waiting.next = s.again
		}
	}
}
