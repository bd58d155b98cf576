package netlab

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// outcome is what a fault did.
type outcome struct {
	changes   int           // of the table of one node, besides those at fault; the most of all
	ownerless time.Duration // of the average partition
	twice     time.Duration // likewise, with two owners
	mostTwice int           // partitions with two owners at a time
	agreed    time.Duration // after the end of the fault
	ownedBy   int           // most partitions that the node at fault owned
	said      string        // by the node at fault
	state     string        // of the node at fault at the end of the fault
}

const partitions = 64

// observation looks at all agents again and again.
type observation struct {
	l      *lab
	faulty int
	stop   chan struct{}
	done   sync.WaitGroup
	before map[int]uint64
	out    outcome
}

// observe begins to look. faulty is the host at fault, or 0.
func (l *lab) observe(faulty int) *observation {
	o := &observation{l: l, faulty: faulty, stop: make(chan struct{}), before: l.tables()}
	hosts := maps.Clone(l.nodes)
	o.done.Go(func() {
		last := time.Now()
		for {
			select {
			case <-o.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			o.look(hosts, &last)
		}
	})
	return o
}

// look asks each agent what it owns.
func (o *observation) look(hosts map[int]*host, last *time.Time) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	owners := make([]int, partitions)
	for i, h := range hosts {
		wait.Go(func() {
			ctx, cancel := context.WithTimeout(o.l.t.Context(), 300*time.Millisecond)
			defer cancel()
			owned, err := h.Owned(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range owned.Partitions {
				owners[p]++
			}
			if i == o.faulty {
				o.out.ownedBy = max(o.out.ownedBy, len(owned.Partitions))
			}
		})
	}
	wait.Wait()
	none, twice := 0, 0
	for _, n := range owners {
		switch {
		case n == 0:
			none++
		case n > 1:
			twice++
		}
	}
	now := time.Now()
	span := now.Sub(*last)
	*last = now
	o.out.ownerless += span * time.Duration(none) / partitions
	o.out.twice += span * time.Duration(twice) / partitions
	o.out.mostTwice = max(o.out.mostTwice, twice)
}

// faultEnds notes what the node at fault says, before the fault is healed.
func (o *observation) faultEnds() {
	if h := o.l.nodes[o.faulty]; h != nil {
		if s, err := h.Stats(o.l.t.Context()); err == nil {
			o.out.state, o.out.said = s.State, s.Waits
		}
	}
}

// end waits for agreement and returns the outcome.
func (o *observation) end(limit time.Duration) outcome {
	o.l.t.Helper()
	o.out.agreed = o.l.agree(limit)
	close(o.stop)
	o.done.Wait()
	for i, n := range o.l.tables() {
		if before, ok := o.before[i]; ok && i != o.faulty {
			o.out.changes = max(o.out.changes, int(n-before))
		}
	}
	return o.out
}

// tables returns how often each agent changed its table.
func (l *lab) tables() map[int]uint64 {
	all := make(map[int]uint64)
	for i, h := range l.nodes {
		if s, err := h.Stats(l.t.Context()); err == nil {
			all[i] = s.Counts.TableChanges
		}
	}
	return all
}

func (o outcome) String() string {
	return fmt.Sprintf("%d | %.1f s | %.1f s, %d | %.1f s", o.changes, o.ownerless.Seconds(), o.twice.Seconds(), o.mostTwice, o.agreed.Seconds())
}
