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

const (
	storeTime = 10 * time.Second // for the first answer of the store
	staleTime = 3 * time.Second  // for an agent to read a changed pin, which it does after 1 s
)

func (t *tour) steps() []func(context.Context) error {
	return []func(context.Context) error{t.start, t.place, t.gather, t.override, t.join, t.crash, t.drain, t.leave}
}

func (t *tour) start(ctx context.Context) error {
	t.out.title(t.step, fmt.Sprintf("%d agents start", t.o.Nodes),
		"Each is a process that knows only the address of the first agent. They find each\n"+
			"other by gossip and agree on who owns what, without a database or a leader.")
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
	for _, n := range t.nodes[1:] {
		if err := t.ready(ctx, n); err != nil {
			return err
		}
	}
	for _, n := range t.nodes {
		n.note = fmt.Sprintf("pid %d, %s", n.PID(), n.HTTP)
	}
	took, err := t.agreed(ctx, since, "agree")
	if err != nil {
		return err
	}
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	t.holdings(t.seen[0])
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
	// Agents can run without a store, but the tour cannot, so stop early if the store does not answer.
	ctx, cancel := context.WithTimeoutCause(ctx, storeTime, fmt.Errorf("gave up after %v", storeTime))
	defer cancel()
	if _, err = seed.list(ctx, seed.id); err != nil && t.o.Redis != "" {
		err = fmt.Errorf("--redis: %w", err)
	}
	return seed, err
}

func (t *tour) place(ctx context.Context) (err error) {
	t.out.title(t.step, fmt.Sprintf("%s rooms are placed", count(roomCount)),
		"The name of a room hashes to a partition, and each partition has one owner.\n"+
			"Every agent knows all owners, so it answers from memory, without asking others.")
	for i := range roomCount {
		t.rooms = append(t.rooms, fmt.Sprintf("room-%03d-%04x", i, t.rng.Uint32()&0xffff))
	}
	since := time.Now()
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	took := time.Since(since)
	t.holdings(t.seen[0])
	t.out.fact("asked", fmt.Sprintf("%s times in %s", count(len(t.seen)*roomCount), seconds(took)), "each agent for each room, over HTTP")
	t.out.line("")
	t.conclude(sameTable(t.seen), sameRooms(t.rooms, t.seen))
	return nil
}

// gather simulates people who join some of the rooms.
func (t *tour) gather(ctx context.Context) error {
	t.invite()
	store := "Pins need a shared\nRedis, which this process imitates. Partitions do not depend on Redis."
	if t.o.Redis != "" {
		store = "Pins need the shared\nRedis. Partitions do not depend on Redis."
	}
	t.out.title(t.step, fmt.Sprintf("People join %s rooms", count(len(t.parties))),
		fmt.Sprintf("A room in use should stay on its node, even when owners change. So the first\n"+
			"join pins it, to the owner by hash if that node has headroom. %s", store))
	since := time.Now()
	answers, err := t.visit(ctx, t.parties)
	if err != nil {
		return err
	}
	asked := time.Since(since)
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	pins := t.seen[0].pins
	heard, problem, err := t.loaded(ctx, since, pins)
	if err != nil {
		return err
	}
	byHash := 0
	for room, p := range pins {
		if p.node == t.hashed(room) {
			byHash++
		}
	}
	t.holdings(t.seen[0])
	times := fmt.Sprintf("%s times in %s", count(len(answers)), seconds(asked))
	t.out.fact("asked", times, "each agent for each room, all agents at once")
	t.askedAgain()
	t.out.fact("by hash", fmt.Sprintf("%s of %s rooms", count(byHash), count(len(t.parties))), "")
	t.out.fact("loads known after", seconds(heard), "a room of n people costs n·(n-1) streams")
	t.out.line("")
	t.conclude(samePins(t.parties, t.seen), oneHome(pins, answers), oneHost(pins, answers),
		check{"every agent has heard how many streams each node carries", problem})
	return nil
}

