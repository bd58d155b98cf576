// Package fakeagent serves the API of an agent for tests. A test sets the answers.
package fakeagent

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// Agent serves the answers of Healthy until a test replaces them.
type Agent struct {
	Env    map[string]string // environment for commands that call this agent
	Stream chan any          // events of /v1/events; nil ends the current stream

	mu      sync.Mutex
	answers map[string]any
	asked   map[string]int
}

// New starts a fake agent, which runs until the test ends.
func New(t *testing.T) *Agent {
	t.Helper()
	f := &Agent{answers: Healthy(), asked: make(map[string]int), Stream: make(chan any, 16)}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	f.Env = map[string]string{"ROOST_ADDR": server.Listener.Addr().String(), "TERM": "xterm"}
	return f
}

// Set sets the answer to a request, such as "GET /v1/members" or, with a query, "GET /v1/rooms?limit=1". If the answer
// is a func(int) any, it is called with the number of the request. A clusterhttp.Problem becomes an error response, and
// nil becomes "not found". To make /v1/events fail, set "events" to false.
func (f *Agent) Set(what string, answer any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[what] = answer
}

// Times returns how many times a request was made.
func (f *Agent) Times(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[what]
}

// ServeHTTP implements http.Handler.
func (f *Agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/events" {
		f.serveEvents(w, r)
		return
	}
	what := r.Method + " " + r.URL.Path
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[what]++
	answer, ok := f.answers[r.Method+" "+r.RequestURI]
	if !ok {
		answer = f.answers[what]
	}
	if ask, ok := answer.(func(n int) any); ok {
		answer = ask(f.asked[what])
	}
	switch p := answer.(type) {
	case nil:
		w.WriteHeader(http.StatusNotFound)
		answer = clusterhttp.Problem{Code: clusterhttp.CodeNotFound, Message: "there is nothing at " + r.URL.Path}
	case clusterhttp.Problem:
		w.WriteHeader(p.Status)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *Agent) serveEvents(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	refused := f.answers["events"] == false
	f.mu.Unlock()
	if refused {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case event, ok := <-f.Stream:
			if !ok || event == nil {
				return
			}
			kind := "batch"
			if _, rooms := event.(affinity.MovedBatch); rooms {
				kind = "moved"
			}
			b, _ := json.Marshal(event)
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

const healthyDigest = 0xabc

// three returns a cluster of three members: a, b and c.
func three() []clusterhttp.Member {
	members := make([]clusterhttp.Member, 3)
	for i := range members {
		members[i] = clusterhttp.Member{
			Profile: lease.Profile{
				ID:          lease.NodeID("node-" + string(rune('a'+i))),
				Addr:        fmt.Sprintf("10.0.0.%d:7946", i+1),
				APIAddr:     "sfu:3478",
				Zone:        "z1",
				Weight:      100,
				Capacity:    500,
				Labels:      map[string]string{"rack": "r1"},
				Incarnation: 7,
			},
			State:         lease.Active,
			AgeMS:         int64(500 * (i + 1)),
			Load:          int64(150 * i),
			ClockOffsetMS: int64(i),
			InSync:        true,
			Keys:          []string{"1a2b3c4d", "9f8e7d6c"},
			HTTP:          fmt.Sprintf("http://10.0.0.%d:8401", i+1),
		}
	}
	return members
}

// Healthy returns the answers of an agent in a healthy cluster of three nodes. Every field that an answer can
// have is set.
func Healthy() map[string]any {
	members := three()
	changed := clusterhttp.Changed{Self: "node-a", State: lease.Draining, Weight: 100, Load: 1, Converged: true}
	in := placement.Input{Partitions: 64}
	for _, m := range members {
		in.Nodes = append(in.Nodes, placement.Node{ID: m.ID, Weight: m.Weight})
	}
	table := Partitions(in, 12)
	table.Balance.Advice = "" // unlike here, a healthy cluster would have more partitions
	answers := map[string]any{
		"GET /v1/members":    clusterhttp.Members{Self: "node-a", Members: members, Version: 12, Digest: table.Digest, Converged: true},
		"GET /v1/partitions": table,
		"GET /v1/place":      clusterhttp.Placed{Key: "k", Partition: 7, Owner: members[0], Version: 12, Digest: healthyDigest},
		"GET /v1/owners":     clusterhttp.Ranked{Key: "k", Partition: 7, Owners: members, Why: "highest score"},
		"GET /v1/stats": clusterhttp.Stats{
			Self: "node-a", State: "active",
			Counts: cluster.Stats{CoreStats: cluster.CoreStats{Divergences: 4, DivergedTime: 800 * time.Millisecond}},
			Rooms:  &affinity.Stats{Breaker: "closed"},
			Settings: clusterhttp.Settings{
				Cluster: "fleet", Partitions: 64, Strategy: "rendezvous", HeartbeatMS: 2000, TTLMS: 6000, MaxSkewMS: 5000,
				Addr: "10.0.0.1:7946", Join: []string{"10.0.0.1:7946", "10.0.0.2:7946", "seeds.test:7946"},
			},
		},
		"GET /v1/history": clusterhttp.History{
			Self: "node-a", Now: time.Unix(1000, 0).UTC(),
			Events: []clusterhttp.Event{{
				At:          time.Unix(900, 0).UTC(),
				Kind:        cluster.EventLost,
				Member:      "node-d",
				Incarnation: 7,
				Addr:        "10.0.0.4:7946",
				OldAddr:     "10.0.0.5:7946",
				Reason:      "crashed",
				Why:         "why",
				Members:     3,
				Partitions:  16,
				Moved:       16,
				Gained:      5,
				Lost:        1,
				Weight:      100,
				OldWeight:   50,
				Rooms:       12,
				Lasted:      14 * time.Second,
			}},
			Samples: []clusterhttp.Sample{{At: time.Unix(990, 0).UTC(), Members: 3, Owned: 21, Moved: 16, Load: 150}},
		},
		"POST /v1/drain":   changed,
		"POST /v1/undrain": changed,
		"POST /v1/leave":   changed,
		"POST /v1/weight":  changed,
		"POST /v1/health":  changed,
		"POST /v1/cordon": clusterhttp.Cordoned{
			Cordon:    clusterhttp.Cordon{ID: "node-b", ForMS: 60_000, Reason: "disk"},
			Converged: true,
		},
		"DELETE /v1/cordon": clusterhttp.Cordoned{Cordon: clusterhttp.Cordon{ID: "node-b"}, Converged: true},
	}
	maps.Copy(answers, rooms(members))
	return answers
}

// rooms returns the answers about rooms.
func rooms(members []clusterhttp.Member) map[string]any {
	room := clusterhttp.RoomAssignment{
		Room: "r", Partition: 7, Node: members[1], Incarnation: 7, Source: affinity.Pinned, Reason: "already pinned",
		Epoch: 9, Hosted: true, TouchWithinS: 600,
	}
	return map[string]any{
		"GET /v1/rooms": clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{
			{Room: "r", Partition: 7, Node: "node-b", Incarnation: 7, Epoch: 9, Size: 4}, {Room: "room 1", Node: "node-c"},
		}},
		"GET /v1/rooms/r": clusterhttp.RoomDetail{RoomAssignment: room, Pinned: true, Candidates: []clusterhttp.RoomCandidate{
			{ID: "node-b", Load: 1, Reserved: 2, Ceiling: 400, Capacity: 500, Taken: true, Why: "owns it"},
		}},
		"GET /v1/rooms/r/relays":         clusterhttp.RoomRelays{Room: "r", Relays: members[:1]},
		"POST /v1/rooms/r/resolve":       room,
		"POST /v1/rooms/r/move":          room,
		"POST /v1/rooms/r/report":        room,
		"DELETE /v1/rooms/r":             clusterhttp.ReleasedRoom{Room: "r"},
		"PUT /v1/rooms/r/reservation":    room,
		"DELETE /v1/rooms/r/reservation": clusterhttp.CancelledReservation{Room: "r"},
		"GET /v1/reservations": clusterhttp.Reservations{Reservations: []affinity.Reservation{
			{
				Room: "town-hall", Units: 500, Until: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), Node: "node-b",
				Prefer: []string{"zone:eu-1"}, Require: map[string]string{"recorder": "yes"},
			},
		}},
	}
}

// Batch returns a batch of events with one change of each kind.
func Batch() events.Batch {
	owned := []events.Ownership{{Partition: 3, Since: 1}}
	return events.Batch{
		Version: 13, Released: owned, Acquired: owned, Moved: []events.Move{{Partition: 1, From: "node-a", To: "node-b"}},
		Joined: []lease.NodeID{"node-d"}, Left: []lease.NodeID{"node-e"}, Reasons: map[lease.NodeID]lease.Reason{"node-e": lease.Crashed},
	}
}

// Partitions returns the answer of an agent whose table has these nodes.
func Partitions(in placement.Input, version uint64) clusterhttp.Partitions {
	table, err := placement.Compute(in)
	if err != nil {
		panic(err)
	}
	b := table.Balance()
	return clusterhttp.Partitions{
		Export: table.Export(version), Counts: b.Counts,
		Balance: clusterhttp.Balance{MaxMean: b.MaxMean, CV: b.CV, Advice: b.Advice()},
	}
}
