package chaos

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/ledger"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
)

// process is one run of a node, and what the checks remember about it.
type process struct {
	*sim.Process
	began, end time.Duration // end 0 = it runs
	left       bool          // by a leave message
	former     *host         // the orders that it got before another process was started under its id; nil = none was

	some ledger.Ledger // of a watcher that reads some states
	read *events.State // the last of these

	state   *events.State // at the last check
	active  time.Duration // since when it is active and not paused
	lapsed  *events.State // when its lease had ended; nil = the lease is valid
	owns    uint64        // a bit for each partition
	dropped map[lease.Incarnation]bool

	cordoned    []lease.Cordon            // in force, at the last check
	waits       [partitions]time.Duration // since when the node waits to run a partition; 0 = it does not wait
	overruns    uint64
	fences      uint64
	both        time.Duration // when it and its duplicate last owned no common partition
	apart       time.Duration // when it and its duplicate last had no member in common
	overran     time.Duration // when it last ran a partition without waiting for all answers
	wasFlapping bool          // back, at the last check

	shown shown // to the auditor

	woke   time.Duration       // when it last continued after a suspension
	kept   uint64              // what it owned then and has owned ever since
	others map[*process]uint64 // what members owned then and have owned ever since
}

// follow starts to check a process.
func (w *world) follow(p *sim.Process) {
	w.now[p.ID] = &process{Process: p, began: w.Elapsed(), active: w.Elapsed(), dropped: make(map[lease.Incarnation]bool)}
	w.running = append(w.running, w.now[p.ID])
	w.audit.cutsSeen = false
	w.identify(w.now[p.ID])
}

// identify records the incarnation of a process, because the process may have taken a later incarnation.
func (w *world) identify(p *process) {
	if m, ok := p.incarnation(); ok {
		w.all[m] = p
	}
}

func (p *process) incarnation() (i lease.Incarnation, ok bool) {
	m := p.Self()
	if m == nil {
		return i, false
	}
	return lease.Incarnation{Node: m.ID, Number: m.Incarnation}, true
}

// flapping reports whether a node considers itself to be flapping.
func (p *process) flapping() bool {
	m := p.Self()
	return m != nil && m.FlappingUntil > 0
}

// ended records that a node does not run anymore.
func (w *world) ended(id string, left bool) {
	p := w.now[id]
	w.identify(p)
	p.end, p.left = w.Elapsed(), left
	delete(w.now, id)
	w.endDuplicate(id)
	w.running = slices.DeleteFunc(w.running, func(o *process) bool { return o == p })
}

// checkProcess checks the invariants of one node.
func (w *world) checkProcess(p *process) {
	v := p.View()
	if v.Phase != node.Active || p.Stopped() {
		p.active = w.Elapsed()
	}
	if w.checkEnd(p, v) || v.State == nil {
		return
	}
	if !p.Suspended() {
		w.checkFence(p, v.State)
	}
	w.checkCordoned(p, v.Live.Cordoned)
	w.checkWaits(p, v)
	if flapping := p.flapping(); flapping != p.wasFlapping {
		p.wasFlapping = flapping
		w.changed, w.checked = w.Elapsed(), false // partitions move
	}
	if v.State != p.state {
		w.report("events", p.ID, p.Problems(v.State.Owned(), idsOf(v.State)))
		w.checkMembers(p, v.State)
		if len(v.State.Owned()) > 0 {
			w.checkOwners(p, v.State)
		}
		p.state, p.owns = v.State, 0
		for _, partition := range v.State.Owned() {
			p.owns |= 1 << partition
		}
	}
	w.checkDead(p)
	defer w.mayLeave(p)
	if p.read != p.state && w.rng.IntN(30) == 0 {
		p.some.Add(events.Diff(p.read, p.state))
		p.read = p.state
		w.report("events", p.ID+", by a watcher that reads seldom", p.some.Problems(p.state.Owned(), idsOf(p.state)))
	}
}

// wakes records which partitions a suspended process owns when it continues, and which partitions its members own by
// then.
func (p *process) wakes(w *world) {
	p.woke, p.kept, p.others = w.Elapsed(), p.owns, make(map[*process]uint64)
	for _, other := range w.running {
		if other != p && other.Live() && slices.Contains(p.Members(), lease.NodeID(other.ID)) {
			p.others[other] = other.owns
		}
	}
}

// checkAwake fails if a process that was suspended keeps partitions that another member now owns, although that member
// can tell it so.
func (w *world) checkAwake(p *process) {
	if p.others == nil {
		return
	}
	keeps := func(p *process, owned uint64) uint64 {
		if p.Stopped() || w.hosts[p.ID].lossy || !p.Live() {
			return 0
		}
		return owned & p.owns
	}
	p.kept = keeps(p, p.kept)
	limit := time.Second + look
	if w.Loss() > 0 {
		limit = 2 * time.Second // packets in both directions may get lost repeatedly
	}
	for _, other := range w.running { // in a fixed order, so that a seed always fails with the same message
		if p.others[other] = keeps(other, p.others[other]); p.kept&p.others[other] != 0 && w.Elapsed()-p.woke > limit {
			w.fail("awake", "%s was suspended, and still owns what %s owns %v later", p.ID, other.ID, w.Elapsed()-p.woke)
		}
	}
	if p.kept == 0 || w.Loss() > calmLoss || w.calm.cut >= p.woke {
		p.others = nil
	}
}

