package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/handoff"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// handing connects internal/handoff with this node. The record of each node specifies whether the node uses
// handoff, so all nodes ignore the same nodes.
type handing struct {
	*Node
	bound   time.Duration // maximum wait; 0 = no handoff
	state   *handoff.Handoff
	runners handoff.Runners

	handles []lease.Handle                // the live set as of the last followMembers
	members []lease.Handle                // members with handoff, including this node, in order
	ids     map[lease.Handle]lease.NodeID // ids of members

	waits map[placement.Partition]*wait
	asks  []handoff.Ask // asks that wait for the next round of gossip
	burst int           // how many asks may be sent before the next round of gossip
	news  news
	runs  bool // runs began or stopped since the last state
	busy  bool // something may wait for the next round of gossip
}

// news tells all members that use handoff that this node runs partitions which those members may expect on
// another node. The news is sent twice because lookups depend on it. A node that has received neither copy
// asks for the news: see handoff.Runners.
type news struct {
	fresh      []placement.Partition
	partitions []placement.Partition // partitions that are sent now
	to         []lease.Handle        // members to which this round still has to send
	rounds     int                   // rounds that follow
}

func (s *news) add(p placement.Partition) { s.fresh = append(s.fresh, p) }

// idle reports whether news can be sent immediately, without waiting for the next round of gossip.
func (s *news) idle() bool { return len(s.to) == 0 && s.rounds == 0 && len(s.fresh) > 0 }

// maxBurst is the maximum number of asks or news messages that a node sends between two rounds of gossip. The
// answers all arrive at the same time, and must fit into the queue of packets.
const maxBurst = 256

// followMembers updates the list of members if the live set has changed.
func (h *handing) followMembers() {
	if h.bound == 0 || slices.Equal(h.handles, h.set.Handles()) {
		return
	}
	if _, same := slices.BinarySearch(h.handles, h.set.Handle()); !same {
		h.state.Fence() // other nodes consider the earlier incarnation of this node gone
	}
	h.busy = true
	h.handles = slices.Clone(h.set.Handles())
	h.members, h.ids = h.members[:0], make(map[lease.Handle]lease.NodeID)
	for _, m := range h.set.View().Members {
		if m.Handoff {
			h.members = append(h.members, m.Handle)
			h.ids[m.Handle] = m.ID
		}
	}
	slices.Sort(h.members)
	h.state.SetMembers(h.set.Handle(), h.others(h.set.Handle()))
	h.runners.SetMembers(h.set.Handle(), h.members)
}

func (h *handing) others(self lease.Handle) []lease.Handle {
	return slices.DeleteFunc(slices.Clone(h.members), func(m lease.Handle) bool { return m == self })
}

// adoptTable passes a new table to the handoff. If this node must not own anything, adoptTable ends its runs.
func (h *handing) adoptTable(now time.Time, v *lease.View, table *placement.Table, joined bool) {
	if h.bound == 0 {
		return
	}
	h.busy = true
	h.followMembers()
	if h.life.phase != Active {
		h.state.Fence()
		return
	}
	handles := make([]lease.Handle, len(table.Nodes()))
	for i, owner := range table.Nodes() {
		at, ok := slices.BinarySearchFunc(v.Members, owner.ID, func(m lease.Member, id lease.NodeID) int { return cmp.Compare(m.ID, id) })
		if ok && v.Members[at].Handoff { // a member without handoff demands nothing
			handles[i] = v.Members[at].Handle
		}
	}
	owners := make([]lease.Handle, table.Partitions())
	for p := range owners {
		if i := table.OwnerIndex(placement.Partition(p)); i >= 0 {
			owners[p] = handles[i]
		}
	}
	h.state.SetTable(owners)
	h.runners.SetTable(now, owners, h.bound, joined)
	h.runners.Review(now, h.state.Keeps)
	h.reconcileWaits()
}

// nextState returns the next state, which contains the partitions that this node may run.
func (h *handing) nextState(table *placement.Table, members []lease.Incarnation, mayOwn bool) *events.State {
	if h.bound == 0 {
		return events.Next(h.tables.state, h.self, table, members, mayOwn)
	}
	h.runs = false
	waiting := slices.DeleteFunc(h.state.Waiting(), func(p placement.Partition) bool { return !h.state.Waits(p) })
	return events.NextRunning(h.tables.state, h.self, table, members, mayOwn, h.state.Running(), waiting)
}

