package events_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// drawStep draws a state that often differs only slightly from the previous state.
func drawStep(t *rapid.T, prev step) step {
	s := prev
	for range rapid.IntRange(0, 3).Draw(t, "changes") { // 0: a refresh
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0: // another owner for one partition
			if strings.Trim(s.owners, ".") != "" {
				at := rapid.IntRange(0, len(s.owners)-1).Draw(t, "partition")
				s.owners = s.owners[:at] + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner") + s.owners[at+1:]
			}
		case 1, 2:
			s.owners = rapid.StringMatching(`[abc]{5}|[abc]{5}|[abc]{1,7}|\.{5}|`).Draw(t, "owners")
		case 3, 4:
			s.members = ""
			for _, id := range "abcd" {
				if inc := rapid.IntRange(0, 3).Draw(t, "incarnation"); inc > 0 {
					s.members += fmt.Sprintf("%c%d ", id, inc)
				}
			}
		case 5:
			s.fenced = !s.fenced
		}
	}
	return s
}

func drawSteps(t *rapid.T) []step {
	var prev step
	steps := make([]step, rapid.IntRange(1, 20).Draw(t, "states"))
	for i := range steps {
		steps[i] = drawStep(t, prev)
		prev = steps[i]
	}
	return steps
}

// holds reports whether self owns p in step s. It is kept simple, because the test trusts it.
func (s step) holds(p int) bool { return !s.fenced && p < len(s.owners) && s.owners[p] == 'a' }

func (s step) owner(p int) lease.NodeID {
	if p >= len(s.owners) || s.owners[p] == '.' {
		return ""
	}
	return lease.NodeID(s.owners[p])
}

// referenceDiff does what Diff does for the change between two steps. A negative from means no earlier state.
// referenceDiff walks through all states in between, but Diff sees only the first and the last.
func referenceDiff(steps []step, from, to int) events.Batch {
	var b events.Batch
	b.Version, b.Full = uint64(to+1), from < 0
	began := func(p, i int) uint64 {
		for i > 0 && steps[i-1].holds(p) {
			i--
		}
		return uint64(i + 1)
	}
	var old step
	if from >= 0 {
		old = steps[from]
	}
	for p := range 8 {
		always := from >= 0
		for i := max(from, 0); i <= to; i++ {
			always = always && steps[i].holds(p)
		}
		if old.holds(p) && from >= 0 && !always {
			b.Released = append(b.Released, events.Ownership{placement.Partition(p), began(p, from)})
		}
		if steps[to].holds(p) && !always {
			b.Acquired = append(b.Acquired, events.Ownership{placement.Partition(p), began(p, to)})
		}
		if from >= 0 && old.owner(p) != steps[to].owner(p) {
			b.Moved = append(b.Moved, events.Move{Partition: placement.Partition(p), From: old.owner(p), To: steps[to].owner(p)})
		}
	}
	was, is := map[string]bool{}, map[string]bool{}
	for m := range strings.FieldsSeq(old.members) {
		was[m] = true
	}
	for m := range strings.FieldsSeq(steps[to].members) {
		is[m] = true
	}
	for _, m := range slices.Sorted(maps.Keys(was)) {
		if !is[m] {
			b.Left = append(b.Left, lease.NodeID(m[:1]))
		}
	}
	for _, m := range slices.Sorted(maps.Keys(is)) {
		if !was[m] {
			b.Joined = append(b.Joined, lease.NodeID(m[:1]))
		}
	}
	return b
}

func TestDiffAgainstReference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		states := chain(t, steps...)
		to := rapid.IntRange(0, len(states)-1).Draw(rt, "to")
		from := rapid.IntRange(-1, to).Draw(rt, "from")
		var old *events.State
		if from >= 0 {
			old = states[from]
		}
		got := events.Diff(old, states[to])
		want := referenceDiff(steps, from, to)
		want.Digest = states[to].Digest()
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("from %d to %d (-reference +got):\n%s", from, to, diff)
		}
	})
}

// replica is what a watcher knows if it receives only batches.
type replica struct {
	version uint64
	held    map[placement.Partition]uint64
	owners  map[placement.Partition]lease.NodeID
	members map[lease.NodeID]bool
}

