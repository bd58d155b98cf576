//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/placement"
)

// fleet is a cluster of real agents, together with what each agent says about the others.
type fleet struct {
	tb     testing.TB
	args   []string
	agents []*proc
	news   chan news
	tables []atomic.Uint64 // the digest of the newest table in each agent's events
	joins  atomic.Int64    // the number of joins in all events
}

// news says that an agent has lost another agent.
type news struct {
	from, lost string
	digest     placement.Digest // of the table without the lost agent; 0 = it has already returned
}

// slow contains the timings of tests in which agents must confirm a failure. A lease lasts far longer than
// these tests wait.
func slow() []string { return []string{"--ttl", "30s"} }

// proven is the time within which all agents must know that a process has ended. They usually need half a second, but
// more on a busy machine.
const proven = 3 * time.Second

func startFleet(tb testing.TB, nodes int, args ...string) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, args: args, agents: make([]*proc, nodes), news: make(chan news, 100*nodes), tables: make([]atomic.Uint64, nodes)}
	for i := range nodes {
		f.launch(i)
		if i == 0 {
			f.agents[0].Runs()
		}
	}
	for i := range nodes {
		f.follow(i)
	}
	f.settle()
	return f
}

// launch starts the agent of a slot and does not wait for it.
func (f *fleet) launch(slot int, args ...string) {
	f.tb.Helper()
	args = append(slices.Clone(f.args), args...)
	for i, a := range f.agents {
		if i != slot && a != nil && a.Gossip != "" && !a.Ended() {
			args = append(args, "--join", a.Gossip)
			break
		}
	}
	f.agents[slot] = launch(f.tb, fmt.Sprintf("n%02d", slot), args...)
}

// follow waits for the agent of a slot, and reads its events until it ends.
func (f *fleet) follow(slot int) {
	f.tb.Helper()
	a := f.agents[slot]
	a.Runs()
	ctx, cancel := context.WithCancel(f.tb.Context())
	f.tb.Cleanup(cancel)
	go func() {
		for b, err := range a.Events(ctx) {
			if err != nil {
				return
			}
			f.joins.Add(int64(len(b.Joined)))
			f.tables[slot].Store(uint64(b.Digest))
			for _, id := range b.Left {
				n := news{a.ID, string(id), b.Digest}
				if slices.Contains(b.Joined, id) {
					n.digest = 0
				}
				f.news <- n
			}
		}
	}()
}

// agree waits until the agents agree, and until each agent's events include the table that they agreed on.
func (f *fleet) agree() {
	f.tb.Helper()
	agree(f.tb, f.agents...)
	table, err := f.agents[0].Partitions(f.tb.Context())
	if err != nil {
		f.tb.Fatal(err)
	}
	for i, a := range f.agents {
		eventually(f.tb, func() error {
			if got := placement.Digest(f.tables[i].Load()); got != table.Digest {
				return fmt.Errorf("the events of %s have told of table %v, not yet of %v", a.ID, got, table.Digest)
			}
			return nil
		})
	}
}

// settle waits until the agents agree, and until other agents watch each of them.
func (f *fleet) settle() {
	f.tb.Helper()
	f.agree()
	want := min(4, len(f.agents)-1)
	for _, a := range f.agents {
		eventually(f.tb, func() error {
			s, err := a.Stats(f.tb.Context())
			if err == nil && (s.Counts.Watched < want || s.Counts.Watchers < want) {
				err = fmt.Errorf("%s watches %d nodes, and %d watch it, want %d", a.ID, s.Counts.Watched, s.Counts.Watchers, want)
			}
			return err
		})
	}
	f.quiet(0)
}

// quiet fails the test if an agent loses another agent within d. It discards news from before the call.
func (f *fleet) quiet(d time.Duration) {
	f.tb.Helper()
	for end := time.After(d); ; {
		select {
		case n := <-f.news:
			if d > 0 {
				f.tb.Fatalf("%s has lost %s, which runs", n.from, n.lost)
			}
		case <-end:
			return
		}
	}
}

