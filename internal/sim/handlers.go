package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Handlers gives each node a handler for each partition that it owns, like RunOwned, and watches them.
type Handlers struct {
	Stop func(*Process) time.Duration // how long a run takes to return after it is cancelled

	Overlaps []Overlap
	Gaps     []Gap

	running map[placement.Partition][]*Process
	ended   map[placement.Partition]ending
}

// Overlap is the start of a run of a partition while another run of it is in progress on another node.
type Overlap struct {
	At        time.Duration
	Partition placement.Partition
	Begins    *Process
	Runs      *Process
	Known     bool // each of the two nodes sees the other as live
}

func (o Overlap) String() string {
	return fmt.Sprintf("%v: %s begins to run partition %d, which runs on %s", o.At, o.Begins.ID, o.Partition, o.Runs.ID)
}

// Gap is a time between two runs of a partition in which no run was in progress.
type Gap struct {
	Partition placement.Partition
	Time      time.Duration
	Crash     bool // the earlier run ended with its process
}

type ending struct {
	at    time.Time
	crash bool
}

func (h *Handlers) begin(p *Process, of placement.Partition) {
	if h.running == nil {
		h.running, h.ended = make(map[placement.Partition][]*Process), make(map[placement.Partition]ending)
	}
	for _, other := range h.running[of] {
		h.Overlaps = append(h.Overlaps, Overlap{p.c.Elapsed(), of, p, other, p.knows(other) && other.knows(p)})
	}
	if end, ok := h.ended[of]; ok && len(h.running[of]) == 0 {
		h.Gaps = append(h.Gaps, Gap{of, p.c.now.Sub(end.at), end.crash})
	}
	h.running[of] = append(h.running[of], p)
}

// knows reports whether the other process is a live member in the view of p.
func (p *Process) knows(other *Process) bool {
	return slices.ContainsFunc(p.View().Live.Members, func(m lease.Member) bool { return m.Handle == other.core.Handle() })
}

func (h *Handlers) end(p *Process, of placement.Partition, crash bool) {
	h.running[of] = slices.DeleteFunc(h.running[of], func(o *Process) bool { return o == p })
	h.ended[of] = ending{p.c.now, crash}
}

// Running returns how many runs a partition has.
func (h *Handlers) Running(of placement.Partition) int { return len(h.running[of]) }

// Runs returns the partitions whose runs have begun on a process and have not returned.
func (p *Process) Runs() []placement.Partition { return slices.Sorted(maps.Keys(p.runs)) }

// run is a run of a partition.
type run struct {
	of      placement.Partition
	since   uint64
	awaited bool   // the core waits until the run returns
	next    uint64 // the ownership that begins after the run has returned; 0 = none
}

// follow starts and cancels runs like RunOwned.
func (p *Process) follow(b events.Batch, stop []placement.Partition) {
	if p.c.opts.Handlers == nil {
		p.report(stop)
		return
	}
	for _, o := range b.Released {
		switch r := p.runs[o.Partition]; {
		case r == nil:
		case r.since == o.Since:
			p.cancel(r)
		default:
			r.next = 0
		}
	}
	for _, o := range b.Acquired {
		if r := p.runs[o.Partition]; r != nil {
			r.next = o.Since
		} else {
			p.begin(o)
		}
	}
	var idle []placement.Partition
	for _, of := range stop {
		if r := p.runs[of]; r != nil {
			r.awaited = true
		} else {
			idle = append(idle, of)
		}
	}
	p.report(idle)
}

func (p *Process) begin(o events.Ownership) {
	p.runs[o.Partition] = &run{of: o.Partition, since: o.Since}
	p.c.opts.Handlers.begin(p, o.Partition)
}

func (p *Process) cancel(r *run) {
	p.c.after(p, p.c.opts.Handlers.Stop(p), func() { p.returned(r) })
}

func (p *Process) returned(r *run) {
	delete(p.runs, r.of)
	p.c.opts.Handlers.end(p, r.of, false)
	if r.next != 0 {
		p.begin(events.Ownership{Partition: r.of, Since: r.next})
	}
	if r.awaited {
		p.core.Returned(p.Now(), r.of)
	}
}

// report notifies the core of partitions without a run.
func (p *Process) report(idle []placement.Partition) {
	if len(idle) > 0 {
		p.c.after(p, 0, func() { p.core.Returned(p.Now(), idle...) })
	}
}

// endRuns ends the runs of a process that exits.
func (p *Process) endRuns() {
	for of := range p.runs {
		p.c.opts.Handlers.end(p, of, true)
	}
	clear(p.runs)
}
