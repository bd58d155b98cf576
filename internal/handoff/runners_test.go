package handoff

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const bound = 10 * time.Second

var start = time.Unix(0, 0)

// watcher contains what node 3 knows about the only partition. At first, the nodes 1 to 3 are live.
type watcher struct {
	Runners
	t     *testing.T
	now   time.Time
	keeps bool // node 3 runs a partition that the table assigns to another node
}

func watch(t *testing.T, owner lease.Handle) *watcher {
	t.Helper()
	w := &watcher{t: t, now: start}
	w.table(owner, 1, 2, 3)
	return w
}

func (w *watcher) table(owner lease.Handle, live ...lease.Handle) {
	w.members(live...)
	w.SetTable(w.now, []lease.Handle{owner}, bound, false)
}

func (w *watcher) members(live ...lease.Handle) { w.SetMembers(3, live) }

func (w *watcher) hears(from lease.Handle) {
	w.Heard(w.now, from, []placement.Partition{0}, func(placement.Partition) bool { return w.owners[0] == 3 })
}

// sees fails the test unless lookups return the wanted node; 0 = the owner in the table.
func (w *watcher) sees(what string, want lease.Handle) {
	w.t.Helper()
	w.Review(w.now, func(placement.Partition) bool { return w.keeps })
	var other map[placement.Partition]lease.Handle
	if want != 0 {
		other = map[placement.Partition]lease.Handle{0: want}
	}
	if got := w.Others(); !maps.Equal(got, other) {
		w.t.Errorf("%s: runs on %v, want %v", what, got, other)
	}
}

func TestRunners(t *testing.T) {
	w := watch(t, 1)
	w.sees("at rest", 0)
	w.table(2, 1, 2, 3)
	w.sees("the table names 2", 1)
	w.now = w.now.Add(bound / 2)
	w.table(1, 1, 2, 3)
	w.sees("and names 1 again", 0)
	w.table(2, 1, 2, 3)
	w.hears(2)
	w.sees("2 runs it", 0)
	w.hears(9)
	w.sees("news of an unknown node", 0)

	w.table(1, 1, 2, 3)
	w.table(1, 1, 3)
	w.sees("2 is gone", 0)
	w.table(2, 1, 2, 3)
	w.now = w.now.Add(bound)
	w.sees("the news was lost, and the bound is over", 0)

	w.hears(1)
	w.sees("the own table is late", 1)
	w.now = w.now.Add(newsTime)
	w.sees("or it was old news", 0)

	w.table(1, 1, 3)
	w.members(1, 2, 3)
	w.hears(2)
	w.sees("2 has joined and runs it, and the own table is late", 2)
	w.table(2, 1, 2, 3)
	w.sees("the table names 2, which said that it runs it", 0)

	w.table(3, 1, 2, 3)
	w.sees("the table names this node", 2)
	if !w.Begun(0) {
		t.Error("others expect node 2")
	}
	w.sees("this node runs it", 0)
	if w.Begun(0) {
		t.Error("others know already")
	}
}

// A node that joins does not know which nodes ran its partitions before. It learns this from the answers to its asks.
func TestRunnersOfJoiner(t *testing.T) {
	w := &watcher{t: t, now: start}
	w.members(1, 3)
	w.SetTable(start, []lease.Handle{3}, bound, true)
	w.sees("nothing is known", 0)
	w.hears(1)
	w.sees("1 runs it", 1)
	if !w.Begun(0) {
		t.Error("others expect the former owner")
	}
}

// asks fails the test unless this node asks a member whether it still runs the partition; 0 = none.
func (w *watcher) asks(what string, want lease.Handle) {
	w.t.Helper()
	var asked map[lease.Handle][]placement.Partition
	if want != 0 {
		asked = map[lease.Handle][]placement.Partition{want: {0}}
	}
	if got := w.Doubts(w.now); !maps.EqualFunc(got, asked, slices.Equal) {
		w.t.Errorf("%s: asks %v, want %v", what, got, want)
	}
}

// If no news arrives, a node asks the member that it considers the runner. The news may be lost, or there is no news
// because this member never ran the partition.
func TestRunnersAsked(t *testing.T) {
	w := watch(t, 2)
	w.table(1, 1, 3) // only this node considers 2 gone
	w.table(2, 1, 2, 3)
	w.sees("2 is back, and 1 may have begun", 1)
	w.asks("at once", 0)
	w.now = w.now.Add(newsTime)
	w.asks("no news", 1)
	w.asks("asked just now", 0)
	w.now = w.now.Add(newsTime)
	w.asks("no answer", 1)
	w.hears(1)
	w.now = w.now.Add(newsTime)
	w.asks("1 goes on", 0)
	w.now = w.now.Add(newsTime)
	w.asks("1 went on for twice the time", 1)
	w.Freed(2, []placement.Partition{0, 1})
	w.sees("2 does not run it yet", 1)
	w.Freed(1, []placement.Partition{0, 1})
	w.sees("1 does not run it", 0)
	w.asks("nothing is in doubt", 0)

	w.table(3, 1, 2, 3)
	w.now = w.now.Add(newsTime)
	w.asks("the table names this node, which asks all", 0)
	if w.Freed(2, []placement.Partition{0}); !w.Begun(0) {
		t.Error("others expect node 2")
	}
}

// A node does not consider itself the runner of a partition that it does not run.
func TestRunnersWithoutSelf(t *testing.T) {
	w := watch(t, 3)
	w.keeps = true
	w.table(1, 1, 2, 3)
	w.now = w.now.Add(newsTime)
	w.sees("this node runs it until the demand", 3)
	w.asks("which it knows", 0)
	w.keeps = false
	w.sees("the run has ended, and the news is lost", 0)
}