// checkEnd restarts a process that has ended by itself, and reports whether there was such a process.
func (w *world) checkEnd(p *process, v node.View) (ended bool) {
	switch {
	case p.Duplicate() == nil && !v.Ended:
		return false
	case p.Duplicate() != nil && !w.duplicateRuns(p.ID):
		w.fail("dead", "%s stopped because of %v, which does not run", p.ID, p.Duplicate())
	case p.Duplicate() != nil: // this process was silent for long
		w.step("the duplicate of "+p.ID+" has won", func(w *world) { w.restart(p.ID) })
	default: // the seeds have refused it permanently
		w.restart(p.ID)
	}
	return true
}

// checkFence fails if a node has not released everything that it owned when its lease ended.
func (w *world) checkFence(p *process, s *events.State) {
	switch {
	case !p.Live() && len(s.Owned()) > 0:
		p.lapsed = s
	case p.Live() && p.lapsed != nil:
		if owned, released := len(p.lapsed.Owned()), len(events.Diff(p.lapsed, s).Released); released < owned {
			w.fail("fence", "%s released %d of %d partitions that it owned when its lease ended", p.ID, released, owned)
		}
		p.lapsed = nil
	}
}

// checkOwners compares the owners in a table with the members.
func (w *world) checkOwners(p *process, s *events.State) {
	for _, n := range s.Table.Nodes() {
		if !slices.Contains(idsOf(s), n.ID) {
			w.fail("owners", "%s: %s is in the table and no member", p.ID, n.ID)
		}
	}
}

// checkMembers checks which members a node has lost and gained since the last check.
func (w *world) checkMembers(p *process, s *events.State) {
	var before []lease.Incarnation
	if p.state != nil {
		before = p.state.Members
	}
	for _, m := range before {
		if !slices.Contains(s.Members, m) {
			w.checkLost(p, m)
		}
	}
	for _, m := range s.Members {
		if !slices.Contains(before, m) {
			w.checkGained(p, m)
		}
	}
}

func (w *world) checkLost(p *process, m lease.Incarnation) {
	other := w.all[m]
	if other == nil {
		return
	}
	if other.end != 0 {
		p.dropped[m] = true
		return
	}
	w.parted[linkOf(p.ID, other.ID)] = w.Elapsed()
	present, _ := other.incarnation()
	both := min(w.Elapsed()-other.began, w.Elapsed()-p.began)
	if m == present && both > ttl && w.isCalm(p.ID, other.ID) {
		w.fail("lease", "%s dropped %v, which runs", p.ID, m)
	}
}

func (w *world) checkGained(p *process, m lease.Incarnation) {
	other := w.all[m]
	switch {
	case other == nil && w.now[string(m.Node)] != nil: // it may just have taken a later incarnation
	case other == nil:
		w.fail("dead", "%s has a member %v, which never ran", p.ID, m)
	case other.end == 0:
	case w.Elapsed()-other.end > w.deadFor(p, other)+together:
		w.fail("dead", "%s has a new member %v, which ended %v ago", p.ID, m, w.Elapsed()-other.end)
	case p.dropped[m] && w.isCalm(p.ID, other.ID):
		w.fail("dead", "%s takes %v back, which ended %v ago", p.ID, m, w.Elapsed()-other.end)
	}
}

// together is how long a table may wait for more leases to expire.
const together = 3 * time.Second

// deadFor returns how long a node that ended may remain a member in the view of p.
func (w *world) deadFor(p, ended *process) time.Duration {
	switch calm := w.isCalm(p.ID, ended.ID); {
	case calm && ended.left && (w.Loss() == 0 || !w.isCutOff(ended.ID)): // otherwise all copies of its last message may be lost
		return 2 * time.Second
	case calm:
		return ttl + time.Second
	default:
		return 2*ttl + 3*time.Second
	}
}

// checkDead looks for live members that ended long ago. A node may publish this a little later, because leases that
// expire together cause only one new table.
func (w *world) checkDead(p *process) {
	members, cutOff := p.View().Live.Members, w.isCutOff(p.ID)
	for i := range members {
		m := lease.Incarnation{Node: members[i].ID, Number: members[i].Incarnation}
		other := w.all[m]
		if other == nil || other.end == 0 {
			continue
		}
		ago := w.Elapsed() - other.end
		waits := time.Duration(0)
		switch later := w.outlived(p, other); {
		case cutOff:
			waits = together
		case !other.left && later < ttl/2:
			waits = later
		}
		if limit := w.deadFor(p, other) + waits; ago > limit && w.Elapsed()-p.active > limit {
			invariant := "dead"
			if other.left && limit <= ttl {
				invariant = "leave"
			}
			w.fail(invariant, "%s has a member %v, which ended %v ago", p.ID, m, ago)
		}
	}
}

func idsOf(s *events.State) []lease.NodeID {
	ids := make([]lease.NodeID, len(s.Members))
	for i, m := range s.Members {
		ids[i] = m.Node
	}
	return ids
}
