package tour

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

const (
	pollEvery = 50 * time.Millisecond
	timeout   = 2 * time.Minute // for one step
	callTime  = 5 * time.Second // for one call of the API
)

// poll looks until there is nothing to wait for. progress is shown to people; without
// progress, look is done. It returns the time since the given moment, and false if ctx
// ended first.
func (t *tour) poll(
	ctx context.Context,
	since time.Time,
	look func() (progress string, err error),
) (took time.Duration, done bool, err error) {
	defer t.out.waited()
	for {
		progress, err := look()
		took = time.Since(since)
		if ctx.Err() != nil { // what look saw was cut short
			return took, false, nil
		}
		if err != nil || progress == "" {
			return took, err == nil, err
		}
		t.out.wait(progress, took)
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-time.After(pollEvery):
	case <-ctx.Done():
	}
}

// agreed waits until every live node sees the right members and all hold the same table.
// verb says what some of the agents have done so far.
func (t *tour) agreed(ctx context.Context, since time.Time, verb string) (time.Duration, error) {
	nodes := t.live()
	behind, why, agreed := nodes[0], "no agent was asked", 0
	took, done, err := t.poll(ctx, since, func() (string, error) {
		seen := t.members(ctx, nodes)
		if ctx.Err() != nil {
			return "", nil
		}
		if behind, why, agreed = t.behind(nodes, seen); behind == nil {
			return "", nil
		}
		return fmt.Sprintf("%d of %d agents %s", agreed, len(nodes), verb), t.missing()
	})
	if err == nil && !done {
		err = context.Cause(ctx)
		if behind != nil {
			err = behind.problem("the agents do not agree: "+why, err)
		}
	}
	return took, err
}

var errTooLong = fmt.Errorf("gave up after %v", timeout)

// members asks all nodes for their members. Nil stands for no answer.
func (t *tour) members(ctx context.Context, nodes []*node) []*clusterhttp.Members {
	seen := make([]*clusterhttp.Members, len(nodes))
	_ = each(nodes, func(i int, n *node) error {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		m, err := n.client.Members(ctx)
		if err == nil {
			seen[i] = &m
		}
		return err
	})
	return seen
}

// behind returns a node that has not agreed, what it lacks, and how many lack nothing.
func (t *tour) behind(nodes []*node, seen []*clusterhttp.Members) (behind *node, why string, agreed int) {
	for i, n := range nodes {
		lacks := t.lacks(seen[i])
		if lacks == "" {
			agreed++
		}
		if lacks == "" && seen[0] != nil && seen[i].Digest != seen[0].Digest {
			lacks = fmt.Sprintf("has digest %v, %s has %v", seen[i].Digest, nodes[0].id, seen[0].Digest)
		}
		if lacks != "" && behind == nil {
			behind, why = n, fmt.Sprintf("%s %s", n.id, lacks)
		}
	}
	return behind, why, agreed
}

// lacks returns the problem of one node's view of the members, or "".
func (t *tour) lacks(m *clusterhttp.Members) string {
	if m == nil {
		return "does not answer"
	}
	states := statesOf(m)
	for _, n := range t.nodes {
		switch got, ok := states[n.id]; {
		case ok && n.state == lease.Left:
			return fmt.Sprintf("still sees %s", n.id)
		case !ok && n.state != lease.Left:
			return fmt.Sprintf("does not see %s", n.id)
		case ok && got != n.state:
			return fmt.Sprintf("sees %s as %s", n.id, got)
		}
	}
	if !m.Converged {
		return fmt.Sprintf("knows of %d members with another table", m.Diverged)
	}
	return ""
}

func statesOf(m *clusterhttp.Members) map[lease.NodeID]lease.State {
	states := make(map[lease.NodeID]lease.State, len(m.Members))
	for _, member := range m.Members {
		states[member.ID] = member.State
	}
	return states
}

func expiredIn(h clusterhttp.History) map[lease.NodeID]int {
	var times map[lease.NodeID]int
	for _, e := range h.Events {
		if e.Reason == string(lease.Expired) {
			if times == nil {
				times = make(map[lease.NodeID]int)
			}
			times[e.Member]++
		}
	}
	return times
}

// observe asks every live node everything. It repeats that for a while if the table of
// an agent changed in between: its answers are from two tables.
func (t *tour) observe(ctx context.Context) ([]answer, error) {
	const tries = 20
	nodes := t.live()
	answers := make([]answer, len(nodes))
	err := each(nodes, func(i int, n *node) (err error) {
		torn := true
		for try := 0; torn && try < tries && ctx.Err() == nil; try++ {
			answers[i], torn, err = n.ask(ctx, t.rooms, len(t.parties) > 0)
		}
		return err
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return answers, err
}

// ask returns everything that one node reports. It is torn if the node's table changed in
// between. No question pins a room, or repairs a pin.
func (n *node) ask(ctx context.Context, rooms []string, pinned bool) (a answer, torn bool, err error) {
	fail := func(what string, err error) (answer, bool, error) {
		return answer{}, false, n.problem(fmt.Sprintf("ask %s for %s", n.id, what), err)
	}
	members, err := n.client.Members(ctx)
	if err != nil {
		return fail("its members", err)
	}
	table, err := n.client.Partitions(ctx)
	if err != nil {
		return fail("its table", err)
	}
	owned, err := n.client.Owned(ctx)
	if err != nil {
		return fail("its partitions", err)
	}
	a = answer{
		node: n.id, members: statesOf(&members), digest: table.Digest,
		owners: table.Owners, owned: owned.Partitions,
	}
	for _, room := range rooms {
		placed, err := n.client.Place(ctx, room)
		if err != nil {
			return fail(room, err)
		}
		torn = torn || placed.Digest != table.Digest
		a.placed = append(a.placed, placed.Owner.ID)
	}
	if pinned {
		if a.pins, err = n.list(ctx, ""); err != nil {
			return answer{}, false, err
		}
	}
	history, err := n.client.History(ctx)
	if err != nil {
		return fail("its history", err)
	}
	a.expired = expiredIn(history)
	after, err := n.client.Members(ctx)
	if err != nil {
		return fail("its members", err)
	}
	return a, torn || after.Version != members.Version, nil
}
