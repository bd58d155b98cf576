package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// In a race, the racers run in turns, in laps of about a millisecond, and the race reports the median lap of each
// racer. So if something else uses the machine, all racers are affected equally.

// lap makes one measurement and returns the time per operation in ns.
type lap func() float64

// race reports the medians of laps, both absolute and as multiples of the first racer's median.
func race(b *testing.B, racers []string, laps []lap) {
	b.Helper()
	least, budget := 7, 4*time.Second
	if testing.Short() {
		least, budget = 1, 0
	}
	ns := make([][]float64, len(laps))
	for round, start := 0, time.Now(); round < least || round < 501 && time.Since(start) < budget; round++ {
		for k := range laps {
			at := (round + k) % len(laps)
			ns[at] = append(ns[at], laps[at]())
		}
	}
	for at, name := range racers {
		b.Run(name, func(b *testing.B) {
			for b.Loop() { // the framework requires this loop
			}
			b.ReportMetric(median(ns[at]), "ns/op")
			b.ReportMetric(median(ns[at])/median(ns[0]), "x")
		})
	}
}

// lookups runs a race of lookups on the given number of cores.
func lookups(b *testing.B, cores int, racers []racer, look func(r racer) func() func(key int)) {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var names []string
	var laps []lap
	for _, r := range racers {
		open := look(r)
		if open == nil {
			continue
		}
		var each []func(key int)
		for range cores {
			each = append(each, open())
		}
		first := 0
		run := func(count int) time.Duration {
			start := time.Now()
			var all sync.WaitGroup
			for _, one := range each {
				all.Go(func() {
					for i := range count {
						one((first + i) % len(raceKeys))
					}
				})
			}
			all.Wait()
			first += count
			return time.Since(start)
		}
		run(len(raceKeys)) // fills the caches of the libraries
		count := 1
		for run(count) < time.Millisecond/2 {
			count *= 2
		}
		names = append(names, r.name)
		laps = append(laps, func() float64 { return float64(run(count).Nanoseconds()) / float64(count*cores) })
	}
	race(b, names, laps)
}

// place, owns and owners return the lookups of a racer, or nil if the racer has no such lookup.
func place(r racer) func() func(int) {
	return opened(r.place, func(owner string) bool { return owner != "" })
}
func owns(r racer) func() func(int) { return opened(r.owns, func(bool) bool { return true }) }
func owners(r racer) func() func(int) {
	return opened(r.owners, func(number int) bool { return number == 3 })
}

func opened[T any](open func() func(int) T, right func(T) bool) func() func(int) {
	if open == nil {
		return nil
	}
	return func() func(int) {
		look := open()
		return func(key int) {
			if !right(look(key)) {
				panic("no answer")
			}
		}
	}
}

// BenchmarkRace compares lookups of 1,024 keys on one core and on two cores, also while nodes join and leave. It also
// compares what a program does when a node joins.
func BenchmarkRace(b *testing.B) {
	kinds := []struct {
		name string
		look func(r racer) func() func(int)
	}{{"place", place}, {"is-owner", owns}, {"owners-3", owners}}
	sizes := []int{10, 100, 1000}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, nodes := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			racers := racersOf(b, nodes)
			changing := slices.DeleteFunc(slices.Clone(racers), func(r racer) bool { return r.change == nil })
			b.Run("join", func(b *testing.B) { joins(b, changing) })
			for _, cores := range []int{1, 2} {
				for _, kind := range kinds {
					b.Run(fmt.Sprintf("%s/cores=%d", kind.name, cores), func(b *testing.B) { lookups(b, cores, racers, kind.look) })
					b.Run(fmt.Sprintf("%s-while-changing/cores=%d", kind.name, cores), func(b *testing.B) { changes(b, cores, changing, kind.look) })
				}
			}
		})
	}
}

// joins runs a race of the change that a join causes.
func joins(b *testing.B, racers []racer) {
	b.Helper()
	var names []string
	var laps []lap
	for _, r := range racers {
		names = append(names, r.name)
		laps = append(laps, func() float64 {
			start := time.Now()
			r.change(1)
			took := time.Since(start)
			r.change(0)
			return float64(took.Nanoseconds())
		})
	}
	race(b, names, laps)
}

// changes runs a race of lookups in a single goroutine while a node joins or leaves 100 times a second. On a single
// core, the changes use time that lookups would need.
func changes(b *testing.B, cores int, racers []racer, look func(r racer) func() func(int)) {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	var names []string
	var laps []lap
	for _, r := range racers {
		if open := look(r); open != nil {
			names = append(names, r.name)
			laps = append(laps, func() float64 { return whileChanging(r, open(), 10*time.Millisecond) })
		}
	}
	race(b, names, laps)
}

// whileChanging returns the time per lookup of one goroutine while another goroutine makes two changes.
func whileChanging(r racer, look func(key int), every time.Duration) float64 {
	var changed sync.WaitGroup
	done := make(chan struct{})
	changed.Go(func() {
		defer close(done)
		ticks := time.NewTicker(every)
		defer ticks.Stop()
		for _, more := range []int{1, 0} {
			<-ticks.C
			r.change(more)
		}
	})
	start, count := time.Now(), 0
	for open := true; open; {
		for range 16 {
			look(count % len(raceKeys))
			count++
		}
		select {
		case <-done:
			open = false
		default:
		}
	}
	took := time.Since(start)
	changed.Wait()
	return float64(took.Nanoseconds()) / float64(count)
}
