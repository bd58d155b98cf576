//go:build !race

package affinity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roost-cluster/roost/internal/redistest"
)

// Random ways through the worlds, with a real Redis beside the store in memory: both answer
// alike, Redis notifies, and the invariants hold. Processes are killed between any two calls of the store,
// also between the run of a script and its answer, and so is Redis.
func TestRoomModelOnRedis(t *testing.T) {
	walks := 10
	switch {
	case *modelLong:
		walks = 100
	case testing.Short():
		walks = 2
	}
	r := newModelRedis(t, redistest.Start(t))
	modelWalks(t, r, walks)
	if *modelLong {
		r.restarts = true
		modelWalks(t, r, 20)
	}
	t.Log(r.calls, "calls")
	all := strings.Join(slices.Collect(maps.Keys(r.done)), "\n")
	for _, what := range []string{
		" ends", "starts again", "stands still", "the answer to the swap", "gives up its swap", "takes a late op",
		"loses its data", "goes back to its copy",
	} {
		if !testing.Short() && !strings.Contains(all, what) {
			t.Errorf("no walk has an action %q", what)
		}
	}
}

// modelWalks walks through all worlds, each time on another way.
func modelWalks(t *testing.T, r *modelRedis, walks int) {
	for i, c := range modelWorlds {
		if !t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for n := range walks {
					way, err := modelWalk(r, c.limits, c.hosted, rand.New(rand.NewPCG(uint64(i), uint64(n))))
					if err != nil {
						t.Fatalf("walk %d: %v, after:\n%s", n, err, way)
					}
				}
			})
		}) {
			return // a difference may take seconds to show
		}
	}
}

// modelWalk goes a random way through a world, lets it come to rest, and returns the way.
func modelWalk(r *modelRedis, l modelLimits, hosted string, rng *rand.Rand) (way string, err error) {
	r.begin()
	w := newModelWorld(l, "", r)
	defer w.abandon()
	for _, a := range modelPrepare(hosted) {
		a.do(w)
	}
	const most = 60
	for range most {
		all := w.actions()
		if len(all) == 0 || w.broken != "" || r.problem != nil {
			break
		}
		a := all[rng.IntN(len(all))]
		way += a.what + "\n"
		r.done[a.what]++
		a.do(w)
	}
	if w.broken == "" && r.problem == nil {
		way += "all comes to rest\n"
		w.broken = w.rest()
	}
	if w.broken != "" {
		return way, fmt.Errorf("broken: %s", w.broken)
	}
	return way, r.problem
}
