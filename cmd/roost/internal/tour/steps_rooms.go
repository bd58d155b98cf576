package tour

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/lease"
)

// gather has people come into some of the rooms.
func (t *tour) gather(ctx context.Context) error {
	t.invite()
	store := "on a Redis that the agents share;\nhere, this process stands in for it"
	if t.o.Redis != "" {
		store = "on the Redis\nthat the agents share"
	}
	t.out.title(t.step, fmt.Sprintf("People come into %s rooms", count(len(t.parties))),
		fmt.Sprintf("Whoever is first has the room pinned: to its owner by the hash, as long as that\n"+
			"one has headroom. The pin is kept %s.", store))
	since := time.Now()
	visits, err := t.visit(ctx, t.parties)
	if err != nil {
		return err
	}
	asked := time.Since(since)
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	pins := t.seen[0].pins
	heard, fault := t.loaded(ctx, since, pins)
	if err := t.culprit(ctx.Err()); err != nil {
		return err
	}
	t.holdings(t.seen)
	t.out.fact("asked", fmt.Sprintf("%s times in %s", count(len(visits)*len(t.parties)), seconds(asked)), "each agent for each room, all agents at once")
	t.askedAgain()
	t.out.fact("by the hash", fmt.Sprintf("%s of %s rooms", count(t.byHash(pins)), count(len(t.parties))), "")
	t.out.fact("loads known after", seconds(heard), "a room of n people costs n·(n-1) streams")
	t.out.line("")
	t.conclude(samePins(t.parties, t.seen), oneHome(t.parties, visits, pins), oneHost(t.parties, visits, pins), fullLoads(fault))
	return nil
}

func (t *tour) byHash(pins map[string]pin) int {
	n := 0
	for room, p := range pins {
		if p.node == t.hashed(room) {
			n++
		}
	}
	return n
}

// askedAgain owns up to answers that were not taken at once.
func (t *tour) askedAgain() {
	if n := t.again.Swap(0); n > 0 {
		t.out.fact("asked again", fmt.Sprintf("%s times", count(int(n))), "by a slow store, an agent could only guess, and said so")
	}
}

// override has a room begin that is too big for the node that the hash gives it to.
func (t *tour) override(ctx context.Context) error {
	big := party{bigRoom, bigSize}
	owner := t.hashed(big.room)
	t.out.title(t.step, fmt.Sprintf("A %d-person room overrides the hash", big.size),
		fmt.Sprintf("%d people cost their node %d·%d = %s forwarded streams. By the hash they would\n"+
			"go to %s, which has too many already; so the room is pinned where there is\n"+
			"headroom, to the least loaded node, and everybody is sent there.",
			big.size, big.size, big.size-1, count(big.streams()), owner))
	asks, err := t.crowd(ctx, big, owner)
	if err != nil {
		return err
	}
	before := t.seen[0].pins
	t.parties = append(t.parties, big)
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	first, loads := asks[0].homes[0], streamsOf(before)
	ceiling := capacity * affinity.Config{}.WithDefaults().SoftCeiling / 100
	for _, n := range t.live() {
		beside := ""
		switch n.id {
		case owner:
			beside = fmt.Sprintf("owner by the hash; no headroom for %s more", count(big.streams()))
		case first.node:
			beside = "pinned here"
		}
		t.out.fact(string(n.id), fmt.Sprintf("%5s of %s streams", count(loads[n.id]), count(ceiling)), beside)
	}
	t.askedAgain()
	t.out.line("   %-17s %s", "why", first.reason)
	t.out.line("")
	pins := t.seen[0].pins
	last := asks[len(asks)-len(t.live()):] // one from each agent, when the room's own knew of it, too
	t.conclude(
		oneAnswer(asks), overridden(owner, asks), oneHost([]party{big}, last, pins),
		samePins(t.parties, t.seen), pinsStay(before, pins),
	)
	return nil
}

// crowd has the people of one room ask for it: the first one alone, at any agent
// but that of the owner by the hash, then the others, at all agents at once. It
// returns what each was told; the last of them each asked another agent.
func (t *tour) crowd(ctx context.Context, p party, owner lease.NodeID) ([]visit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTooLong)
	defer cancel()
	nodes := t.live()
	doors := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.id == owner })
	door := doors[t.rng.IntN(len(doors))]
	first, err := t.resolve(ctx, door, p)
	if err != nil {
		return nil, t.culprit(err)
	}
	asks := make([]visit, max(p.size, len(nodes)+1))
	errs := make([]error, len(asks))
	asks[0] = visit{door.id, []home{first}}
	var wait sync.WaitGroup
	for i := 1; i < len(asks); i++ {
		n := nodes[(len(asks)-i)%len(nodes)]
		wait.Go(func() {
			var h home
			h, errs[i] = t.resolve(ctx, n, p)
			asks[i] = visit{n.id, []home{h}}
		})
	}
	wait.Wait()
	return asks, t.culprit(errors.Join(errs...))
}

// restart ends a room on a node that drains, and has people come back to it.
func (t *tour) restart(ctx context.Context, drained *node) ([]check, error) {
	i := slices.IndexFunc(t.parties, func(p party) bool { return t.seen[0].pins[p.room].node == drained.id })
	if i < 0 {
		return nil, nil // it had none
	}
	p := t.parties[i]
	if err := drained.client.ReleaseRoom(ctx, p.room); err != nil {
		return nil, t.culprit(&agentError{drained, fmt.Errorf("tour: release %s: %w", p.room, err)})
	}
	// Where the store does not tell of changes, an agent may go by what it read a
	// moment ago.
	var c check
	for late := time.Now().Add(staleTime); ; pause(ctx) {
		visits, err := t.visit(ctx, []party{p})
		if err != nil {
			return nil, err
		}
		if c = restarted(p.room, drained.id, visits); c.held() || time.Now().After(late) {
			break
		}
	}
	for i, n := range t.live() {
		var err error
		if t.seen[i].pins, err = n.list(ctx, ""); err != nil {
			return nil, t.culprit(err)
		}
	}
	return []check{c}, nil
}
