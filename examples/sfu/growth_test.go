//go:build linux

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// usage is what a process uses at a certain time.
type usage struct {
	at           time.Time
	participants int
	values       [len(resources)]float64
}

// resources are the names of what usage measures. Memory is printed, but cannot make the test fail, because the garbage
// collector decides when it shrinks.
var resources = [...]string{"goroutines", "descriptors", "sockets", "MB of memory"}

const judged = 3 // of the resources

// used measures what a process uses now.
func used(pid, goroutines, participants int) (u usage, err error) {
	u = usage{at: time.Now(), participants: participants}
	proc := fmt.Sprint("/proc/", pid)
	open, err := filepath.Glob(proc + "/fd/*")
	if err != nil || len(open) == 0 {
		return u, fmt.Errorf("no descriptors of process %d: %w", pid, err)
	}
	sockets := 0
	for _, name := range open {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	text, err := os.ReadFile(proc + "/statm")
	if err != nil {
		return u, err
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return u, err
	}
	const mega = 1 << 20
	u.values = [...]float64{float64(goroutines), float64(len(open)), float64(sockets), resident * float64(os.Getpagesize()) / mega}
	return u, nil
}

// growth contains measurements of a process over time.
type growth []usage

// trend is how a resource grows over time, without the part that is due to the number of participants.
type trend struct{ mean, perMinute, deviation float64 }

// trend fits a plane to the measurements with least squares: resource = a + b·minutes + c·participants.
func (g growth) trend(resource int) (t trend) {
	n := float64(len(g))
	var x, p, y []float64
	for _, u := range g {
		x, p, y = append(x, u.at.Sub(g[0].at).Minutes()), append(p, float64(u.participants)), append(y, u.values[resource])
	}
	t.mean = centre(y)
	centre(x)
	centre(p)
	xx, pp, xp, xy, py := product(x, x), product(p, p), product(x, p), product(x, y), product(p, y)
	free := xx // the variation of the minutes that the number of participants does not explain
	if pp > 0 {
		free -= xp * xp / pp
		xy -= xp * py / pp
	}
	if n <= 3 || free <= 0 {
		return t
	}
	t.perMinute = xy / free
	var rest float64
	for i := range y {
		r := y[i] - t.perMinute*x[i]
		if pp > 0 {
			r -= (py - t.perMinute*xp) / pp * p[i]
		}
		rest += r * r
	}
	t.deviation = math.Sqrt(rest / (n - 3) / free)
	return t
}

// centre subtracts the mean from all values, and returns the mean.
func centre(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for i := range values {
		values[i] -= mean
	}
	return mean
}

func product(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// grows reports whether a trend is statistically significant, and adds more than a tenth of the mean over the run.
func (g growth) grows(t trend) bool {
	const enough, sure, share, few = 10, 4, 0.1, 10
	if len(g) < enough {
		return false
	}
	added := t.perMinute * g[len(g)-1].at.Sub(g[0].at).Minutes()
	return t.perMinute > sure*t.deviation && added > share*t.mean+few
}

// TestGrowth: a leak is found even if the participants cause larger changes than the leak. Without a leak, none is
// reported.
func TestGrowth(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		for _, leak := range []float64{0, 0.5} { // a sample
			var g growth
			begin := time.Now()
			for i := range 90 {
				people := rng.IntN(150) + i/3 // the number of participants also grows a little over the run
				u := usage{at: begin.Add(time.Duration(i) * 20 * time.Second), participants: people}
				u.values[0] = 100 + 6*float64(people) + leak*float64(i)*3 + rng.NormFloat64()*8
				g = append(g, u)
			}
			got := g.trend(0)
			if want := leak * 9; math.Abs(got.perMinute-want) > 0.5 || g.grows(got) != (leak > 0) {
				t.Errorf("seed %d: the trend is %+v, and the leak %v a minute; grows: %v", seed, got, want, g.grows(got))
			}
		}
	}
}