// override simulates people who join a room that is too big for the owner that the hash chose.
func (t *tour) override(ctx context.Context) error {
	big := party{bigRoom, bigSize}
	owner := t.hashed(big.room)
	t.out.title(t.step, fmt.Sprintf("A %d-person room overrides the hash", big.size),
		fmt.Sprintf("%d people cost their node %d·%d = %s forwarded streams. The owner by hash,\n"+
			"%s, cannot carry that many. So the room is pinned to the least loaded node,\n"+
			"and everyone is sent there.",
			big.size, big.size, big.size-1, count(big.streams()), owner))
	answers, err := t.crowd(ctx, big, owner)
	if err != nil {
		return err
	}
	before := t.seen[0].pins
	t.parties = append(t.parties, big)
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	first, loads := answers[0], streamsOf(before)
	ceiling := capacity * affinity.Config{}.WithDefaults().SoftCeiling / 100
	for _, n := range t.live() {
		remark := ""
		switch n.id {
		case owner:
			remark = fmt.Sprintf("owner by hash; no headroom for %s more", count(big.streams()))
		case first.Node.ID:
			remark = "pinned here"
		}
		t.out.fact(string(n.id), fmt.Sprintf("%5s of %s streams", count(loads[n.id]), count(ceiling)), remark)
	}
	t.askedAgain()
	label := "why"
	for _, l := range term.Wrapped(first.Reason, 58) { // up to column 79
		t.out.line("   %-17s %s", label, l)
		label = ""
	}
	t.out.line("")
	pins := t.seen[0].pins
	last := answers[len(answers)-len(t.live()):] // one answer from each agent, all after the host learned of the room
	t.conclude(
		oneAnswer(answers), overridden(owner, answers), oneHost(map[string]pin{big.room: pins[big.room]}, last),
		samePins(t.parties, t.seen), pinsStay(before, pins),
	)
	return nil
}

// crowd simulates the people of a room. The first person asks alone, at any agent except the owner that the
// hash chose. After that, the others ask concurrently, distributed over all agents. crowd returns the
// answers. The last answers come from all agents, one from each.
func (t *tour) crowd(ctx context.Context, p party, owner lease.NodeID) ([]answer, error) {
	nodes := t.live()
	doors := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n.id == owner })
	first, err := t.resolve(ctx, doors[t.rng.IntN(len(doors))], p)
	if err != nil {
		return nil, err
	}
	var others []*node
	for i := max(p.size, len(nodes)+1) - 1; i > 0; i-- {
		others = append(others, nodes[i%len(nodes)])
	}
	answers := make([]answer, len(others))
	err = each(others, func(i int, n *node) (err error) {
		answers[i], err = t.resolve(ctx, n, p)
		return err
	})
	return slices.Insert(answers, 0, first), err
}

func (t *tour) join(ctx context.Context) error {
	id, members := t.nextID(), len(t.live())+1
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s joins", id),
		why: "It takes a share of the partitions from each other node. Nothing else moves,\n" +
			"and pinned rooms stay where they are, so the people in them notice nothing.",
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
				onlyTo(id, o.moves), fairShare(o.moves, t.settings.Partitions, members), pinsStay(o.was.pins, o.is.pins),
			}
		},
	})
}

func (t *tour) crash(ctx context.Context) error {
	n, members := t.pick(), len(t.live())
	ttl := whole(t.settings.LeaseTTL)
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s is killed", n.id),
		why: fmt.Sprintf("kill -9 %d: no leave message, and its lease lasts for another %s. But other nodes watch\n"+
			"it over TCP connections, see them close, and confirm the crash. They take over its\n"+
			"partitions, and the new owner of each partition moves the rooms that were pinned there.", n.PID(), ttl),
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
				onlyFrom(n.id, o), spread(o.moves, t.owners()),
				fairShare(o.moves, t.settings.Partitions, members), onlyPinsOf(n.id, o.was.pins, o.is.pins),
			}
		},
	})
}

func (t *tour) drain(ctx context.Context) error {
	n, members := t.pick(), len(t.live())
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s drains", n.id),
		why: "A planned exit waits for no lease: the node announces that it gives up its partitions,\n" +
			"and other nodes own them at once. Its pinned rooms stay until they end. When they\n" +
			"begin again, they begin on other nodes.",
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
				onlyFrom(n.id, o), spread(o.moves, t.owners()),
				fairShare(o.moves, t.settings.Partitions, members),
				idles(n.id, t.seen), noneExpired(n.id, o.earlier, t.seen), pinsStay(o.was.pins, o.is.pins),
			}
		},
		after: func(ctx context.Context) ([]check, error) { return t.restart(ctx, n) },
	})
}

