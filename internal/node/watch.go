package node

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Watch is a node to which the shell keeps a stream open, so that this node notices immediately when the
// other process ends.
type Watch struct {
	Node lease.Handle
	Addr string
}

// watch contains the nodes that this node watches, and the nodes that it suspects.
type watch struct {
	*Node
	nodes     []Watch // as passed to the shell
	changes   uint64  // changes of the live set when the nodes were chosen
	phase     Phase   // the phase when the nodes were chosen
	suspects  []suspect
	next      time.Time // when to check the suspects again; zero = there is none
	crashes   uint64    // crashes that were noted
	confirmed time.Time // when a failure was first confirmed since the last publication; zero = none was
	limit     limiter
}

// suspect is a watched node whose stream has ended. Before this node reports the failure of a suspect, it
// sends questions to the suspect in packets, because the network may have reset all streams of a running
// node.
type suspect struct {
	node     lease.Handle
	found    time.Time // when the node could not be reached
	evidence lease.Evidence
	asked    int       // questions sent
	next     time.Time // when the last question should have been answered
}

const (
	// questions is the number of questions sent to a suspect. One question is not enough, because questions
	// and answers are packets that may get lost.
	questions = 5

	// answerTime is how long a suspect has to answer. If GossipInterval is longer, the suspect has that long
	// instead.
	answerTime = 200 * time.Millisecond
)

// watches reports whether this node watches other nodes. A joining node does not, because its live set is
// still far from complete.
func (w *watch) watches() bool { return w.life.phase != Joining && w.life.phase != Over }

// watchOthers tells the shell which nodes to watch. It costs O(1) unless the live set or the phase has
// changed.
func (w *watch) watchOthers() {
	if w.changes == w.stats.ViewChanges && w.phase == w.life.phase {
		return
	}
	w.changes, w.phase = w.stats.ViewChanges, w.life.phase
	nodes := []Watch{}
	if w.watches() {
		for _, h := range w.set.Watched() {
			if addr := w.set.AddrOf(h); addr != "" {
				nodes = append(nodes, Watch{h, addr})
			}
		}
	}
	if !slices.Equal(nodes, w.nodes) {
		w.nodes, w.out.Watch = nodes, nodes
	}
}

// StreamEnded reports that the stream to a watched node has ended, and that the shell could not reach the
// node again.
func (n *Node) StreamEnded(now time.Time, h lease.Handle, e lease.Evidence) {
	n.checkLease(now)
	if n.ended || !n.watch.watches() {
		return
	}
	n.watch.clear(h)
	n.watch.suspects = append(n.watch.suspects, suspect{node: h, found: now, evidence: e, next: now})
	n.watch.next = now
}

// clear removes a node from the suspects.
func (w *watch) clear(h lease.Handle) {
	w.suspects = slices.DeleteFunc(w.suspects, func(s suspect) bool { return s.node == h })
}

// hear removes the sender of a message from the suspects if the message was sent after the suspicion began.
func (w *watch) hear(m *lease.Message) {
	for _, s := range w.suspects {
		if s.node == m.From && w.set.SentSince(m, s.found) {
			w.clear(s.node)
			return
		}
	}
}

// suspect sends questions to the suspects, and reports those that have not answered. After a pause of this
// process, it sends one more question, because the answers may be waiting in the socket.
func (w *watch) suspect(now time.Time) {
	if !w.watches() {
		w.suspects = nil
	}
	if w.next = (time.Time{}); len(w.suspects) == 0 {
		return
	}
	if now.Before(w.stall.holdExpiryUntil) {
		w.next = w.stall.holdExpiryUntil
		return
	}
	for i := 0; i < len(w.suspects); i++ {
		s := &w.suspects[i]
		switch late := now.Sub(s.next); {
		case late < 0:
		case s.asked < questions || (late > w.questionTime() && s.asked < 2*questions):
			w.ask(now, s)
		default:
			w.reportFailure(now, *s)
			w.suspects = slices.Delete(w.suspects, i, i+1)
			i--
			continue
		}
		if w.next.IsZero() || s.next.Before(w.next) {
			w.next = s.next
		}
	}
}

// ask sends one more question to a suspect.
func (w *watch) ask(now time.Time, s *suspect) {
	s.asked++
	s.next = now.Add(w.questionTime())
	w.send(Packet{To: w.set.AddrOf(s.node), Bytes: w.encode(w.set.Challenge(now, w.random()))})
}

// questionTime returns how long a suspect has to answer a single question.
func (w *watch) questionTime() time.Duration {
	return max(answerTime, w.cfg.GossipInterval) / questions
}

// reportFailure reports that a suspect has ended, unless the suspect's lease has already ended.
func (w *watch) reportFailure(now time.Time, s suspect) {
	if w.set.AddrOf(s.node) == "" {
		return
	}
	e := w.set.ReportFailure(now, s.node, s.found, s.evidence)
	if !e.Urgent {
		return // a later heartbeat is known
	}
	w.note(e.Changed)
	w.when.urge(now)
}

// refute makes this node send a heartbeat soon, because other nodes report that it has ended.
func (w *watch) refute(now, at time.Time) {
	if !at.Before(w.when.heartbeat) {
		return // it sends a heartbeat by then anyway
	}
	w.when.heartbeat = at
	if w.limit.allow(now, time.Minute) {
		w.log(Warn, "refuting a failure report", "why", "others cannot reach this node by TCP and UDP")
	}
}

// noteCrashes keeps the addresses of members whose failure was confirmed, because those members may be on
// another side of a split.
func (w *watch) noteCrashes(now time.Time) {
	if crashes := w.set.Stats().Crashed; crashes != w.crashes {
		w.crashes = crashes
		if w.confirmed.IsZero() {
			w.confirmed = now
		}
		w.join.lost.add(now, w.pick(w.set.ExpiredAddrs(nil), maxLost))
	}
}

// moreConfirmations reports whether a due change must wait until more failures are confirmed. The wait
// combines processes that ended together into one new table. The change waits for half a GossipInterval. If
// watchers have by then reported a further member, but too few of them to confirm its failure, the change waits for up
// to half a GossipInterval more.
func (w *watch) moreConfirmations(now time.Time) bool {
	waited := now.Sub(w.confirmed)
	if w.confirmed.IsZero() || waited >= w.cfg.GossipInterval || (waited >= w.cfg.GossipInterval/2 && !w.set.Reported()) {
		return false
	}
	w.when.publish = now.Add(w.cfg.GossipInterval / 20)
	return true
}
