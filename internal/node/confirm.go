package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// A message may be a recorded one, sent again. A sender that is not live here has to show
// first that it runs, by the answer to a challenge; its messages wait for that.

// unconfirmed is a sender that was challenged.
type unconfirmed struct {
	handle   lease.Handle
	addr     string
	since    time.Time
	again    time.Time // when the next challenge is sent
	messages [][]byte
}

const (
	// confirmTime is how long a sender has for its answer. A message that arrives later is
	// a reason for a new challenge.
	confirmTime = 2 * time.Second

	// challengeAgain is when a sender is challenged again, then after twice the time, and
	// so on: challenge and answer are packets, which get lost.
	challengeAgain = 100 * time.Millisecond

	maxUnconfirmed = 1 << 10 // senders
	maxWaiting     = 4       // messages of a sender
)

// confirm challenges the sender of a message, and keeps the message until it answers.
func (n *Node) confirm(now time.Time, from lease.Handle, addr string, message []byte) {
	u := n.unconfirmedSender(from)
	if u == nil {
		if len(n.unconfirmed) >= maxUnconfirmed {
			return
		}
		u = &unconfirmed{handle: from, addr: addr, since: now}
		n.unconfirmed = append(n.unconfirmed, u)
		n.challenge(now, u)
	}
	if len(u.messages) < maxWaiting && n.waitingBytes+len(message) <= lease.MaxMessageBytes {
		u.messages = append(u.messages, message)
		n.waitingBytes += len(message)
	}
}

func (n *Node) unconfirmedSender(h lease.Handle) *unconfirmed {
	if i := slices.IndexFunc(n.unconfirmed, func(u *unconfirmed) bool { return u.handle == h }); i >= 0 {
		return n.unconfirmed[i]
	}
	return nil
}

func (n *Node) challenge(now time.Time, u *unconfirmed) {
	u.again = now.Add(max(challengeAgain, now.Sub(u.since)))
	n.send(Packet{To: u.addr, Bytes: n.encode(n.set.Challenge(now, n.random()))})
}

// random returns a number for lease.Set.Challenge.
func (n *Node) random() uint64 { return n.rng.Uint64() | 1 }

// confirmed applies the messages of a sender that has answered.
func (n *Node) confirmed(now time.Time, from lease.Handle) {
	u := n.unconfirmedSender(from)
	if u == nil {
		return
	}
	n.forgetUnconfirmed(u)
	for _, message := range u.messages {
		if m, err := lease.Decode(message); err == nil && !n.ended {
			n.apply(now, m)
		}
	}
}

func (n *Node) forgetUnconfirmed(gone *unconfirmed) {
	n.unconfirmed = slices.DeleteFunc(n.unconfirmed, func(u *unconfirmed) bool { return u == gone })
	for _, message := range gone.messages {
		n.waitingBytes -= len(message)
	}
}

// challengeAgain challenges the senders again that have not answered, or forgets them. It
// returns when it has to be called next; zero = any time.
func (n *Node) challengeAgain(now time.Time) (next time.Time) {
	for _, u := range slices.Clone(n.unconfirmed) {
		if now.Sub(u.since) >= confirmTime {
			n.forgetUnconfirmed(u)
			continue
		}
		if !now.Before(u.again) {
			n.challenge(now, u)
		}
		if next.IsZero() || u.again.Before(next) {
			next = u.again
		}
	}
	return next
}
