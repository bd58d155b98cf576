package sim

import (
	"slices"
	"time"
)

// joiner tries seeds as the joiner of an agent does: until one answers, or until the
// grace is over, and from then on whenever a seed or a lost member is no member.
type joiner struct {
	p     *Process
	seeds []string
	grace time.Duration
	fresh bool      // this is the first join of the process: members count as seeds that answered
	until time.Time // when the grace of the present attempt ends; zero = joined
	round int       // attempts of earlier rounds are void
}

const (
	joinsAtOnce = 8
	retryJoin   = 250 * time.Millisecond
)

func (j *joiner) start(bootstrap bool) {
	j.fresh = true
	if bootstrap {
		j.end(0, false)
	} else {
		j.begin()
	}
	j.heal()
}

// again starts another join, after a fence.
func (j *joiner) again() {
	j.fresh = false
	j.begin()
}

func (j *joiner) begin() {
	j.round++
	j.until = j.p.c.now.Add(j.grace)
	j.try(j.round)
}

// try is one attempt.
func (j *joiner) try(round int) {
	if round != j.round || j.until.IsZero() {
		return
	}
	contacts := j.p.kernel.Contacts(j.p.Now())
	targets, member := j.targets(contacts.Members, contacts.Expired)
	if member {
		j.end(contacts.Fences, true)
		return
	}
	if len(targets) == 0 {
		j.end(contacts.Fences, false) // every seed is this node itself
		return
	}
	j.exchange(round, contacts.Fences, targets)
}

// exchange tries the targets, a few at a time, until one answers.
func (j *joiner) exchange(round int, fences uint64, targets []string) {
	if len(targets) == 0 || j.p.c.now.After(j.until) {
		j.retry(round, fences)
		return
	}
	group := targets[:min(len(targets), joinsAtOnce)]
	failed := 0
	for _, addr := range group {
		j.p.c.exchange(j.p, addr, func(err error) {
			if round != j.round || j.until.IsZero() {
				return
			}
			if err == nil {
				j.end(fences, true)
			} else if failed++; failed == len(group) {
				j.exchange(round, fences, targets[len(group):])
			}
		})
	}
}

// retry waits before the next attempt, or gives up when the grace is over.
func (j *joiner) retry(round int, fences uint64) {
	wait := retryJoin + time.Duration(j.p.rng.Int64N(int64(retryJoin)))
	if j.p.c.now.Add(wait).After(j.until) {
		j.end(fences, false)
		return
	}
	j.p.c.after(j.p, wait, func() { j.try(round) })
}

func (j *joiner) end(fences uint64, answered bool) {
	j.until = time.Time{}
	j.p.kernel.Joined(j.p.Now(), fences, answered)
}

// heal periodically tries the addresses that should be members and are not.
func (j *joiner) heal() {
	every := j.p.c.opts.RejoinInterval
	wait := every*4/5 + time.Duration(j.p.rng.Int64N(int64(every*2/5)))
	j.p.c.after(j.p, wait, func() {
		if j.until.IsZero() {
			contacts := j.p.kernel.Contacts(j.p.Now())
			targets, _ := j.targets(contacts.Members, contacts.Expired)
			for _, addr := range targets[:min(len(targets), joinsAtOnce)] {
				j.p.c.exchange(j.p, addr, func(error) {})
			}
		}
		j.heal()
	})
}

// targets returns the addresses to try, seeds first, and whether a seed is a member
// already.
func (j *joiner) targets(members, lost []string) (addrs []string, member bool) {
	if !j.fresh && !j.until.IsZero() { // after a fence, members have to answer, too
		lost, members = append(lost, members...), nil
	}
	seeds := slices.Clone(j.seeds)
	for _, list := range [][]string{seeds, lost} {
		j.p.rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
	for _, addr := range append(seeds, lost...) {
		switch {
		case slices.Contains(members, addr):
			member = true
		case addr != j.p.Addr && !slices.Contains(addrs, addr):
			addrs = append(addrs, addr)
		}
	}
	return addrs, member
}
