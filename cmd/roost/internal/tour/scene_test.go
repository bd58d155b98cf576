package tour

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

var (
	ab    = []string{"a", "b"}
	abc   = []string{"a", "b", "c"}
	homes = map[string]lease.NodeID{"attic": "a", "yard": "b"}
)

// fleet returns the views of agents that agree on a table. The table has one letter for each partition: "abba" gives
// the first partition to a. homes maps each room to its node, and each room has three people.
func fleet(nodes []string, table string, homes map[string]lease.NodeID, rooms ...string) []view {
	var views []view
	for _, n := range nodes {
		v := view{
			by: lease.NodeID(n), digest: 0x00c0ffee00c0ffee, owners: ownersOf(table),
			members: make(map[lease.NodeID]lease.State), expired: make(map[lease.NodeID]int), pins: make(map[string]pin),
		}
		for _, n := range nodes {
			v.members[lease.NodeID(n)] = lease.Active
		}
		for p := range placement.Partition(len(table)) {
			if v.owners[p] == v.by {
				v.owned = append(v.owned, p)
			}
		}
		for _, room := range rooms {
			v.placed = merged(v.placed, map[string]lease.NodeID{room: v.owners[placement.Of(room, len(table))]})
		}
		for room, home := range homes {
			v.pins[room] = pin{home, 17, 3}
		}
		views = append(views, v)
	}
	return views
}

