package netlab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"
)

// outcome is the effect of a fault.
type outcome struct {
	changes   int           // the most table changes of any node except the faulty node
	ownerless time.Duration // for the average partition
	twice     time.Duration // the same, with two owners
	mostTwice int           // partitions that had two owners at the same time
	unowned   time.Duration // from the beginning of the fault until every partition had an owner again
	agreed    time.Duration // after the end of the fault
	never     error         // why there was no agreement

	ownedBy int    // the most partitions that the faulty node owned
	said    string // by the faulty node
	state   string // of the faulty node, at the end of the fault

	confirmations map[int]int // confirmed ends of processes that each node counts, except the faulty node
}

const partitions = 64

// observation polls all agents repeatedly.
type observation struct {
	l      *lab
	faulty int
	hosts  map[int]*host
	before map[int]counts
	stop   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	began   time.Time // of the fault
	last    time.Time // of the looks
	unowned time.Time // last poll in which a partition had no owner
	out     outcome
}

// observe starts polling. faulty is the number of the faulty host, or 0.
func (l *lab) observe(faulty int) *observation {
	now := time.Now()
	o := &observation{
		l:       l,
		faulty:  faulty,
		hosts:   maps.Clone(l.nodes),
		stop:    make(chan struct{}),
		before:  l.counts(),
		began:   now,
		last:    now,
		unowned: now,
	}
	o.owners() // so that each has a last answer
	pause := 100 * time.Millisecond
	if *long {
		pause /= 2
	}
	o.done.Go(func() {
		for {
			select {
			case <-o.stop:
				return
			case <-time.After(pause):
			}
			o.add(o.owners())
		}
	})
	return o
}

// owners asks each agent which partitions it owns. It returns how many owners each partition has, and how many
// partitions the faulty node owns. If an agent answers too late, its last answer counts, because the agent may be
// paused.
func (o *observation) owners() (owners [partitions]int, byFaulty int) {
	var wait sync.WaitGroup
	for _, h := range o.hosts {
		if h.hidden.Load() != shown {
			continue
		}
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(o.l.t.Context(), 300*time.Millisecond)
			defer cancel()
			if owned, err := h.Owned(ctx); err == nil || ctx.Err() == nil {
				h.owned = owned.Partitions
			}
		})
	}
	wait.Wait()
	for i, h := range o.hosts {
		if h.hidden.Load() == gone {
			continue
		}
		for _, p := range h.owned {
			owners[p]++
		}
		if i == o.faulty {
			byFaulty = len(h.owned)
		}
	}
	return owners, byFaulty
}

// add adds the result of a poll to the outcome.
func (o *observation) add(owners [partitions]int, byFaulty int) {
	none, twice := 0, 0
	for _, n := range owners {
		switch {
		case n == 0:
			none++
		case n > 1:
			twice++
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	span := now.Sub(o.last)
	o.last = now
	if none > 0 {
		o.unowned = now
	}
	o.out.ownerless += span * time.Duration(none) / partitions
	o.out.twice += span * time.Duration(twice) / partitions
	o.out.mostTwice = max(o.out.mostTwice, twice)
	o.out.ownedBy = max(o.out.ownedBy, byFaulty)
}

// begins records that the fault begins now.
func (o *observation) begins() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = time.Now()
	o.unowned = o.began
}

// ends records, before the fault is healed, what was seen and what the faulty node says.
func (o *observation) ends() {
	o.mu.Lock()
	o.out.unowned = o.unowned.Sub(o.began)
	o.mu.Unlock()
	h := o.l.nodes[o.faulty]
	if h == nil || h.hidden.Load() != shown {
		return
	}
	ctx, cancel := context.WithTimeout(o.l.t.Context(), time.Second)
	defer cancel()
	if s, err := h.Stats(ctx); err == nil {
		o.out.state, o.out.said = s.State, s.Waits
	}
}

// outcome waits until all agents agree, and then one more TTL in which nothing may change.
func (o *observation) outcome(limit time.Duration) outcome {
	o.out.agreed, o.out.never = o.l.agree(limit)
	time.Sleep(ttl())
	close(o.stop)
	o.done.Wait()
	o.out.confirmations = make(map[int]int)
	for i, n := range o.l.counts() {
		if before, ok := o.before[i]; ok && i != o.faulty {
			o.out.changes = max(o.out.changes, n.tables-before.tables)
			o.out.confirmations[i] = n.confirmations - before.confirmations
		}
	}
	return o.out
}

// counts contains some counters of an agent.
type counts struct{ tables, confirmations int }

func (l *lab) counts() map[int]counts {
	all := make(map[int]counts)
	for i, h := range l.nodes {
		if s, err := h.Stats(l.t.Context()); err == nil {
			all[i] = counts{int(s.Counts.TableChanges), int(s.Counts.Crashed)}
		}
	}
	return all
}

// agree waits until all agents have the same table with all agents in it, and each partition has one owner. It returns
// how long this took.
func (l *lab) agree(limit time.Duration) (time.Duration, error) {
	begin := time.Now()
	for ; ; time.Sleep(20 * time.Millisecond) {
		err := l.disagreement()
		if since := time.Since(begin); err == nil || since > limit {
			return since, err
		}
	}
}

func (l *lab) disagreement() error {
	digests := make(map[string]bool)
	owners := make(map[int]int)
	for i, h := range l.nodes {
		ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
		m, err := h.Members(ctx)
		s, serr := h.Stats(ctx)
		owned, oerr := h.Owned(ctx)
		cancel()
		switch {
		case err != nil || serr != nil || oerr != nil:
			return fmt.Errorf("n%d: %w", i, errors.Join(err, serr, oerr))
		case len(m.Members) != len(l.nodes):
			return fmt.Errorf("n%d sees %d members", i, len(m.Members))
		case s.State != "active":
			return fmt.Errorf("n%d is %s: %s", i, s.State, s.Waits)
		}
		digests[fmt.Sprint(m.Digest)] = true
		for _, p := range owned.Partitions {
			if other, ok := owners[int(p)]; ok {
				return fmt.Errorf("n%d and n%d own partition %d", other, i, p)
			}
			owners[int(p)] = i
		}
	}
	if len(digests) != 1 || len(owners) != partitions {
		return fmt.Errorf("%d tables; %d partitions have an owner", len(digests), len(owners))
	}
	return nil
}

// log prints the outcome as a row of a table.
func (o outcome) log(t *testing.T, name string) {
	t.Helper()
	agreed := fmt.Sprintf("%.1f s", o.agreed.Seconds())
	if o.never != nil {
		agreed = fmt.Sprintf("not in %.0f s: %v", o.agreed.Seconds(), o.never)
	}
	t.Logf("| %s | %d | %.1f s | %.1f s, %d | %.2f s | %s | %s, %d, %v", name, o.changes, o.ownerless.Seconds(),
		o.twice.Seconds(), o.mostTwice, o.unowned.Seconds(), agreed, o.state, o.ownedBy, o.confirmations)
}
