package chaos

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/auditor"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/sim"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// audit shows the auditor what it would see of real processes: the answers of their HTTP API, what they tell their
// applications, and what this test does to them.
type audit struct {
	*auditor.Auditor
	seen     []*process // at the last observation
	runs     int        // of processes
	looks    int
	overlaps int             // of handlers, that were shown
	ordered  []auditor.Order // since the last observation
	cuts     []auditor.Cut
	cutsSeen bool // cuts is up to date

	cutsSince []auditor.Cut // that existed since the last observation
}

// shown is what a process has shown to the auditor.
type shown struct {
	run     int
	batches int
	late    *events.State // of the watcher that reads seldom
	answer  *auditor.Answer
	of      *placement.Table // of answer
	cordons []lease.Cordon   // of answer
}

func newAudit(s schedule) *audit {
	settings := auditor.Settings{
		TTL: ttl, Partitions: partitions, MinMembers: s.minMembers, Settle: s.settles(), Even: s.levels(), Hang: s.slowest,
	}
	if s.handoff {
		settings.Handoff = bound
	}
	if slices.Contains(s.kinds, "handlers hang") || slices.Contains(s.kinds, "all") {
		settings.Hang = hang
	}
	return &audit{Auditor: auditor.New(settings)}
}

// observe makes the auditor judge what it sees now.
func (w *world) observe() {
	a := w.audit
	a.looks++
	o := auditor.Observation{
		At: w.Elapsed(), Disturbed: w.disturbed, Hosts: w.s.hosts, Loss: w.Loss(), Orders: a.ordered,
		Cuts: slices.Concat(a.cutsSince, w.cutLinks()),
	}
	a.ordered, a.cutsSince = nil, nil
	seen := slices.Clone(w.running)
	for _, id := range slices.Sorted(maps.Keys(w.duplicates)) {
		seen = append(seen, w.duplicates[id])
	}
	for _, p := range a.seen {
		if !slices.Contains(seen, p) {
			o.Processes = append(o.Processes, w.facts(p, true))
		}
	}
	for _, p := range seen {
		o.Processes = append(o.Processes, w.facts(p, false))
	}
	for _, overlap := range w.handlers.Overlaps[a.overlaps:] {
		o.Overlaps = append(o.Overlaps, auditor.Overlap{
			Partition: int(overlap.Partition), Begins: a.runOf(seen, overlap.Begins), Runs: a.runOf(seen, overlap.Runs),
		})
	}
	a.seen, a.overlaps = seen, len(w.handlers.Overlaps)
	a.Observe(&o)
}

// runOf returns the number of a process, or 0 if it has ended.
func (a *audit) runOf(seen []*process, p *sim.Process) int {
	for _, s := range seen {
		if s.Process == p {
			return s.shown.run
		}
	}
	return 0
}

// facts returns what is known of a process, and what it shows.
func (w *world) facts(p *process, over bool) *auditor.Process {
	if p.shown.run == 0 {
		w.audit.runs++
		p.shown.run = w.audit.runs
	}
	h := w.hosts[p.ID]
	f := &auditor.Process{
		Run: p.shown.run, ID: p.ID, Seed: slices.Contains(w.seeds, p.Addr), Lossy: h.lossy, Clock: p.Clock(),
	}
	if p.former != nil {
		h = p.former
	}
	f.Draining, f.Unhealthy, f.Weight = h.draining, h.unhealthy, h.weight
	if m, ok := p.incarnation(); ok {
		f.Incarnation = m.Number
	}
	switch {
	case over && p.left:
		f.Status = auditor.Left
	case over:
		f.Status = auditor.Dead
	case p.Suspended():
		f.Status = auditor.Suspended
	case p.Stopped():
		f.Status = auditor.Paused
	}
	if w.s.handoff {
		f.Runs = numbers(p.Runs())
	}
	if f.Status == auditor.Running {
		w.show(p, f)
	}
	return f
}

// show adds what a running process answers, and what it has told its application since it was last asked.
func (w *world) show(p *process, f *auditor.Process) {
	s, v := &p.shown, p.View()
	for all := p.Batches(); s.batches < len(all); s.batches++ {
		f.News = append(f.News, batchOf(&all[s.batches]))
	}
	if v.State != nil && v.State != s.late && (w.audit.looks+s.run)%29 == 0 {
		b := events.Diff(s.late, v.State)
		late := batchOf(&b)
		f.Late, s.late = &late, v.State
	}
	if v.State != nil {
		w.answer(p, v)
	}
	f.Answer = s.answer
}