// applyHandoff handles a handoff message from a live sender.
func (h *handing) applyHandoff(now time.Time, m *lease.Message) {
	if h.bound == 0 || len(m.Handoff) == 0 || m.From == h.set.Handle() {
		return
	}
	ask, answer, err := handoff.Decode(m.Handoff)
	h.busy = true
	h.followMembers()
	switch {
	case err != nil:
		h.stats.DecodeErrors++
	case ask != nil:
		h.state.ReceiveAsk(m.From, *ask)
	default:
		if len(answer.Runs) > 0 {
			h.runners.Heard(now, m.From, answer.Runs, h.state.Waits)
			h.out.Show = true
		}
		if len(answer.Free) > 0 {
			h.runners.Freed(m.From, answer.Free)
			h.out.Show = true
		}
		h.state.ReceiveAnswer(m.From, *answer)
	}
}

// Returned reports that the runs of partitions in Ready.Stop have returned, or that there were no such runs.
func (n *Node) Returned(now time.Time, partitions ...placement.Partition) {
	n.checkLease(now)
	n.handing.busy = true
	for _, p := range partitions {
		n.handing.state.Returned(p)
	}
}

// handOff carries out the decisions that the handoff has made since the last call.
func (h *handing) handOff(now time.Time) {
	if h.bound == 0 {
		return
	}
	h.followMembers()
	h.carryHandoff(now)
	if h.runs && h.tables.state != nil {
		s := h.nextState(h.tables.table, h.tables.state.Members, h.life.phase == Active && !h.life.entering)
		s.Details, s.Ended = h.tables.state.Details, h.tables.state.Ended
		h.tables.publishState(s)
	}
}

// carryHandoff sends the messages of the handoff, and tells the shell which runs to stop.
func (h *handing) carryHandoff(now time.Time) {
	if h.bound == 0 {
		return
	}
	r := h.state.Ready()
	h.out.Stop = append(h.out.Stop, r.Stop...)
	for _, p := range r.Start {
		if h.runners.Begun(p) {
			h.news.add(p)
		}
	}
	h.runs = h.runs || len(r.Stop)+len(r.Start) > 0
	for _, a := range r.Asks {
		if len(a.Demands) > 0 {
			h.sendHandoff(now, a.To, a.Encode())
		} else {
			h.asks = append(h.asks, a)
		}
	}
	for _, a := range r.Answers {
		h.sendHandoff(now, a.To, a.Encode())
	}
	for ; len(h.asks) > 0 && h.burst > 0; h.burst-- {
		h.sendHandoff(now, h.asks[0].To, h.asks[0].Encode())
		h.asks = h.asks[1:]
	}
	if h.news.idle() {
		h.spreadNews(now)
	}
}

func (h *handing) sendHandoff(now time.Time, to lease.Handle, messages [][]byte) {
	for _, body := range messages {
		m := h.set.Request(now, nil, nil)
		m.Handoff = body
		h.send(Packet{To: h.set.AddrOf(to), Bytes: lease.Encode(m)})
	}
}

// tickHandoff repeats asks and ends waits that exceed the bound. It runs in each round of gossip.
func (h *handing) tickHandoff(now time.Time) {
	h.burst = maxBurst
	if h.bound == 0 || !h.busy {
		return
	}
	h.followMembers()
	h.asks = nil
	h.state.Tick()
	others := h.runners.Review(now, h.state.Keeps)
	for runner, partitions := range h.runners.Doubts(now) {
		h.state.AskRunner(runner, partitions)
	}
	waits := h.endWaits(now)
	h.carryHandoff(now)
	h.rng.Shuffle(len(h.asks), func(i, k int) { h.asks[i], h.asks[k] = h.asks[k], h.asks[i] })
	h.spreadNews(now)
	h.out.Show = true
	h.busy = waits || others || len(h.news.partitions) > 0
}

// fenceHandoff ends all runs, because this node has lost its lease or must not own anything.
func (h *handing) fenceHandoff(now time.Time) {
	if h.bound == 0 {
		return
	}
	h.busy = true
	clear(h.waits)
	h.runners.Clear()
	h.state.Fence()
	h.carryHandoff(now)
}

// otherRunners maps each partition that runs on a different member than the table specifies to that member.
func (h *handing) otherRunners() map[placement.Partition]lease.NodeID {
	if h.bound == 0 {
		return nil
	}
	var others map[placement.Partition]lease.NodeID
	for p, handle := range h.runners.Others() {
		if id := h.ids[handle]; id != "" {
			if others == nil {
				others = make(map[placement.Partition]lease.NodeID)
			}
			others[p] = id
		}
	}
	return others
}

