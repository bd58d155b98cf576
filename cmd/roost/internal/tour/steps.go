package tour

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/lease"
)

func (t *tour) steps() []func(context.Context) error {
	return []func(context.Context) error{t.start, t.place, t.gather, t.override, t.join, t.crash, t.drain, t.leave}
}

func (t *tour) start(ctx context.Context) error {
	t.out.title(t.step, fmt.Sprintf("%d agents start", t.o.Nodes),
		"Each is a process of its own that knows no more than the address of the first.\n"+
			"Gossip does the rest: there is no database and no leader.")
	seed, err := t.first(ctx)
	if err != nil {
		return err
	}
	since := time.Now()
	for range t.o.Nodes - 1 {
		if _, err := t.spawn("--join", seed.Gossip); err != nil {
			return err
		}
	}
	for _, n := range t.nodes {
		if n != seed {
			if err := t.ready(ctx, n); err != nil {
				return err
			}
		}
		n.note = fmt.Sprintf("pid %d, %s", n.PID(), n.HTTP)
	}
	took, err := t.agreed(ctx, since, "agree")
	if err != nil {
		return err
	}
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	t.holdings(t.seen)
	t.out.fact("agreed after", seconds(took), "")
	t.out.line("")
	t.conclude(sameTable(t.seen), oneOwner(t.seen))
	return nil
}

// first starts the agent that the others join.
func (t *tour) first(ctx context.Context) (*node, error) {
	seed, err := t.spawn()
	if err != nil {
		return nil, err
	}
	if err := t.ready(ctx, seed); err != nil {
		return nil, err
	}
	if t.front != nil {
		t.front.aim(seed)
	}
	// Agents run without a store; the tour cannot.
	ctx, cancel := context.WithTimeoutCause(ctx, storeTime, fmt.Errorf("gave up after %v", storeTime))
	defer cancel()
	if _, err = seed.list(ctx, seed.id); err != nil && t.o.Redis != "" {
		err = fmt.Errorf("--redis: %w", err)
	}
	return seed, err
}

func (t *tour) place(ctx context.Context) error {
	t.out.title(t.step, fmt.Sprintf("%s rooms are placed", count(roomCount)),
		"A room's name hashes to a partition, a partition has one owner. Every agent\n"+
			"knows all owners, so it answers from memory, without a question to others.")
	for i := range roomCount {
		t.rooms = append(t.rooms, fmt.Sprintf("room-%03d-%04x", i, t.rng.Uint32()&0xffff))
	}
	since := time.Now()
	seen, err := t.observe(ctx)
	if err != nil {
		return err
	}
	took := time.Since(since)
	t.seen = seen
	t.holdings(seen)
	t.out.fact("asked", fmt.Sprintf("%s times in %s", count(len(seen)*roomCount), seconds(took)), "each agent for each room, over HTTP")
	t.out.line("")
	t.conclude(sameTable(seen), sameRooms(t.rooms, seen))
	return nil
}

func (t *tour) join(ctx context.Context) error {
	id, members := t.nextID(), len(t.live())+1
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s joins", id),
		why: "It takes a share of partitions from each of the others, and nothing else moves.\n" +
			"Rooms that are pinned stay even then: the people in them notice nothing.",
		what: fmt.Sprintf("%s joined", id),
		act: func(ctx context.Context) error {
			n, err := t.spawn("--join", t.nodes[0].Gossip)
			if err != nil {
				return err
			}
			n.note = "joined"
			return t.ready(ctx, n)
		},
		oneIn:    members,
		usual:    "from the start of its process",
		progress: "agree",
		checks: func(o outcome) []check {
			return []check{
				onlyTo(id, o.moves), fairShare(o.moves, t.settings.Partitions, members), pinsStay(o.before, o.after),
			}
		},
	})
}

func (t *tour) crash(ctx context.Context) error {
	n, members := t.pick(), len(t.live())
	ttl := whole(t.settings.LeaseTTL)
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s is killed", n.id),
		why: fmt.Sprintf("kill -9 %d: it sends no leave message. Its lease is good for %s, but the nodes that\n"+
			"hold a stream to it see that end, and confirm that the process has ended. The\n"+
			"others share its rooms, and the new owner of the partition of a pinned room\n"+
			"finds a new home for it.", n.PID(), ttl),
		what: fmt.Sprintf("%s was killed", n.id),
		act: func(context.Context) error {
			n.state, n.note = lease.Left, "killed"
			return n.Kill()
		},
		oneIn:    members,
		usual:    fmt.Sprintf("expected: less than a second, or %s without confirmation", ttl),
		progress: "know that the process has ended",
		gone:     n.id,
		checks: func(o outcome) []check {
			return []check{
				onlyFrom(n.id, o.moves, t.seen[0].owners), spread(o.moves, t.owners()),
				fairShare(o.moves, t.settings.Partitions, members), onlyPinsOf(n.id, o.before, o.after),
			}
		},
	})
}

func (t *tour) drain(ctx context.Context) error {
	n, members := t.pick(), len(t.live())
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s drains", n.id),
		why: "A planned exit needs no lease to expire: the node announces that it gives up its\n" +
			"partitions, and the others have them at once. Pinned rooms stay until they end,\n" +
			"and start again elsewhere.",
		what: fmt.Sprintf("%s drained", n.id),
		act: func(ctx context.Context) error {
			n.state, n.note = lease.Draining, "drained"
			t.drained = n
			_, err := n.client.Drain(ctx)
			return n.problem(fmt.Sprintf("drain %s", n.id), err)
		},
		oneIn:    members,
		usual:    "from the request",
		progress: "agree",
		checks: func(o outcome) []check {
			return []check{
				onlyFrom(n.id, o.moves, t.seen[0].owners), spread(o.moves, t.owners()),
				fairShare(o.moves, t.settings.Partitions, members),
				idles(n.id, lease.Draining, t.seen), noneExpired(n.id, o.earlier, t.seen), pinsStay(o.before, o.after),
			}
		},
		after: func(ctx context.Context) ([]check, error) { return t.restart(ctx, n) },
	})
}

func (t *tour) leave(ctx context.Context) error {
	n := t.drained
	var ended check
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s leaves", n.id),
		why: "It owns nothing any more, so no partition moves. Its process sends a leave message, to\n" +
			"the store as well, and ends; the rooms that it still had are pinned again.",
		what: fmt.Sprintf("%s left", n.id),
		act: func(ctx context.Context) error {
			n.state, n.note = lease.Left, "left"
			calling, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			_, err := n.client.Leave(calling)
			ended = n.ended(ctx, err)
			return ctx.Err()
		},
		usual:    "from the request, the end of its process included",
		progress: "agree",
		gone:     n.id,
		checks: func(o outcome) []check {
			return []check{nothingMoved(o.moves), ended, noneExpired(n.id, o.earlier, t.seen), onlyPinsOf(n.id, o.before, o.after)}
		},
	})
}
