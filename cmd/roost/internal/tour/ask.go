package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
	"golang.org/x/sync/errgroup"
)

const (
	loadTime     = 15 * time.Second // for loads to be known everywhere
	failoverTime = 30 * time.Second // for the rooms of a node that is gone
	persistTime  = 30 * time.Second // for an answer from the store
	listLimit    = 10_000
)

// view is what an agent reports about the cluster.
type view struct {
	by      lease.NodeID
	members map[lease.NodeID]lease.State
	digest  placement.Digest
	owners  map[placement.Partition]lease.NodeID // according to its table
	owned   []placement.Partition                // the partitions that it reports as its own
	placed  map[string]lease.NodeID              // owners of rooms according to the hash; nil before there are rooms
	pins    map[string]pin                       // of rooms; nil before any room is pinned
	expired map[lease.NodeID]int                 // expired leases of each node, according to its history
}

// pin is the node that a room is pinned to, according to an agent.
type pin struct {
	node  lease.NodeID
	epoch uint64
	size  int // people
}

func (p pin) String() string { return fmt.Sprintf("%s (epoch %d, %d people)", p.node, p.epoch, p.size) }

// answer is where an agent sends people who want to join a room.
type answer struct {
	by lease.NodeID
	clusterhttp.RoomAssignment
	again bool // an earlier answer was an error or degraded
}

// each calls f for all nodes concurrently, waits for all calls, and returns the first error.
func each(nodes []*node, f func(i int, n *node) error) error {
	var all errgroup.Group
	for i, n := range nodes {
		all.Go(func() error { return f(i, n) })
	}
	return all.Wait()
}

// observe asks every live node for its view. If an agent's state changes between two of the questions, the
// answers can be based on two different tables, so observe asks that agent again, up to 20 times.
func (t *tour) observe(ctx context.Context) ([]view, error) {
	const tries = 20
	nodes := t.live()
	views := make([]view, len(nodes))
	err := each(nodes, func(i int, n *node) (err error) {
		torn := true
		for try := 0; torn && try < tries && ctx.Err() == nil; try++ {
			views[i], torn, err = n.view(ctx, t.rooms, len(t.parties) > 0)
		}
		return err
	})
	return views, cmp.Or(err, context.Cause(ctx))
}

// view asks an agent for its members, table, owned partitions, history, rooms and pins. torn reports whether the
// agent's state changed between the first and the last answer. The requests do not change any pins.
func (n *node) view(ctx context.Context, rooms []string, pinned bool) (v view, torn bool, err error) {
	members, err := n.client.Members(ctx)
	table, err2 := n.client.Partitions(ctx)
	owned, err3 := n.client.Owned(ctx)
	history, err4 := n.client.History(ctx)
	v = view{
		by: n.id, digest: table.Digest, owned: owned.Partitions, members: make(map[lease.NodeID]lease.State),
		owners: make(map[placement.Partition]lease.NodeID), expired: make(map[lease.NodeID]int),
	}
	for _, m := range members.Members {
		v.members[m.ID] = m.State
	}
	for p, owner := range table.Owners {
		v.owners[placement.Partition(p)] = owner
	}
	for _, e := range history.Events {
		if e.Reason == string(lease.Expired) {
			v.expired[e.Member]++
		}
	}
	if err := n.problem("ask "+string(n.id)+" for its view", cmp.Or(err, err2, err3, err4)); err != nil {
		return v, false, err
	}
	if len(rooms) > 0 {
		v.placed = make(map[string]lease.NodeID)
	}
	for _, room := range rooms {
		placed, err := n.client.Place(ctx, room)
		if err != nil {
			return v, false, n.problem(fmt.Sprintf("ask %s for %s", n.id, room), err)
		}
		v.placed[room] = placed.Owner.ID
	}
	if pinned {
		if v.pins, err = n.list(ctx, ""); err != nil {
			return v, false, err
		}
	}
	after, err := n.client.Members(ctx)
	return v, after.Version != members.Version, n.problem("ask "+string(n.id)+" for its members", err)
}

// list asks an agent for all pinned rooms, or only for the rooms on node of. Listing does not change any
// pins.
func (n *node) list(ctx context.Context, of lease.NodeID) (map[string]pin, error) {
	var list clusterhttp.Rooms
	err := persist(ctx, func(ctx context.Context) (err error) {
		list, err = n.client.Rooms(ctx, string(of), listLimit)
		return err
	})
	pins := make(map[string]pin, len(list.Rooms))
	for _, r := range list.Rooms {
		pins[r.Room] = pin{r.Node, r.Epoch, r.Size}
	}
	return pins, n.problem(fmt.Sprintf("ask %s for the rooms that are pinned", n.id), err)
}

