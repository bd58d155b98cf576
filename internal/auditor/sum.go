package auditor

import (
	"fmt"
	"maps"
	"slices"
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
		if wrong := t.always.add(b, a.Partitions); wrong != "" {
			a.object("sum", "%s: %s", t.now.ID, wrong)
		}
		t.must.remove(b.Released)
		t.missed = append(t.missed, b.Released...)
	}
	if late := t.now.Late; late != nil {
		for _, p := range t.missed {
			if p < len(t.seldom.owned) && t.seldom.owned[p] && !slices.Contains(late.Released, p) {
				a.object("sum", "%s lost partition %d, and a watcher that reads seldom was not told", t.now.ID, p)
			}
		}
		t.missed = nil
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
