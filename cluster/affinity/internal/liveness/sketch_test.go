package liveness

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/lease"
)

// sketched is a detector with its own clock.
type sketched struct {
	*Detector
	now time.Time
}

var sketchedOther = lease.Incarnation{Node: "b", Number: 1}

// sketchActions are the events that a detector can learn of.
var sketchActions = []func(*sketched){
	func(j *sketched) { j.now = j.now.Add(time.Millisecond) },
	func(j *sketched) { j.now = j.now.Add(1500 * time.Millisecond) },
	func(j *sketched) { j.now = j.now.Add(20 * time.Second) },
	func(j *sketched) { j.now = j.now.Add(40 * time.Second) },
	func(j *sketched) { // heartbeats arrive for a TTL
		for range 4 {
			j.now = j.now.Add(j.TTL / 4)
			j.HeartbeatArrived(j.now)
		}
	},
	func(j *sketched) { j.HeartbeatArrived(j.now) },
	func(j *sketched) { j.StoreAway(true, j.now) },
	func(j *sketched) { j.StoreAway(false, j.now) },
	func(j *sketched) { j.Restored(j.now) },
	func(j *sketched) { j.OthersRestore(true, false, j.now) },
	func(j *sketched) { j.OthersRestore(false, true, j.now) },
	func(j *sketched) { j.OthersRestore(false, false, j.now) },
	func(j *sketched) { j.Record(sketchedOther, true, j.now) },
	func(j *sketched) { j.Record(sketchedOther, false, j.now) },
	func(j *sketched) { j.Unknown(new(cluster.Snapshot), j.now) },
	func(j *sketched) { j.Back(j.now) },
}

// after returns a detector after the given actions.
func after(history []int) *sketched {
	j := &sketched{New(6 * time.Second), time.Unix(1e9, 0)}
	for _, i := range history {
		sketchActions[i](j)
	}
	return j
}

// says returns the results of all methods of the detector.
func (j *sketched) says() string {
	none := new(cluster.Snapshot)
	v, known := j.Verdict(none, sketchedOther, j.now)
	reclaiming := j.Reclaiming(j.now)
	ask, died := j.Unknown(none, j.now)
	self, others := j.Back(j.now)
	return fmt.Sprint(v, known, j.Gone(none, sketchedOther), reclaiming, ask, died, self, others)
}

// Two detectors with the same sketch must give the same results from then on, because the model of rooms explores only
// one of them.
func TestSketch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	history := func(most int) []int {
		all := make([]int, rng.IntN(most+1))
		for i := range all {
			all[i] = rng.IntN(len(sketchActions))
		}
		return all
	}
	first := make(map[string][]int)
	pairs := 0
	for range 60_000 {
		one := history(8)
		j := after(one)
		sketch := j.Sketch(j.now)
		another, ok := first[sketch]
		if !ok {
			first[sketch] = one
			continue
		}
		pairs++
		other := after(another)
		for _, i := range history(8) {
			sketchActions[i](j)
			sketchActions[i](other)
			if is, want := j.says(), other.says(); is != want {
				t.Fatalf("detectors with the same sketch %s: after action %d one says %s, the other %s", sketch, i, is, want)
			}
		}
	}
	if pairs < 10_000 {
		t.Errorf("%d pairs of detectors with the same sketch, want more", pairs)
	}
}
