package tour

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fakes answer the API for agents with the view that a test sets.
type fakes struct {
	mu         sync.Mutex
	answers    []answer
	version    uint64
	unrest     int // so many more times the version changes between two questions
	divergence int

	guesses int          // so many more answers about rooms are degraded
	busy    int          // so many more are that the store does not answer
	lag     int          // so many more answers have no loads
	claimed bool         // the big room was resolved: only the first answer is "override"
	heir    lease.NodeID // gets rooms that are released
}

// people fills rooms of the fakes: node by room, each of three people.
func people(answers []answer, homes map[string]lease.NodeID) []party {
	var parties []party
	for i := range answers {
		answers[i].pins = make(map[string]pin)
	}
	for _, room := range slices.Sorted(maps.Keys(homes)) {
		parties = append(parties, party{room, 3})
		for _, a := range answers {
			a.pins[room] = pin{homes[room], 17, 3}
		}
	}
	return parties
}

// aboutRooms answers requests for pinned rooms.
func (f *fakes) aboutRooms(a answer, r *http.Request) any {
	if f.busy > 0 {
		f.busy--
		return &clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeStore, Message: "the store is away"}
	}
	room := r.PathValue("room")
	switch {
	case r.Method == http.MethodDelete:
		for _, a := range f.answers {
			a.pins[room] = pin{f.heir, a.pins[room].epoch + 1, a.pins[room].size}
		}
		return clusterhttp.ReleasedRoom{Room: room}
	case r.Method == http.MethodPost && f.guesses > 0:
		f.guesses--
		return clusterhttp.RoomAssignment{
			Room:   room,
			Node:   clusterhttp.Member{Profile: lease.Profile{ID: "a"}, State: lease.Active},
			Source: affinity.Degraded,
			Reason: "a guess",
		}
	case r.Method == http.MethodPost:
		p := a.pins[room]
		source := affinity.Pinned
		if p.size == bigSize && !f.claimed {
			f.claimed, source = true, affinity.Override
		}
		return clusterhttp.RoomAssignment{
			Room:   room,
			Node:   clusterhttp.Member{Profile: lease.Profile{ID: p.node}, State: lease.Active},
			Source: source,
			Hosted: p.node == a.node,
		}
	}
	var list clusterhttp.Rooms
	for room, p := range a.pins {
		if of := r.FormValue("node"); of == "" || of == string(p.node) {
			list.Rooms = append(list.Rooms, clusterhttp.PinnedRoom{Room: room, Node: p.node, Epoch: p.epoch, Size: p.size})
		}
	}
	return list
}

func (f *fakes) set(answers []answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = answers
	f.version++
}

func (f *fakes) serve(id lease.NodeID, r *http.Request) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.answers[slices.IndexFunc(f.answers, func(a answer) bool { return a.node == id })]
	switch r.URL.Path {
	case "/v1/members":
		if f.unrest > 0 {
			f.unrest--
			f.version++
		}
		m := clusterhttp.Members{Self: id, Version: f.version, Digest: a.digest, Diverged: f.divergence, Converged: f.divergence == 0}
		streams := streamsOf(a.pins)
		if f.lag > 0 {
			f.lag--
			streams = nil
		}
		for id, state := range a.members {
			m.Members = append(m.Members, clusterhttp.Member{Profile: lease.Profile{ID: id}, State: state, Load: int64(streams[id])})
		}
		return m
	case "/v1/partitions":
		return clusterhttp.Partitions{Export: placement.Export{Owners: a.owners, Digest: a.digest}}
	case "/v1/history":
		h := clusterhttp.History{Events: []clusterhttp.Event{{Kind: cluster.EventJoined, Member: "x"}}}
		for id := range a.expired {
			h.Events = append(h.Events, clusterhttp.Event{Kind: cluster.EventLost, Member: id, Reason: string(lease.Expired)})
		}
		return h
	case "/v1/owned":
		return clusterhttp.Owned{Self: id, Partitions: a.owned}
	case "/v1/place":
		owner := a.owners[placement.Of(r.FormValue("key"), len(a.owners))]
		return clusterhttp.Placed{Owner: clusterhttp.Member{Profile: lease.Profile{ID: owner}, State: lease.Active}, Digest: a.digest}
	}
	return f.aboutRooms(a, r)
}

var (
	ab    = []string{"a", "b"}
	abc   = []string{"a", "b", "c"}
	homes = map[string]lease.NodeID{"attic": "a", "yard": "b"}
)

// scene is a tour among fakes that agree on a table, with people in rooms at the given
// nodes.
func scene(t *testing.T, nodes []string, table string, homes map[string]lease.NodeID) (*tour, *fakes) {
	t.Helper()
	f := &fakes{answers: fleet(nodes, table, nil)}
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(web.CloseIdleConnections)
	tour := &tour{
		out: newPrinter(new(agentproc.Log)), rng: rand.New(rand.NewPCG(1, 0)), settings: cluster.Config{}.WithDefaults(), step: 3,
		seen: fleet(nodes, table, nil), parties: people(f.answers, homes),
	}
	people(tour.seen, homes)
	for _, a := range f.answers {
		mux := http.NewServeMux()
		for _, pattern := range []string{"/", "/v1/rooms/{room}", "/v1/rooms/{room}/resolve"} {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
				answer := f.serve(a.node, r)
				if p, ok := answer.(*clusterhttp.Problem); ok {
					w.WriteHeader(p.Status)
				}
				_ = json.NewEncoder(w).Encode(answer)
			})
		}
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		tour.nodes = append(tour.nodes, &node{
			Process: new(agentproc.Process), id: a.node,
			client: &clusterhttp.Client{Base: server.URL, HTTP: web}, state: lease.Active,
		})
	}
	return tour, f
}