// answer updates the answer of a process. It keeps the earlier answer if nothing has changed.
func (w *world) answer(p *process, v node.View) {
	s := &p.shown
	a := auditor.Answer{
		State: stateOf(v), Stale: v.Stale, Owned: numbers(p.Owned()), Waiting: numbers(v.State.Waits()),
		Fences: v.Stats.Fences, Overruns: v.Stats.HandoffOverruns,
	}
	old := s.answer
	if old != nil {
		a.Members, a.Table, a.Cordons = old.Members, old.Table, old.Cordons
	}
	if !sameMembers(a.Members, v.Live.Members) {
		a.Members = membersOf(v.Live.Members)
	}
	if v.Table != s.of {
		s.of, a.Table = v.Table, tableOf(v.Table)
	}
	if !slices.Equal(v.Live.Cordoned, s.cordons) {
		s.cordons, a.Cordons = v.Live.Cordoned, nil
		for _, c := range s.cordons {
			until := w.Elapsed() + v.Live.Local(c.Until).Sub(p.Now())
			a.Cordons = append(a.Cordons, auditor.Cordon{ID: string(c.ID), Reason: c.Reason, Until: until})
		}
	}
	if old != nil && a.State == old.State && a.Stale == old.Stale && a.Fences == old.Fences && a.Overruns == old.Overruns &&
		a.Table == old.Table && slices.Equal(a.Owned, old.Owned) && slices.Equal(a.Waiting, old.Waiting) &&
		slices.Equal(a.Members, old.Members) && slices.Equal(a.Cordons, old.Cordons) {
		return
	}
	s.answer = &a
}

// stateOf returns the state in /v1/stats.
func stateOf(v node.View) string {
	switch {
	case v.Phase == node.Over:
		return "left"
	case v.Phase != node.Joining && len(v.Holds) > 0:
		return string(v.Holds[0].Cause)
	}
	return v.Phase.String()
}

func sameMembers(a []auditor.Member, b []lease.Member) bool {
	return slices.EqualFunc(a, b, func(a auditor.Member, b lease.Member) bool {
		return a.Incarnation == b.Incarnation && a.Flapping == (b.FlappingUntil > 0) && a.ID == string(b.ID)
	})
}

func membersOf(all []lease.Member) (members []auditor.Member) {
	for i := range all {
		m := &all[i]
		members = append(members, auditor.Member{ID: string(m.ID), Incarnation: m.Incarnation, Flapping: m.FlappingUntil > 0})
	}
	return members
}

func tableOf(t *placement.Table) *auditor.Table {
	if t == nil {
		return nil
	}
	e := t.Export(0)
	table := &auditor.Table{Owners: texts(e.Owners)}
	for _, n := range e.Nodes {
		table.Nodes = append(table.Nodes, auditor.Node{ID: string(n.ID), Weight: n.Weight})
	}
	return table
}

func batchOf(b *events.Batch) auditor.Batch {
	batch := auditor.Batch{Full: b.Full, Left: texts(b.Left), Joined: texts(b.Joined)}
	for _, o := range b.Released {
		batch.Released = append(batch.Released, int(o.Partition))
	}
	for _, o := range b.Acquired {
		batch.Acquired = append(batch.Acquired, int(o.Partition))
	}
	for id, reason := range b.Reasons {
		if batch.Reasons == nil {
			batch.Reasons = make(map[string]string)
		}
		batch.Reasons[string(id)] = string(reason)
	}
	return batch
}

func texts(ids []lease.NodeID) (all []string) {
	for _, id := range ids {
		all = append(all, string(id))
	}
	return all
}

func numbers(partitions []placement.Partition) (all []int) {
	for _, p := range partitions {
		all = append(all, int(p))
	}
	return all
}

// order records an operator's order.
func (a *audit) order(now time.Duration, by *process, id string, d time.Duration) {
	knows := slices.ContainsFunc(by.View().Live.Cordoned, func(c lease.Cordon) bool { return string(c.ID) == id })
	a.ordered = append(a.ordered, auditor.Order{By: by.ID, ID: id, At: now, Until: now + d, Knows: knows})
}

// cutLinks returns the links between running nodes that are cut.
func (w *world) cutLinks() []auditor.Cut {
	a := w.audit
	if a.cutsSeen {
		return a.cuts
	}
	a.cuts, a.cutsSeen = nil, true
	if len(w.cuts) == 0 {
		return nil
	}
	for _, from := range w.IDs() {
		for _, to := range w.IDs() {
			if !w.Reaches(from, to) {
				a.cuts = append(a.cuts, auditor.Cut{From: from, To: to})
			}
		}
	}
	return a.cuts
}

// A duplicate keeps the orders that it got. The later process has none.
func TestOrdersOfDuplicate(t *testing.T) {
	w := newWorld(draw(1))
	w.start("n00")
	w.drain("n00", true)
	w.duplicate("n00")
	if earlier, later := w.facts(w.duplicates["n00"], false), w.facts(w.now["n00"], false); !earlier.Draining || later.Draining {
		t.Errorf("draining: the duplicate %v, the later process %v", earlier.Draining, later.Draining)
	}
}
