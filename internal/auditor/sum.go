package auditor

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// set is a set of partitions.
type set []bool

func setOf(partitions []int, n int) set {
	s := make(set, n)
	for _, p := range partitions {
		s[p] = true
	}
	return s
}

// strange returns a partition that does not exist.
func (a *Auditor) strange(partitions ...[]int) (p int, ok bool) {
	for _, p := range slices.Concat(partitions...) {
		if p < 0 || p >= a.Partitions {
			return p, true
		}
	}
	return 0, false
}

// common returns the partitions that are in both sets.
func (s set) common(o set) (all []int) {
	for p := range min(len(s), len(o)) {
		if s[p] && o[p] {
			all = append(all, p)
		}
	}
	return all
}

// keep removes all partitions that are not in o.
func (s set) keep(o set) {
	for p := range s {
		s[p] = s[p] && p < len(o) && o[p]
	}
}

// remove removes partitions.
func (s set) remove(partitions []int) {
	for _, p := range partitions {
		if p < len(s) {
			s[p] = false
		}
	}
}

// ledger adds up batches.
type ledger struct {
	owned   set
	members map[string]bool
}

// add adds a batch, and returns what contradicts the earlier batches.
func (l *ledger) add(b *Batch, partitions int) (wrong string) {
	if b.Full || l.members == nil {
		l.owned, l.members = make(set, partitions), make(map[string]bool)
	}
	for _, p := range b.Released {
		if !l.owned[p] {
			wrong = fmt.Sprintf("partition %d was released, and was not owned", p)
		}
		l.owned[p] = false
	}
	for _, p := range b.Acquired {
		if l.owned[p] {
			wrong = fmt.Sprintf("partition %d was acquired twice", p)
		}
		l.owned[p] = true
	}
	for _, id := range b.Left {
		if !l.members[id] {
			wrong = fmt.Sprintf("%s left, and was no member", id)
		}
		delete(l.members, id)
	}
	for _, id := range b.Joined {
		if l.members[id] {
			wrong = fmt.Sprintf("%s joined twice", id)
		}
		l.members[id] = true
	}
	return wrong
}

func (l *ledger) ids() []string { return slices.Sorted(maps.Keys(l.members)) }

// checkSums adds up what watchers of a process were told.
func (a *Auditor) checkSums(t *track) {
	for i := range t.now.News {
		b := &t.now.News[i]
		if p, ok := a.strange(b.Released, b.Acquired); ok {
			a.object("sum", "%s tells its application of partition %d of %d", t.now.ID, p, a.Partitions)
			continue
		}
		if wrong := t.always.add(b, a.Partitions); wrong != "" {
			a.object("sum", "%s: %s", t.now.ID, wrong)
		}
		t.must.remove(b.Released)
		for _, p := range b.Released {
			t.missed[p] = true
		}
	}
	if late := t.now.Late; late != nil {
		if p, ok := a.strange(late.Released, late.Acquired); ok {
			a.object("sum", "%s tells a watcher that reads seldom of partition %d of %d", t.now.ID, p, a.Partitions)
			return
		}
		for _, p := range t.missed.common(t.seldom.owned) {
			if !slices.Contains(late.Released, p) {
				a.object("sum", "%s lost partition %d, and a watcher that reads seldom was not told", t.now.ID, p)
			}
		}
		clear(t.missed)
		if wrong := t.seldom.add(late, a.Partitions); wrong != "" {
			a.object("sum", "%s, for a watcher that reads seldom: %s", t.now.ID, wrong)
		}
		if !slices.Equal(t.seldom.owned, t.always.owned) {
			a.object("sum", "%s told two watchers different sums", t.now.ID)
		}
	}
}

// checkOwned compares what a process owns with what its watchers know.
func (a *Auditor) checkOwned(t *track) {
	if len(t.answer.Owned) > 0 && !slices.Equal(t.mine, t.always.owned) {
		a.object("sum", "%s owns %v, and its batches add up to %v", t.now.ID, t.answer.Owned, t.always.owned.common(t.always.owned))
	}
	if kept := t.must.common(t.mine); len(kept) > 0 {
		a.object("fence", "%s lost its lease, and still owns %v without having released it", t.now.ID, kept)
	}
}

const tells = time.Second + tolerance // until a node that owns nothing anymore has told its application

// checkReleased checks that a node that owns nothing anymore tells its application soon. The answer may change earlier.
func (a *Auditor) checkReleased(t *track) {
	untold := t.always.owned.common(t.always.owned)
	switch {
	case len(untold) == 0 || len(t.answer.Owned) > 0:
		t.untold = 0
	case t.untold == 0:
		t.untold = a.at
	case a.at-t.untold > tells:
		a.object("sum", "%s has lost %v for %v, and has not told its application", t.now.ID, untold, a.at-t.untold)
	}
}
