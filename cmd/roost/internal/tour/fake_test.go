package tour

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fakes answers the API for agents that believe what a test wants.
type fakes struct {
	mu      sync.Mutex
	answers []answer
	version uint64
	unrest  int // so many more times the version changes between two questions
	drift   int
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
		m := clusterhttp.Members{Self: id, Version: f.version, Digest: a.digest, Drift: f.drift, Converged: f.drift == 0}
		for id, state := range a.members {
			m.Members = append(m.Members, clusterhttp.Member{ID: id, State: state})
		}
		return m
	case "/v1/partitions":
		return clusterhttp.Partitions{Owners: a.owners, Digest: a.digest}
	case "/v1/owned":
		return clusterhttp.Owned{Self: id, Partitions: a.owned}
	case "/v1/place":
		owner := a.owners[placement.Of(r.FormValue("key"), len(a.owners))]
		return clusterhttp.Placed{Owner: clusterhttp.Member{ID: owner, State: lease.Active}, Digest: a.digest}
	}
	return nil
}

// fakeTour is a tour among fakes that agree on a table, and what it prints.
func fakeTour(t *testing.T, answers []answer) (*tour, *fakes, *screen) {
	t.Helper()
	f, out := &fakes{answers: answers}, &screen{}
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(web.CloseIdleConnections)
	tour := &tour{out: newPrinter(out), settings: cluster.Config{}.WithDefaults(), rooms: []string{"lobby", "stage"}, step: 3}
	for _, a := range answers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = json.NewEncoder(w).Encode(f.serve(a.node, r))
		}))
		t.Cleanup(server.Close)
		tour.nodes = append(tour.nodes, &node{
			child:  &child{id: a.node, done: make(chan struct{}), log: &tail{}},
			client: &clusterhttp.Client{Base: server.URL, HTTP: web}, state: lease.Active,
		})
	}
	return tour, f, out
}