func merged[K comparable, V any](a, b map[K]V) map[K]V {
	all := make(map[K]V)
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func ownersOf(table string) map[placement.Partition]lease.NodeID {
	owners := make(map[placement.Partition]lease.NodeID)
	for p, c := range table {
		owners[placement.Partition(p)] = lease.NodeID(strings.Trim(string(c), "."))
	}
	return owners
}

// evenly returns a table of n partitions that assigns them to the nodes in turn.
func evenly(nodes string, n int) string { return strings.Repeat(nodes, n/len(nodes)+1)[:n] }

// partiesIn returns a party of three people for each room.
func partiesIn(homes map[string]lease.NodeID) (parties []party) {
	for _, room := range slices.Sorted(maps.Keys(homes)) {
		parties = append(parties, party{room, 3})
	}
	return parties
}

// scene is a tour with fake agents, whose answers the test sets.
type scene struct {
	*tour
	agents map[lease.NodeID]*fakeagent.Agent
}

// newScene returns a tour in its third step. Its agents agree on a table. Each room in homes has
// people and is pinned to the node that homes gives.
func newScene(t *testing.T, nodes []string, table string, homes map[string]lease.NodeID, rooms ...string) scene {
	t.Helper()
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(web.CloseIdleConnections)
	views := fleet(nodes, table, homes, rooms...)
	s := scene{
		&tour{
			out: newPrinter(new(agentproc.Log)), web: web, rng: rand.New(rand.NewPCG(1, 0)), settings: cluster.Config{}.WithDefaults(), step: 3,
			rooms: rooms, seen: views, parties: partiesIn(homes),
		},
		make(map[lease.NodeID]*fakeagent.Agent),
	}
	for _, v := range views {
		s.agents[v.by] = fakeagent.New(t)
		n := &node{Process: &agentproc.Process{Log: new(agentproc.Log)}, id: v.by, state: lease.Active}
		n.reach(agentproc.Addrs{HTTP: s.agents[v.by].Env["ROOST_ADDR"]}, s.tour)
		s.nodes = append(s.nodes, n)
	}
	s.set(fleet(nodes, table, homes, rooms...))
	return s
}

// printed returns the output.
func (s scene) printed() string { return s.out.w.(*agentproc.Log).String() }

var errWaits = errors.New("the tour waits")

// untilItWaits returns a context that ends when the tour prints what it waits for, and a time in the past. If the tour
// is told that it has waited since that time, it prints this after its first look.
func (s scene) untilItWaits(t *testing.T) (context.Context, time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	s.out.w = writer(func() { cancel(errWaits) })
	return ctx, time.Now().Add(-time.Hour)
}

// writer is a function that is called for each write.
type writer func()

func (w writer) Write(b []byte) (int, error) {
	w()
	return len(b), nil
}

// set makes the agents answer according to these views.
func (s scene) set(views []view) {
	for _, v := range views {
		a := s.agents[v.by]
		table := clusterhttp.Partitions{Export: placement.Export{Digest: v.digest}}
		for p := range placement.Partition(len(v.owners)) {
			table.Owners = append(table.Owners, v.owners[p])
		}
		history := clusterhttp.History{Events: []clusterhttp.Event{{Kind: cluster.EventJoined, Member: "x"}}}
		for id, times := range v.expired {
			for range times {
				history.Events = append(history.Events, clusterhttp.Event{Kind: cluster.EventLost, Member: id, Reason: string(lease.Expired)})
			}
		}
		a.Set("GET /v1/members", s.membersOf(v))
		a.Set("GET /v1/partitions", table)
		a.Set("GET /v1/owned", clusterhttp.Owned{Self: v.by, Partitions: v.owned})
		a.Set("GET /v1/history", history)
		a.Set("GET /v1/stats", clusterhttp.Stats{Self: v.by, State: "active", Settings: clusterhttp.Settings{Cluster: "demo"}})
		for _, room := range s.rooms {
			a.Set("GET /v1/place?key="+url.QueryEscape(room), clusterhttp.Placed{Owner: memberOf(v.placed[room])})
		}
		lists := map[lease.NodeID]clusterhttp.Rooms{}
		for room, p := range v.pins {
			pinned := clusterhttp.PinnedRoom{Room: room, Node: p.node, Epoch: p.epoch, Size: p.size}
			for _, of := range []lease.NodeID{"", p.node} {
				lists[of] = clusterhttp.Rooms{Rooms: append(lists[of].Rooms, pinned)}
			}
			a.Set("POST /v1/rooms/"+room+"/resolve", answerOf(v, room, affinity.Pinned).RoomAssignment)
			a.Set("DELETE /v1/rooms/"+room, clusterhttp.ReleasedRoom{Room: room})
		}
		a.Set("GET /v1/rooms", clusterhttp.Rooms{})
		for of, list := range lists {
			a.Set("GET /v1/rooms?limit=10000"+strings.TrimSuffix("&node="+string(of), "&node="), list)
		}
	}
}

func (s scene) membersOf(v view) clusterhttp.Members {
	m := clusterhttp.Members{Self: v.by, Version: 1000, Digest: v.digest, Converged: true}
	streams := streamsOf(v.pins)
	for _, id := range slices.Sorted(maps.Keys(v.members)) {
		member := memberOf(id)
		member.State, member.Load = v.members[id], int64(streams[id])
		if a := s.agents[id]; a != nil {
			member.HTTP = "http://" + a.Env["ROOST_ADDR"]
		}
		m.Members = append(m.Members, member)
	}
	return m
}

// answerOf returns an agent's answer about a room, according to the pins in its view.
func answerOf(v view, room string, source affinity.Source) answer {
	at := v.pins[room].node
	return answer{by: v.by, RoomAssignment: clusterhttp.RoomAssignment{Room: room, Node: memberOf(at), Source: source, Hosted: at == v.by}}
}

func memberOf(id lease.NodeID) clusterhttp.Member {
	return clusterhttp.Member{Profile: lease.Profile{ID: id}, State: lease.Active}
}

// first makes an agent answer its first n requests of a kind with other, and later requests with then.
func (s scene) first(n int, id lease.NodeID, request string, other, then any) {
	s.agents[id].Set(request, func(i int) any {
		if i <= n {
			return other
		}
		return then
	})
}

var away = clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeStore, Message: "the store is away"}

// expectCheck checks that a check held if problem is "". Otherwise, the check must have failed and named the problem.
func expectCheck(t *testing.T, got check, problem string) {
	t.Helper()
	if got.what == "" || got.held() != (problem == "") || !strings.Contains(got.problem, problem) {
		t.Errorf("%s: problem %q, want %q", cmp.Or(got.what, "a check without a name"), got.problem, problem)
	}
}
