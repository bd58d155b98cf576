//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestRollingRestart: five agents restart one after the other, while callers that use /readyz look up keys all the
// time. No lookup may fail or return a process that has ended. In the events of every node, partitions move only from
// the restarted node when it leaves, and back to it when it has returned. After SIGTERM, the other nodes don't wait for
// the lease to expire. After kill -9, they take over when the crash is confirmed, and the node returns with the same
// id. With -v, the test prints the numbers in docs/dev/benchmarks.md.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	// The leases are long, because a machine that stalls for a moment must not look like a crash.
	long := []string{"--heartbeat", "200ms", "--ttl", "1m"}
	for _, tt := range []struct {
		name string
		args []string
		kill int // the slot of the node that is killed instead; -1 for none
	}{
		{"rendezvous", long, 2},
		{"least-partitions", append(long, "--strategy", "least-partitions"), -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := startRolling(t, agenttest.Binary(t), tt.args...)
			var steps []step
			for slot := range r.nodes {
				if slot == tt.kill {
					t.Logf("after kill -9: %v", r.restart(slot, true))
				} else {
					steps = append(steps, r.restart(slot, false))
				}
			}
			r.report(steps)
		})
	}
}

// takeOver is shorter than the lease in TestRollingRestart (1 minute), so only a confirmed failure is in time. It is
// longer than the lease in TestMixedReleases (5 s).
const takeOver = 25 * time.Second

// rolling is a cluster that restarts node by node.
type rolling struct {
	t         *testing.T
	ctx       context.Context
	exe       string // the binary of the nodes that start next
	args      []string
	nodes     []*proc
	witnesses []*witness
	callers   *balancer
	began     time.Time
}

func startRolling(t *testing.T, exe string, args ...string) *rolling {
	const nodes, answers = 5, time.Second // what the default of --shutdown-delay guarantees
	ctx, cancel := context.WithCancel(t.Context())
	r := &rolling{
		t: t, ctx: ctx, exe: exe, args: args,
		nodes: make([]*proc, nodes), witnesses: make([]*witness, nodes), callers: newBalancer(t, nodes, answers),
	}
	for slot := range nodes {
		r.start(slot)
	}
	agree(t, r.nodes...)
	if slices.Contains(args, "least-partitions") {
		eventually(t, r.level)
		agree(t, r.nodes...)
	}
	for slot, w := range r.witnesses { // ignore the moves at the start
		table := r.table(r.nodes[slot])
		eventually(t, func() error { return w.has(table.Digest) })
		w.take()
	}
	for slot := range nodes {
		r.callers.wait.Go(func() { r.callers.call(ctx, slot) })
	}
	r.began = time.Now()
	t.Cleanup(func() {
		cancel()
		r.callers.wait.Wait()
	})
	return r
}

// start starts the node of a slot, with the same id each time.
func (r *rolling) start(slot int) {
	r.t.Helper()
	args := slices.Clone(r.args)
	for i, p := range r.nodes {
		if p != nil && i != slot {
			args = append(args, "--join", p.Gossip)
		}
	}
	id := string(rune('a' + slot))
	p := agenttest.LaunchCommand(r.t, id, agentproc.Command(r.exe, id, args...))
	p.Runs()
	r.nodes[slot] = p
	r.callers.put(r.ctx, slot, p)
	r.witnesses[slot] = new(witness)
	r.callers.wait.Go(func() { r.witnesses[slot].listen(r.ctx, p) })
	eventually(r.t, func() error { return p.Ready(r.ctx) })
}

// restart ends the node of a slot, cleanly or with kill -9, and starts it again.
func (r *rolling) restart(slot int, crash bool) (s step) {
	r.t.Helper()
	id := lease.NodeID(r.nodes[slot].ID)
	others := r.others(slot)
	before := r.table(others[0])
	var share []placement.Partition
	for p, owner := range before.Owners {
		if owner == id {
			share = append(share, placement.Partition(p))
		}
	}
	s.share = len(share)

	began := time.Now()
	if crash {
		r.callers.kill(slot)
		<-r.nodes[slot].Done()
		s.ended = time.Since(began)
		agree(r.t, others...) // until the crash is confirmed
	} else {
		r.nodes[slot].Signal(syscall.SIGTERM)
		r.nodes[slot].Exits(exitOK)
		s.ended = time.Since(began) // the other nodes already know by then
	}
	r.callers.gone.Store(&id)
	agree(r.t, others...)
	r.lookUps(200)
	r.callers.gone.Store(nil)
	s.away = r.moved(slot, share, func(m placement.Move) bool { return m.From == id }).Sub(began)
	if s.away > takeOver {
		r.t.Errorf("the others took over from %s after %v", id, s.away)
	}
	s.awayDiffered = r.callers.differed(r.table(others[0]).Digest)

	started := time.Now()
	r.start(slot)
	agree(r.t, r.nodes...)
	s.back = r.moved(slot, share, func(m placement.Move) bool { return m.To == id }).Sub(started)
	after := r.table(others[0])
	s.backDiffered = r.callers.differed(after.Digest)
	if !slices.Equal(after.Owners, before.Owners) {
		r.t.Errorf("after the restart of %s the owners differ from before", id)
	}
	return s
}

