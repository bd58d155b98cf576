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
)

// Sizes that leave one node without headroom for the big room, and every other node with
// some, even if an agent counts rooms twice that it has just claimed: as reserved, and in
// the load that their node reports.
const (
	capacity     = 5000 // streams that a node can carry
	roomsPerNode = 40   // that people are in
	mostRooms    = 300
	leastSize    = 2
	mostSize     = 6
	fullRooms    = 3 // that fill one node
	fullSize     = 25
	bigRoom      = "all-hands"
	bigSize      = 50
)

const (
	loadTime     = 15 * time.Second // for loads to be known everywhere
	failoverTime = 30 * time.Second // for the rooms of a node that is gone
	storeTime    = 10 * time.Second // for the first answer from the store
	persistTime  = 30 * time.Second // for a later one
	staleTime    = 3 * time.Second  // for an agent to read a pin again, which it does after one
	listLimit    = 10_000
)

// party is a room with people in it.
type party struct {
	room string
	size int
}

func (p party) streams() int { return int(affinity.FullMesh(p.size)) }

// pin is where a room lives, as an agent lists it.
type pin struct {
	node  lease.NodeID
	epoch uint64
	size  int
}

// visit is the answers of one agent to people who want to join rooms.
type visit struct {
	agent lease.NodeID
	homes []home // by party
}

// home is where an agent sends people who want to join a room.
type home struct {
	node   lease.NodeID
	source affinity.Source
	reason string
	hosted bool // the agent itself serves the room
	again  bool // the first answer was not accepted
}

// invite chooses the rooms that people are in. Some larger rooms fill the node to which
// the hash gives the big room.
func (t *tour) invite() {
	owner := t.hashed(bigRoom)
	some := min(mostRooms, roomsPerNode*t.o.Nodes)
	for _, room := range t.rooms[:some] {
		t.parties = append(t.parties, party{room, leastSize + t.rng.IntN(mostSize-leastSize+1)})
	}
	for _, room := range t.rooms[some:] {
		if len(t.parties) == some+fullRooms {
			return
		}
		if t.hashed(room) == owner {
			t.parties = append(t.parties, party{room, fullSize})
		}
	}
}

// hashed returns the owner of a room by the hash.
func (t *tour) hashed(room string) lease.NodeID {
	table := t.seen[0].owners
	return table[placement.Of(room, len(table))]
}

// visit asks every live agent for every room, all agents at once, as people do who
// connect anywhere. After that the agent of its own node hosts each room.
func (t *tour) visit(ctx context.Context, parties []party) ([]visit, error) {
	nodes := t.live()
	visits := make([]visit, len(nodes))
	err := each(nodes, func(i int, n *node) error {
		visits[i].agent = n.id
		for _, p := range parties {
			h, err := t.resolve(ctx, n, p)
			if err != nil {
				return err
			}
			visits[i].homes = append(visits[i].homes, h)
		}
		return nil
	})
	return visits, err
}

// resolve asks one agent for a room. It repeats the question after a degraded answer, as
// of an agent with a slow store.
func (t *tour) resolve(ctx context.Context, n *node, p party) (home, error) {
	var a clusterhttp.RoomAssignment
	tries := 0
	err := persist(ctx, func(ctx context.Context) (err error) {
		tries++
		a, err = n.client.ResolveRoom(ctx, p.room, affinity.Demand{Size: p.size})
		if err == nil && a.Source == affinity.Degraded {
			err = &clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeStore, Message: "it can only guess: " + a.Reason}
		}
		return err
	})
	t.again.Add(int64(tries - 1))
	return home{a.Node.ID, a.Source, a.Reason, a.Hosted, tries > 1}, n.problem(fmt.Sprintf("ask %s for %s", n.id, p.room), err)
}

// temporary reports whether a later call may succeed.
func temporary(err error) bool {
	p, ok := errors.AsType[*clusterhttp.Problem](err)
	return ok && (p.Status == http.StatusServiceUnavailable || p.Status == http.StatusConflict)
}

// persist repeats a call while its error is temporary. When the time is up, it returns the
// last of these errors.
func persist(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, persistTime, fmt.Errorf("gave up after %v", persistTime))
	defer cancel()
	for last := errors.New("no answer"); ; pause(ctx) {
		err := call(ctx)
		if temporary(err) {
			last = err
		} else if err == nil || ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// list returns the rooms that are pinned, or the rooms of one node, by one agent. It
// changes nothing.
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

// loaded waits until every agent has heard the loads that the rooms of every node cost.
// If that takes too long, the error says why.
func (t *tour) loaded(ctx context.Context, since time.Time, pins map[string]pin) (took time.Duration, problem string) {
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	problem = "no agent was asked"
	want := streamsOf(pins)
	nodes := t.live()
	took, _, _ = t.poll(ctx, since, func() (string, error) {
		seen := t.members(ctx, nodes)
		if err := cmp.Or(ctx.Err(), t.missing()); err != nil {
			return "", err
		}
		for i, n := range nodes {
			if problem = wrongLoad(n.id, seen[i], want); problem != "" {
				return "the nodes report their loads", nil
			}
		}
		return "", nil
	})
	return took, problem
}

// wrongLoad returns a load that an agent has not heard, or "".
func wrongLoad(agent lease.NodeID, m *clusterhttp.Members, want map[lease.NodeID]int) string {
	if m == nil {
		return fmt.Sprintf("%s does not answer", agent)
	}
	for _, member := range m.Members {
		if want := int64(want[member.ID]); member.Load != want {
			return fmt.Sprintf("%s has heard that %s carries %d streams, by its rooms it is %d", agent, member.ID, member.Load, want)
		}
	}
	return ""
}

// streamsOf adds up what the rooms of each node cost.
func streamsOf(pins map[string]pin) map[lease.NodeID]int {
	streams := make(map[lease.NodeID]int)
	for _, p := range pins {
		streams[p.node] += party{size: p.size}.streams()
	}
	return streams
}

// failedOver waits until no pin names a node that is gone. The checks find out if it takes
// too long.
func (t *tour) failedOver(ctx context.Context, since time.Time, gone lease.NodeID) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverTime)
	defer cancel()
	n := t.live()[0]
	took, _, err := t.poll(ctx, since, func() (string, error) {
		left, err := n.list(ctx, gone)
		if err != nil || len(left) == 0 {
			return "", err
		}
		return fmt.Sprintf("%d pinned rooms still wait on %s", len(left), gone), nil
	})
	return took, err
}

// release ends the rooms that are pinned on the user's own Redis, so that nothing of the
// demo stays there. Keys that it does not reach expire by themselves.
func (t *tour) release(ctx context.Context) {
	if t.o.Redis == "" || len(t.parties) == 0 {
		return
	}
	ctx, cancel := grace(ctx)
	defer cancel()
	live := slices.DeleteFunc(t.live(), func(n *node) bool { return n.Ended() })
	if len(live) == 0 {
		return
	}
	pins, err := live[0].list(ctx, "")
	if err != nil {
		return
	}
	_ = each(live, func(_ int, n *node) error {
		for room, p := range pins {
			if p.node == n.id && ctx.Err() == nil { // at its host, which loses it
				_ = n.client.ReleaseRoom(ctx, room)
			}
		}
		return nil
	})
}
