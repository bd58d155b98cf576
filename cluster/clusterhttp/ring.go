package clusterhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

// ring serves lookups and streams, for the whole agent or for one of its scopes. All clients of a ring share
// its journals and cached responses.
type ring struct {
	source
	journal *batches // for event streams
	tables  tables   // for routing clients
	kept    kept
}

// source contains the methods that an agent and a scope have in common.
type source interface {
	Snapshot() *cluster.Snapshot
	Latest() (*cluster.Snapshot, <-chan struct{})
	Owned() []placement.Partition
	Reader(name string) *events.Reader
}

func newRing(agent *cluster.Agent, of source) *ring {
	return &ring{
		source: of, journal: newBatches(),
		tables: tables{of: of, cluster: agent.Config().Cluster, ended: agent.Done(), updates: newUpdates()},
	}
}

// scopes has a ring for each scope that was requested, by name. Rings are never removed, because a scope
// exists as long as its agent.
type scopes struct {
	mu    sync.Mutex
	rings map[string]*ring
}

// ringOf returns the ring for a request. With the parameter scope, ringOf returns the ring of that scope.
// Without the parameter, ringOf returns the ring of all members.
func (a *api) ringOf(r *http.Request) (*ring, *Problem) {
	name, given, p := find(r.URL.RawQuery, "scope")
	switch {
	case p != nil:
		return nil, p
	case !given:
		return a.whole, nil
	case name == "":
		return nil, badRequest("scope is empty: name a scope, or omit the parameter")
	}
	a.scopes.mu.Lock()
	defer a.scopes.mu.Unlock()
	if ring := a.scopes.rings[name]; ring != nil {
		return ring, nil
	}
	all := a.agent.Scopes()
	i := slices.IndexFunc(all, func(s *cluster.Scope) bool { return s.Name() == name })
	if i < 0 {
		return nil, problem(http.StatusNotFound, CodeNoScope,
			"this node has no scope %.80q%s; make it with agent.Scope, or with --scope of roost agent", name,
			named(all))
	}
	ring := newRing(a.agent, all[i])
	a.scopes.rings[name] = ring
	return ring, nil
}

// ofRing serves an endpoint that passes the ring of the request to answer.
func (a *api) ofRing(answer func(*ring, *http.Request) (any, *Problem)) http.HandlerFunc {
	return a.serve(http.StatusOK, func(_ http.ResponseWriter, r *http.Request) (any, *Problem) {
		ring, p := a.ringOf(r)
		if p != nil {
			return nil, p
		}
		return answer(ring, r)
	})
}

// scopeless rejects a request with a scope. An endpoint that ignored the scope would answer about all members,
// and the client would not notice.
func scopeless(r *http.Request) *Problem {
	if _, given, _ := find(r.URL.RawQuery, "scope"); !given {
		return nil
	}
	return badRequest("scope does not apply to this path, which is about all members; it applies to place, owners, partitions, owned, events and table")
}

// named returns text for an error message that lists the first scopes of a node.
func named(all []*cluster.Scope) string {
	const most = 8
	if len(all) == 0 {
		return " and no other scope"
	}
	var names []string
	for _, s := range all[:min(len(all), most)] {
		names = append(names, fmt.Sprintf("%q", s.Name()))
	}
	if more := len(all) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "; it has " + strings.Join(names, ", ")
}
