package chaos

import (
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/placement"
)

var radius = flag.Int("radius", 0, "through how many schedules of ten nodes TestRadius takes each planted bug; 0 = through none")

// faulty is the one of ten nodes that has the planted bug.
const faulty = "n05"

// harm is what a fleet of ten nodes suffers during a schedule. One of the nodes has a bug.
type harm struct {
	lookups, wrong int           // of the partitions of the other nine, at these nine
	double         time.Duration // sum over partitions: two nodes owned it, at least one of them without the bug
	longest        time.Duration // for which lookups of a partition were wrong at the same node, or two nodes owned it

	wrongSince map[at]time.Duration
	bothSince  map[placement.Partition]time.Duration
}

// at is a partition, as one node sees it.
type at struct {
	node string
	p    placement.Partition
}

// suffer adds what the fleet suffers now, and has suffered since the last look.
func (h *harm) suffer(w *world) {
	owners := make(map[placement.Partition][]string)
	owns := make(map[at]bool)
	for _, p := range w.running {
		if p.Stopped() || !p.Live() {
			continue
		}
		for _, partition := range p.Owned() {
			owners[partition] = append(owners[partition], p.ID)
			owns[at{p.ID, partition}] = true
		}
	}
	since := make(map[placement.Partition]time.Duration)
	for partition, all := range owners {
		if len(all) < 2 {
			continue
		}
		h.double += look
		since[partition] = w.Elapsed()
		if began, ok := h.bothSince[partition]; ok {
			since[partition] = began
		}
		h.longest = max(h.longest, w.Elapsed()-since[partition])
	}
	h.bothSince = since
	wrong := make(map[at]time.Duration)
	for _, p := range w.running {
		if p.ID == faulty || p.Stopped() || !p.Live() {
			continue
		}
		v := p.View()
		for partition := range placement.Partition(partitions) {
			answer, ok := answerOf(&v, partition)
			if answer == faulty {
				continue
			}
			h.lookups++
			if here := (at{answer, partition}); ok && owns[here] {
				continue
			}
			h.wrong++
			key := at{p.ID, partition}
			wrong[key] = w.Elapsed()
			if began, ok := h.wrongSince[key]; ok {
				wrong[key] = began
			}
			h.longest = max(h.longest, w.Elapsed()-wrong[key])
		}
	}
	h.wrongSince = wrong
}

// answerOf returns the node that a lookup names.
func answerOf(v *node.View, p placement.Partition) (id string, ok bool) {
	if runner := v.Runners[p]; runner != "" {
		return string(runner), true
	}
	if v.Table == nil {
		return "", false
	}
	owner, ok := v.Table.Owner(p)
	return string(owner), ok
}

// ten returns the first schedules that have ten nodes.
func ten(n int) (all []schedule) {
	for seed := uint64(0); len(all) < n; seed++ {
		if s := draw(seed); s.hosts == 10 {
			all = append(all, s)
		}
	}
	return all
}

// Without a bug, a fleet of ten nodes suffers little from the faults of a schedule. TestRadius runs this test in a
// program with planted bugs.
func TestHarm(t *testing.T) {
	for _, s := range ten(max(1, *radius)) {
		w := newWorld(s)
		w.harm = new(harm)
		w.play()
		if w.failure != nil && w.failure.invariant == "panic" {
			t.Fatal(w.failure)
		}
		h := w.harm
		fmt.Printf("harm %d %d %d %d %d\n", h.lookups, h.wrong, h.double, h.longest, w.Elapsed())
		if *radius == 0 && (h.lookups == 0 || h.wrong == 0 || h.wrong > h.lookups/50) {
			t.Errorf("of %d lookups %d are wrong", h.lookups, h.wrong)
		}
	}
}

// The table of docs/dev/testing.md: what the other nine nodes of a fleet suffer if one node has a bug. Both columns
// compare the same schedules without the bug.
func TestRadius(t *testing.T) {
	if *radius == 0 {
		return
	}
	program := plant(t)
	names := []string{""}
	for _, b := range bugs {
		names = append(names, b.name)
	}
	results := make([]total, len(names))
	var wait sync.WaitGroup
	slots := make(chan struct{}, *jobs)
	for i, name := range names {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, _, err := runPlanted(t, program, name, "TestHarm", "-radius", strconv.Itoa(*radius))
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
			results[i] = totalOf(t, out)
		})
	}
	wait.Wait()
	if t.Failed() {
		return
	}
	base := results[0]
	wrong, _ := more(base.wrong, make([]float64, len(base.wrong)))
	double, _ := more(base.double, make([]float64, len(base.double)))
	t.Logf("without a bug: %.2f %% wrong, %.0f partition-seconds an hour, longest %v", wrong, double, base.longest.Round(time.Second))
	for i, name := range names[1:] {
		t.Logf("| %s | %s |", name, results[i+1].above(base))
	}
}

// total is the harm of several schedules, one by one.
type total struct {
	wrong, double []float64 // percent of the lookups; partition-seconds an hour
	longest       time.Duration
}

var harmLine = regexp.MustCompile(`(?m)^harm (\d+) (\d+) (\d+) (\d+) (\d+)$`)

func totalOf(t *testing.T, out string) (r total) {
	for _, m := range harmLine.FindAllStringSubmatch(out, -1) {
		var n [5]float64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseFloat(m[i+1], 64); err != nil {
				t.Error(err)
			}
		}
		r.wrong = append(r.wrong, 100*n[1]/n[0])
		r.double = append(r.double, n[2]/n[4]*3600)
		r.longest = max(r.longest, time.Duration(n[3]))
	}
	return r
}

// above describes by how much the harm is above that of the same schedules without the bug.
func (r total) above(base total) string {
	wrong, worst := more(r.wrong, base.wrong)
	double, _ := more(r.double, base.double)
	return fmt.Sprintf("%+.2f | %+.2f | %+.0f | %s", wrong, worst, double, r.longest.Round(time.Second))
}

// more returns the mean and the greatest difference.
func more(with, without []float64) (mean, most float64) {
	for i := range with {
		d := with[i] - without[i]
		mean += d / float64(len(with))
		most = max(most, d)
	}
	return mean, most
}