// end ends the process of a slot. It returns, sorted, how long each of the other agents took to learn of it.
func (f *fleet) end(slot int, end func(*proc)) (learned []time.Duration) {
	f.tb.Helper()
	dead := f.agents[slot]
	began := time.Now()
	end(dead)
	digests := make(map[placement.Digest]bool)
	for late, heard := time.After(agenttest.Timeout), 0; heard < len(f.agents)-1; {
		select {
		case n := <-f.news:
			if n.lost != dead.ID {
				f.tb.Fatalf("%s has lost %s; %s has ended", n.from, n.lost, dead.ID)
			}
			heard++
			if n.digest != 0 {
				digests[n.digest] = true
			}
		case <-late:
			f.tb.Fatalf("%d of %d agents have learned of the end of %s", heard, len(f.agents)-1, dead.ID)
		}
	}
	if len(digests) > 1 {
		f.tb.Errorf("the agents have %d different tables after the end of %s", len(digests), dead.ID)
	}
	for i, a := range f.agents {
		if i == slot {
			continue
		}
		eventually(f.tb, func() error {
			at, err := goneAt(a, dead.ID, began)
			if err == nil {
				learned = append(learned, at.Sub(began))
			}
			return err
		})
	}
	slices.Sort(learned)
	return learned
}

// goneAt returns the time in an agent's log at which the agent learned that another agent is gone. Events are less
// precise, because they arrive late if this process is starved.
func goneAt(a *proc, id string, since time.Time) (at time.Time, err error) {
	for text := range strings.Lines(a.Log.String()) {
		var line struct {
			Time        time.Time
			Msg, Member string
		}
		if json.Unmarshal([]byte(text), &line) != nil { // the line is incomplete
			continue
		}
		if (line.Msg == "member lost" || line.Msg == "member left") && line.Member == id && line.Time.After(since) {
			return line.Time, nil
		}
	}
	return at, fmt.Errorf("%s has not logged that %s is gone", a.ID, id)
}

func kill(p *proc) { _ = p.Process.Signal(syscall.SIGKILL) }

// TestConfirmedFailure: processes end in several ways, and all other agents know long before the lease expires. If a
// process is killed and restarted with the same id, the other agents see it leave once and join once.
func TestConfirmedFailure(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, slow()...)
	for slot, tt := range []struct {
		name string
		end  func(*proc)
	}{
		{"kill -9", kill},
		{"abort, as after a panic", func(p *proc) { p.Signal(syscall.SIGABRT) }},
	} {
		learned := f.end(slot, tt.end)
		t.Logf("%s: known by all after %v, median %v",
			tt.name, learned[len(learned)-1].Round(time.Millisecond), learned[len(learned)/2].Round(time.Millisecond))
		if last := learned[len(learned)-1]; last > proven {
			t.Errorf("%s: the last agent learned of it after %v", tt.name, last)
		}
		f.launch(slot)
		f.follow(slot)
		f.settle()
	}

	const slot = 5
	joins, gossip := f.joins.Load(), f.agents[slot].Gossip
	f.end(slot, func(p *proc) {
		kill(p)
		<-p.Done()
		f.launch(slot, "--bind", gossip) // immediately, at the same address
	})
	f.agents[slot].Runs()
	f.agree() // the table is the same as before the kill, so agree may return early
	f.quiet(3 * time.Second)
	if n := f.joins.Load() - joins; n != int64(len(f.agents)-1) {
		t.Errorf("after a restart %d joins were seen, want one by each of the others", n)
	}
}

// TestPauseIsNoDeath: if a process is paused for 4 s, no agent reports it as crashed, because its kernel still answers.
func TestPauseIsNoDeath(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5, slow()...)
	f.agents[2].Signal(syscall.SIGSTOP)
	f.quiet(4 * time.Second)
	f.agents[2].Signal(syscall.SIGCONT)
	f.quiet(3 * time.Second)
	agree(t, f.agents...)
	for _, a := range f.agents {
		if s, err := a.Stats(t.Context()); err != nil || s.Counts.Crashed > 0 {
			t.Errorf("%s counts %d confirmations (%v)", a.ID, s.Counts.Crashed, err)
		}
	}
}

// BenchmarkKill measures how long it takes until all other agents know that an agent was killed with kill -9:
//
//	go test -run '^$' -bench Kill -benchtime 20x -timeout 30m ./cmd/roost
func BenchmarkKill(b *testing.B) {
	for _, nodes := range []int{10, 50} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := startFleet(b, nodes)
			var all, last []time.Duration
			for slot := 0; b.Loop(); slot = (slot + 1) % nodes {
				learned := f.end(slot, kill)
				all, last = append(all, learned...), append(last, learned[len(learned)-1])
				f.launch(slot)
				f.follow(slot)
				f.settle()
			}
			slices.Sort(all)
			slices.Sort(last)
			b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "ms-median")
			b.ReportMetric(float64(last[len(last)/2].Milliseconds()), "ms-all-median")
			b.ReportMetric(float64(last[len(last)-1].Milliseconds()), "ms-all-max")
			b.ReportMetric(0, "ns/op")
		})
	}
}