// spreadNews sends the news to at most maxBurst members, so that this node does not send thousands of packets
// at once.
func (h *handing) spreadNews(now time.Time) {
	s := &h.news
	if len(s.to) == 0 {
		switch {
		case len(s.fresh) > 0:
			s.partitions, s.fresh, s.rounds = append(s.partitions, s.fresh...), nil, 1
		case s.rounds > 0:
			s.rounds--
		default:
			s.partitions = nil
			return
		}
		running := h.state.Running()
		s.partitions = slices.DeleteFunc(s.partitions, func(p placement.Partition) bool {
			_, still := slices.BinarySearch(running, p)
			return !still
		})
		s.to = h.others(h.set.Handle())
	}
	part := s.to[:min(maxBurst, len(s.to))]
	s.to = s.to[len(part):]
	for _, m := range part {
		h.sendHandoff(now, m, handoff.Answer{To: m, Runs: s.partitions}.Encode())
	}
}

// wait describes how long a partition has been waiting for other nodes, or for its run to return.
type wait struct {
	since time.Time
	what  waitFor
	over  bool // the bound has passed
}

type waitFor uint8

const (
	toRun    waitFor = iota // the table names this node
	toStop                  // the table names another node, which has not demanded the partition
	toReturn                // its run was stopped
)

// reconcileWaits drops the waits that have ended, and returns what each partition waits for now.
// reconcileWaits also runs for each new table, so that a partition which is lost and regained starts a new
// wait.
func (h *handing) reconcileWaits() (waiting map[placement.Partition]waitFor) {
	waiting = make(map[placement.Partition]waitFor)
	for _, p := range h.state.Waiting() {
		waiting[p] = toStop
		if h.state.Waits(p) {
			waiting[p] = toRun
		}
	}
	for _, p := range h.state.Stopping() {
		waiting[p] = toReturn
	}
	maps.DeleteFunc(h.waits, func(p placement.Partition, w *wait) bool {
		what, still := waiting[p]
		return !still || what != w.what
	})
	return waiting
}

// endWaits ends the waits that exceed the bound, and reports whether other waits remain.
func (h *handing) endWaits(now time.Time) (any bool) {
	waiting := h.reconcileWaits()
	overdue := make(map[string][]placement.Partition) // by log line
	for _, p := range slices.Sorted(maps.Keys(waiting)) {
		w := h.waits[p]
		if w == nil {
			w = &wait{since: now, what: waiting[p]}
			h.waits[p] = w
		}
		if w.over || now.Sub(w.since) < h.bound {
			continue
		}
		w.over = true
		key := fmt.Sprint(w.what, h.names(h.state.Missing(p)))
		overdue[key] = append(overdue[key], p)
	}
	for _, key := range slices.Sorted(maps.Keys(overdue)) {
		h.overdue(now, overdue[key])
	}
	return len(waiting) > 0
}

// overdue ends the waits of partitions that all wait for the same members.
func (h *handing) overdue(now time.Time, partitions []placement.Partition) {
	first := partitions[0]
	w := h.waits[first]
	attrs := []any{"partition", first, "partitions", len(partitions), "waited", now.Sub(w.since)}
	switch w.what {
	case toRun:
		h.stats.HandoffOverruns += uint64(len(partitions))
		h.log(Warn, "handoff overdue: running without another node's answer", append(attrs, "missing", h.names(h.state.Missing(first)))...)
	case toStop:
		h.log(Warn, "handoff overdue: stopping a run nobody demanded", attrs...)
	case toReturn:
		h.log(Warn, "handoff overdue: a stopped run has not returned", attrs...)
	}
	if w.what != toReturn {
		for _, p := range partitions {
			h.state.Overdue(p)
		}
	}
}

// overdueRuns returns the partitions whose runs were stopped but have not returned within the bound, in
// ascending order.
func (h *handing) overdueRuns() (partitions []placement.Partition) {
	for p, w := range h.waits {
		if w.what == toReturn && w.over {
			partitions = append(partitions, p)
		}
	}
	slices.Sort(partitions)
	return partitions
}

// names returns the ids of the given members, or the first few ids if there are many.
func (h *handing) names(members []lease.Handle) string {
	const few = 3
	var names []string
	for _, m := range members[:min(few, len(members))] {
		names = append(names, string(h.ids[m]))
	}
	if more := len(members) - few; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
