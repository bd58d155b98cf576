package handover

import (
	"maps"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const bound = 10 * time.Second

var start = time.Unix(0, 0)

// watcher is what node 3 of the live nodes 1 to 3 knows, with one partition.
type watcher struct {
	Runners
	t   *testing.T
	now time.Time
}

func watch(t *testing.T, owner lease.Handle) *watcher {
	t.Helper()
	w := &watcher{t: t, now: start}
	w.table(owner, 1, 2, 3)
	return w
}

func (w *watcher) table(owner lease.Handle, live ...lease.Handle) {
	w.SetTable(w.now, 3, live, []lease.Handle{owner}, bound, false)
}

func (w *watcher) hears(from lease.Handle) {
	w.Heard(w.now, from, []placement.Partition{0}, func(placement.Partition) bool { return w.owners[0] == 3 })
}

// sees fails the test unless look-ups name a node; 0 = the owner of the table.
func (w *watcher) sees(what string, want lease.Handle) {
	w.t.Helper()
	w.Review(w.now)
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
	w.sees("news of a stranger", 0)

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

// A node that joins does not know who ran its partitions; the nodes that it asks answer it.
func TestRunnersOfJoiner(t *testing.T) {
	w := &watcher{t: t, now: start}
	w.SetTable(start, 3, []lease.Handle{1, 3}, []lease.Handle{3}, bound, true)
	w.sees("nothing is known", 0)
	w.hears(1)
	w.sees("1 runs it", 1)
	if !w.Begun(0) {
		t.Error("others expect the former owner")
	}
}