// restart ends a room on a draining node and makes its people join again.
func (t *tour) restart(ctx context.Context, drained *node) ([]check, error) {
	i := slices.IndexFunc(t.parties, func(p party) bool { return t.seen[0].pins[p.room].node == drained.id })
	if i < 0 {
		return nil, nil // the node had no rooms
	}
	p := t.parties[i]
	if err := persist(ctx, func(ctx context.Context) error { return drained.client.ReleaseRoom(ctx, p.room) }); err != nil {
		return nil, drained.problem("release "+p.room, err)
	}
	// If the store does not notify agents of changes, an agent can use an outdated pin for up to a second.
	var c check
	for late := time.Now().Add(staleTime); ; pause(ctx) {
		answers, err := t.visit(ctx, []party{p})
		if err != nil {
			return nil, err
		}
		if c = restarted(drained.id, answers); c.held() || time.Now().After(late) {
			break
		}
	}
	return []check{c}, each(t.live(), func(i int, n *node) (err error) {
		t.seen[i].pins, err = n.list(ctx, "")
		return err
	})
}

func (t *tour) leave(ctx context.Context) error {
	n := t.drained
	var ended check
	return t.apply(ctx, change{
		title: fmt.Sprintf("%s leaves", n.id),
		why: "It owns nothing any more, so no partition moves. It sends a leave message and exits.\n" +
			"Rooms that are still pinned to it get new nodes.",
		what: fmt.Sprintf("%s left", n.id),
		act: func(ctx context.Context) error {
			n.state, n.note = lease.Left, "left"
			calling, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			_, err := n.client.Leave(calling)
			ended = n.exits(ctx, err)
			return ctx.Err()
		},
		usual:    "from the request, including the end of its process",
		progress: "agree",
		gone:     n.id,
		checks: func(o outcome) []check {
			return []check{nothingMoved(o.moves), ended, noneExpired(n.id, o.earlier, t.seen), onlyPinsOf(n.id, o.was.pins, o.is.pins)}
		},
	})
}

// change is a step that changes the cluster.
type change struct {
	title, why string
	what       string // for the summary
	act        func(context.Context) error
	progress   string       // what the agents have to do before the tour continues
	oneIn      int          // one in this many partitions should move; 0 to skip
	usual      string       // a remark on the time until all agents agreed
	gone       lease.NodeID // the node whose pinned rooms should move; "" for none
	checks     func(outcome) []check
	after      func(context.Context) ([]check, error) // may be nil
}

// outcome is the effect of a change.
type outcome struct {
	earlier        []view // the views of all agents before the change
	was, is        view   // the views of the first agent, before and after the change
	moves          []move // the partitions that moved
	took, repinned time.Duration
}

// apply makes a change, waits until all agents agree, shows the effect, and checks it.
func (t *tour) apply(ctx context.Context, c change) (err error) {
	t.out.title(t.step, c.title, c.why)
	since := time.Now()
	if err := c.act(ctx); err != nil {
		return err
	}
	o := outcome{earlier: t.seen, was: t.seen[0]}
	if o.took, err = t.agreed(ctx, since, c.progress); err != nil {
		return err
	}
	if c.gone != "" {
		if o.repinned, err = t.failedOver(ctx, since, c.gone); err != nil {
			return err
		}
	}
	if t.seen, err = t.observe(ctx); err != nil {
		return err
	}
	o.is = t.seen[0]
	o.moves = diff(o.was.owners, o.is.owners)
	answers, err := t.visit(ctx, t.parties) // not earlier, because asking for a room repairs its pin
	if err != nil {
		return err
	}
	t.holdings(o.was)
	r := t.facts(c, o)
	checks := slices.Concat([]check{sameTable(t.seen), oneOwner(t.seen), sameRooms(t.rooms, t.seen)}, c.checks(o), []check{
		samePins(t.parties, t.seen), noOrphans(t.seen), oneHome(o.is.pins, answers), oneHost(o.is.pins, answers),
	})
	if c.after != nil {
		last, err := c.after(ctx)
		if err != nil {
			return err
		}
		checks = append(checks, last...)
	}
	r.checks, r.held = len(checks), t.conclude(checks...)
	t.rows = append(t.rows, r)
	return nil
}
