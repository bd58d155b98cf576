package tour

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// gather has people join some of the rooms.
func (t *tour) gather(ctx context.Context) error {
	t.invite()
	store := "on a Redis that the agents share;\nhere, this process stands in for it"
	if t.o.Redis != "" {
		store = "on the Redis\nthat the agents share"
	}
	t.out.title(t.step, fmt.Sprintf("People join %s rooms", count(len(t.parties))),
		fmt.Sprintf("The first join pins the room: to its owner by the hash, as long as that node\n"+
			"has headroom. The pin is kept %s.", store))
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
	heard, problem := t.loaded(ctx, since, pins)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t.holdings(t.seen)
	times := fmt.Sprintf("%s times in %s", count(len(visits)*len(t.parties)), seconds(asked))
	t.out.fact("asked", times, "each agent for each room, all agents at once")
	t.askedAgain()
	t.out.fact("by the hash", fmt.Sprintf("%s of %s rooms", count(t.byHash(pins)), count(len(t.parties))), "")
	t.out.fact("loads known after", seconds(heard), "a room of n people costs n·(n-1) streams")
	t.out.line("")
	t.conclude(samePins(t.parties, t.seen), oneHome(t.parties, visits, pins), oneHost(t.parties, visits, pins),
		check{"every agent has heard how many streams each node carries", problem})
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

// askedAgain shows how many questions were repeated.
func (t *tour) askedAgain() {
	if n := t.again.Swap(0); n > 0 {
		t.out.fact("asked again", fmt.Sprintf("%s times", count(int(n))), "the store was slow, and an agent said that it could only guess")
	}
}

// override starts a room that is too big for its owner by the hash.
func (t *tour) override(ctx context.Context) error {
	big := party{bigRoom, bigSize}
	owner := t.hashed(big.room)
	t.out.title(t.step, fmt.Sprintf("A %d-person room overrides the hash", big.size),
		fmt.Sprintf("%d people cost their node %d·%d = %s forwarded streams. By the hash they would\n"+
			"go to %s, which has too many already; so the room is pinned where there is\n"+
			"headroom, to the least loaded node, and all people are sent there.",
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
		remark := ""
		switch n.id {
		case owner:
			remark = fmt.Sprintf("owner by the hash; no headroom for %s more", count(big.streams()))
		case first.node:
			remark = "pinned here"
		}
		t.out.fact(string(n.id), fmt.Sprintf("%5s of %s streams", count(loads[n.id]), count(ceiling)), remark)
	}
	t.askedAgain()
	label := "why"
	for _, l := range term.Wrapped(first.reason, 58) { // to column 79
		t.out.line("   %-17s %s", label, l)
		label = ""
	}
	t.out.line("")
	pins := t.seen[0].pins
	last := asks[len(asks)-len(t.live()):] // one of each agent, when the host knew the room, too
	t.conclude(
		oneAnswer(asks), overridden(owner, asks), oneHost([]party{big}, last, pins),
		samePins(t.parties, t.seen), pinsStay(before, pins),
	)
	return nil
}

// crowd has the people of one room ask for it: the first one alone, at any agent except
// that of the owner by the hash, then the others, at all agents at once. It returns the
// answers; the last ones are each of another agent.
func (t *tour) crowd(ctx context.Context, p party, owner lease.NodeID) ([]visit, error) {
	nodes := t.live()
	doors := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.id == owner })
	door := doors[t.rng.IntN(len(doors))]
	first, err := t.resolve(ctx, door, p)
	if err != nil {
		return nil, err
	}
	var others []*node
	for i := max(p.size, len(nodes)+1) - 1; i > 0; i-- {
		others = append(others, nodes[i%len(nodes)])
	}
	asks := make([]visit, len(others)+1)
	asks[0] = visit{door.id, []home{first}}
	err = each(others, func(i int, n *node) error {
		h, err := t.resolve(ctx, n, p)
		asks[i+1] = visit{n.id, []home{h}}
		return err
	})
	return asks, err
}

// restart ends a room on a node that drains, and has its people join again.
func (t *tour) restart(ctx context.Context, drained *node) ([]check, error) {
	i := slices.IndexFunc(t.parties, func(p party) bool { return t.seen[0].pins[p.room].node == drained.id })
	if i < 0 {
		return nil, nil // it had none
	}
	p := t.parties[i]
	if err := persist(ctx, func(ctx context.Context) error { return drained.client.ReleaseRoom(ctx, p.room) }); err != nil {
		return nil, drained.problem("release "+p.room, err)
	}
	// Where the store does not notify of changes, an agent may use an older answer.
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
			return nil, err
		}
	}
	return []check{c}, nil
}