func (r *rolling) others(slot int) []*proc {
	return slices.Delete(slices.Clone(r.nodes), slot, slot+1)
}

func (r *rolling) table(p *proc) placement.Export {
	r.t.Helper()
	table, err := p.Partitions(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return table.Export
}

// level returns an error if the nodes' numbers of partitions differ by more than 1.
func (r *rolling) level() error {
	owners := r.table(r.nodes[0]).Owners
	least, most := len(owners), 0
	for _, p := range r.nodes {
		n := 0
		for _, owner := range owners {
			if string(owner) == p.ID {
				n++
			}
		}
		least, most = min(least, n), max(most, n)
	}
	if most-least > 1 {
		return fmt.Errorf("nodes own %d to %d partitions", least, most)
	}
	return nil
}

// lookUps waits until n more lookups have been answered.
func (r *rolling) lookUps(n int64) {
	r.t.Helper()
	enough := r.callers.made.Load() + n
	eventually(r.t, func() error {
		if made := r.callers.made.Load(); made < enough {
			return fmt.Errorf("%d lookups to go", enough-made)
		}
		return nil
	})
}

// moved checks the events of every other node: exactly the given partitions must have moved, each once, and each move
// must fit. It returns the time of the last event.
func (r *rolling) moved(slot int, want []placement.Partition, fits func(placement.Move) bool) (last time.Time) {
	r.t.Helper()
	for i, w := range r.witnesses {
		if i == slot {
			continue
		}
		table := r.table(r.nodes[i]) // all have agreed
		eventually(r.t, func() error { return w.has(table.Digest) })
		moves, at := w.take()
		var got []placement.Partition
		for _, m := range moves {
			got = append(got, m.Partition)
			if !fits(m) {
				r.t.Fatalf("%s saw partition %d move from %s to %s at the restart of %s", r.nodes[i].ID, m.Partition, m.From, m.To, r.nodes[slot].ID)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			r.t.Fatalf("%s saw %d partitions move at the restart of %s, which has %d", r.nodes[i].ID, len(got), r.nodes[slot].ID, len(want))
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// step contains the numbers of one restart.
type step struct {
	share                      int           // partitions that moved away, and back
	away, back                 time.Duration // until all other nodes had the new table
	awayDiffered, backDiffered time.Duration // for how long, at most, answers differed
	ended                      time.Duration // until the process had ended
}

// String formats the numbers for the log.
func (s step) String() string {
	return fmt.Sprintf("%d partitions away in %v, back in %v after the start; answers differed for at most %v and %v; ended in %v",
		s.share, s.away.Round(time.Millisecond), s.back.Round(time.Millisecond),
		s.awayDiffered.Round(time.Millisecond), s.backDiffered.Round(time.Millisecond), s.ended.Round(time.Millisecond))
}

func (r *rolling) report(steps []step) {
	for _, s := range steps {
		r.t.Log(s)
	}
	r.t.Logf("medians: %v", step{
		share:        median(steps, func(s step) int { return s.share }),
		away:         median(steps, func(s step) time.Duration { return s.away }),
		awayDiffered: median(steps, func(s step) time.Duration { return s.awayDiffered }),
		back:         median(steps, func(s step) time.Duration { return s.back }),
		backDiffered: median(steps, func(s step) time.Duration { return s.backDiffered }),
		ended:        median(steps, func(s step) time.Duration { return s.ended }),
	})
	made, took := r.callers.made.Load(), time.Since(r.began)
	r.t.Logf("%d lookups in %v, %.0f a second; %d problems, %d went on to a second node",
		made, took.Round(time.Second), float64(made)/took.Seconds(), r.callers.problems.Load(), r.callers.again.Load())
}

func median[T cmp.Ordered](steps []step, of func(step) T) T {
	all := make([]T, 0, len(steps))
	for _, s := range steps {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// witness collects the events of one node.
type witness struct {
	mu     sync.Mutex
	moves  []placement.Move
	digest placement.Digest
	at     time.Time // of the last move
}

func (w *witness) listen(ctx context.Context, p *proc) {
	for b, err := range p.Events(ctx) {
		if err != nil {
			return // the stream ends with the node; if it ends too early, the test fails while it waits
		}
		w.mu.Lock()
		w.digest = b.Digest
		if len(b.Moved) > 0 {
			w.moves, w.at = append(w.moves, b.Moved...), time.Now()
		}
		w.mu.Unlock()
	}
}

// has returns nil if the given table is the newest in the node's events.
func (w *witness) has(d placement.Digest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.digest != d {
		return fmt.Errorf("the events lead to table %s, want %s", w.digest, d)
	}
	return nil
}

// take returns the moves since the last call, and the time of the last move.
func (w *witness) take() ([]placement.Move, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	moves := w.moves
	w.moves = nil
	return moves, w.at
}