// apply replays b in the order of its fields, and fails the test if b contradicts the replica. A first batch does not
// contain the owners, so apply takes them from the state that the batch led to.
func (r *replica) apply(t interface{ Fatalf(string, ...any) }, b events.Batch, states []*events.State) {
	first := r.held == nil
	if first {
		*r = replica{
			held:    map[placement.Partition]uint64{},
			owners:  ownersOf(states[b.Version-1]),
			members: map[lease.NodeID]bool{},
		}
	}
	switch {
	case b.Version <= r.version:
		t.Fatalf("version %d after %d", b.Version, r.version)
	case b.Full != first:
		t.Fatalf("batch %d: full is %v", b.Version, b.Full)
	case !b.News():
		t.Fatalf("batch %d is empty", b.Version)
	case first && len(b.Released)+len(b.Moved)+len(b.Left) > 0:
		t.Fatalf("first batch has removals: %s", text(b))
	}
	r.version = b.Version
	for _, o := range b.Released {
		if since, ok := r.held[o.Partition]; !ok || since != o.Since {
			t.Fatalf("batch %d releases %v; held: %v", b.Version, o, r.held)
		}
		delete(r.held, o.Partition)
	}
	for _, o := range b.Acquired {
		if _, ok := r.held[o.Partition]; ok {
			t.Fatalf("batch %d acquires %v twice", b.Version, o)
		}
		r.held[o.Partition] = o.Since
	}
	for _, m := range b.Moved {
		if r.owners[m.Partition] != m.From || m.From == m.To {
			t.Fatalf("batch %d moves %v; owner is %q", b.Version, m, r.owners[m.Partition])
		}
		if r.owners[m.Partition] = m.To; m.To == "" {
			delete(r.owners, m.Partition)
		}
	}
	for _, id := range b.Left {
		if !r.members[id] {
			t.Fatalf("batch %d: %s left, but was not live", b.Version, id)
		}
		delete(r.members, id)
	}
	for _, id := range b.Joined {
		if r.members[id] {
			t.Fatalf("batch %d: %s joined twice", b.Version, id)
		}
		r.members[id] = true
	}
}

func ownersOf(s *events.State) map[placement.Partition]lease.NodeID {
	owners := map[placement.Partition]lease.NodeID{}
	for p := range placement.Partition(s.Table.Partitions()) {
		if id, ok := s.Table.Owner(p); ok {
			owners[p] = id
		}
	}
	return owners
}

// check compares the replica with the state that it must have reached.
func (r *replica) check(t interface{ Fatalf(string, ...any) }, s *events.State) {
	members := map[lease.NodeID]bool{}
	for _, m := range s.Members {
		members[m.Node] = true
	}
	held := slices.Sorted(maps.Keys(r.held))
	if !slices.Equal(held, s.Owned()) || !maps.Equal(r.owners, ownersOf(s)) || !maps.Equal(r.members, members) {
		t.Fatalf("replica %+v\nis not at version %d: owned %v, owners %v, members %v",
			*r, s.Version, s.Owned(), ownersOf(s), members)
	}
}

// noDeadline hides the test's deadline from rapid, because a synctest bubble must not read it.
type noDeadline struct{ *testing.T }

// TestSubscribeReplay replays the batches of a channel that is read at random times. Whenever the channel is empty, the
// replica must be up to date, before and after the feed is closed.
func TestSubscribeReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(rt *rapid.T) {
			states := chain(t, drawSteps(rt)...)
			var feed events.Feed
			defer feed.Close()
			batches := events.Subscribe(t.Context(), &feed)
			var r replica
			for _, s := range states {
				feed.Publish(s)
				if rapid.Bool().Draw(rt, "settle") {
					synctest.Wait() // otherwise the subscription could miss s
				}
				if !rapid.Bool().Draw(rt, "read") {
					continue
				}
				synctest.Wait()
				select {
				case b := <-batches:
					r.apply(rt, b, states)
				default: // nothing has changed since the last batch
				}
				r.check(rt, s)
			}
			feed.Close()
			synctest.Wait()
			for b := range batches {
				r.apply(rt, b, states)
			}
			r.check(rt, states[len(states)-1])
		})
	})
}