// visit asks every live agent for every room, as if people had connected to each of them. It asks the agents
// concurrently. When visit returns, the node that a room is pinned to hosts the room.
func (t *tour) visit(ctx context.Context, parties []party) ([]answer, error) {
	nodes := t.live()
	answers := make([]answer, len(nodes)*len(parties))
	err := each(nodes, func(i int, n *node) (err error) {
		for k, p := range parties {
			if answers[i*len(parties)+k], err = t.resolve(ctx, n, p); err != nil {
				return err
			}
		}
		return nil
	})
	return answers, err
}

// resolve asks an agent where people of a room should go. If the answer is degraded, for example because the
// store is slow, resolve asks again.
func (t *tour) resolve(ctx context.Context, n *node, p party) (answer, error) {
	a, tries := answer{by: n.id}, 0
	err := persist(ctx, func(ctx context.Context) (err error) {
		tries++
		a.RoomAssignment, err = n.client.ResolveRoom(ctx, p.room, affinity.Demand{Size: p.size})
		if err == nil && a.Source == affinity.Degraded {
			err = &clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeStore, Message: "it can only guess: " + a.Reason}
		}
		return err
	})
	a.again = tries > 1
	t.again.Add(int64(tries - 1))
	return a, n.problem(fmt.Sprintf("ask %s for %s", n.id, p.room), err)
}

// persist repeats a call while it fails with a temporary error, for at most persistTime. After that, it
// returns the last temporary error.
func persist(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, persistTime, fmt.Errorf("gave up after %v", persistTime))
	defer cancel()
	for last := errors.New("no answer"); ; pause(ctx) {
		err := call(ctx)
		if p, ok := errors.AsType[*clusterhttp.Problem](err); ok && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusConflict) {
			last = err
		} else if err == nil || ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// loaded waits until every agent knows the load of the rooms on every node. If that takes longer than
// loadTime, problem names the first agent that is wrong.
func (t *tour) loaded(ctx context.Context, since time.Time, pins map[string]pin) (took time.Duration, problem string, err error) {
	problem = "no agent was asked"
	took, err = t.pollFor(ctx, loadTime, since, func(ctx context.Context) (string, error) {
		var f problems
		nodes := t.live()
		answers, failed := make([]clusterhttp.Members, len(nodes)), make([]error, len(nodes))
		_ = each(nodes, func(i int, n *node) error {
			calling, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			answers[i], failed[i] = n.client.Members(calling)
			return nil
		})
		for i, n := range nodes {
			if failed[i] != nil {
				f.add("%s does not answer: %v", n.id, failed[i])
				continue
			}
			heard := make(map[lease.NodeID]int)
			for _, member := range answers[i].Members {
				heard[member.ID] = int(member.Load)
			}
			differ(&f, "streams of", "by its rooms", streamsOf(pins), says(n.id), heard)
		}
		if ctx.Err() != nil { // the agents did not answer because ctx has ended
			return "", nil
		}
		if problem = f.result("").problem; problem != "" {
			return "the nodes report their loads", nil
		}
		return "", nil
	})
	return took, problem, err
}

// failedOver waits until no room is pinned to the node that is gone.
func (t *tour) failedOver(ctx context.Context, since time.Time, gone lease.NodeID) (time.Duration, error) {
	return t.pollFor(ctx, failoverTime, since, func(ctx context.Context) (string, error) {
		left, err := t.live()[0].list(ctx, gone)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d pinned rooms still wait on %s", len(left), gone), nil
	})
}

// release ends the rooms that are pinned in the user's own Redis, so that the demo leaves no keys there. If a
// room cannot be released, its keys expire.
func (t *tour) release(ctx context.Context) {
	live := slices.DeleteFunc(t.live(), func(n *node) bool { return n.Ended() })
	if t.o.Redis == "" || len(t.parties) == 0 || len(live) == 0 {
		return
	}
	ctx, cancel := grace(ctx)
	defer cancel()
	pins, err := live[0].list(ctx, "")
	if err != nil {
		return
	}
	_ = each(live, func(_ int, n *node) error {
		for room, p := range pins {
			if p.node == n.id && ctx.Err() == nil { // only the host of a room can release it
				_ = n.client.ReleaseRoom(ctx, room)
			}
		}
		return nil
	})
}
