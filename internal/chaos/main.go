package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	var o options
	flag.Uint64Var(&o.from, "from", 0, "the first seed")
	flag.Uint64Var(&o.seeds, "seeds", 1000, "how many seeds to run")
	one := flag.Int64("seed", -1, "run this seed alone")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU(), "how many run side by side")
	flag.BoolVar(&o.first, "first", false, "stop at the first failure")
	flag.BoolVar(&o.verbose, "v", false, "print each schedule and the log lines of all nodes")
	flag.BoolVar(&o.traces, "traces", false,
		"print for each seed a hash of all messages and one of all decisions, to compare two versions of the core")
	flag.BoolVar(&o.shrink, "shrink", false, "print the same for failures alone, with as few faults as still fail")
	flag.Parse()
	if *one >= 0 {
		o.from, o.seeds = uint64(*one), 1
	}
	if !o.run(os.Stdout) {
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	from, seeds            uint64
	jobs                   int
	first, verbose, shrink bool
	traces                 bool
}

// run runs all seeds, and reports whether the invariants held in each.
func (o options) run(out io.Writer) (ok bool) {
	r := report{options: o, out: out, begin: time.Now()}
	r.shown = r.begin
	stop := make(chan struct{})
	for w := range o.worlds(stop) {
		if r.add(w); r.failed == 1 && o.first {
			close(stop)
			break
		}
	}
	r.line()
	return r.failed == 0
}

// worlds runs the seeds on several CPUs, and yields what came out.
func (o options) worlds(stop <-chan struct{}) <-chan *world {
	seeds, worlds := make(chan uint64), make(chan *world)
	go func() {
		defer close(seeds)
		for seed := o.from; seed < o.from+o.seeds; seed++ {
			select {
			case seeds <- seed:
			case <-stop:
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range o.jobs {
		workers.Go(func() {
			for seed := range seeds {
				select {
				case worlds <- run(draw(seed)):
				case <-stop:
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(worlds)
	}()
	return worlds
}

// report counts and prints results.
type report struct {
	options
	out          io.Writer
	begin, shown time.Time
	ran, failed  int
	virtual      time.Duration
}

// lineEvery is how often a line says how far the run is.
const lineEvery = 15 * time.Second

func (r *report) add(w *world) {
	r.ran++
	r.virtual += w.Elapsed()
	if w.failure != nil {
		r.failed++
	}
	if w.failure != nil || r.verbose {
		r.print(w)
	}
	if r.traces {
		messages, decisions := w.traces()
		_, _ = fmt.Fprintf(r.out, "seed %d: messages %016x, decisions %016x\n", w.s.seed, messages, decisions)
	}
	if time.Since(r.shown) > lineEvery {
		r.shown = time.Now()
		r.line()
	}
}

func (r *report) line() {
	_, _ = fmt.Fprintf(r.out, "%d of %d seeds, %.1f virtual hours in %v: %d failed\n",
		r.ran, r.seeds, r.virtual.Hours(), time.Since(r.begin).Round(100*time.Millisecond), r.failed)
}

func (r *report) print(w *world) {
	if w.failure != nil && r.shrink {
		w = shrink(w)
	}
	if r.verbose || r.shrink {
		_, _ = fmt.Fprintf(r.out, "seed %d: %v\n%s\n", w.s.seed, w.s, strings.Join(w.story, "\n"))
	}
	if w.failure != nil {
		_, _ = fmt.Fprintf(r.out, "seed %d failed: %v\n  again: go run ./internal/chaos -seed %d -shrink\n", w.s.seed, w.failure, w.s.seed)
	}
}

// shrink leaves out steps for as long as the same invariant fails.
func shrink(w *world) *world {
	for chunk := len(w.s.steps) / 2; chunk > 0; chunk /= 2 {
		for at := 0; at+chunk <= len(w.s.steps); {
			less := w.s
			less.steps = slices.Delete(slices.Clone(w.s.steps), at, at+chunk)
			if x := run(less); x.failure != nil && x.failure.invariant == w.failure.invariant {
				w = x
			} else {
				at += chunk
			}
		}
	}
	return w
}
