package browser

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/cluster/clusterhttp/doctor"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// fake serves the API of an agent in a cluster of any size. Its tables and batches come from the core, but its members
// are invented.
type fake struct {
	*httptest.Server
	t          *testing.T
	partitions int
	mangle     *strings.Replacer // applied to every response

	mu      sync.Mutex
	paused  bool
	cut     string        // responses on this path are cut off
	joining bool          // the API responds with not_ready
	refuses bool          // calls of /v1/doctor
	short   map[bool]int  // calls that ask for one second of observation, by whether they were refused
	behind  time.Duration // how far the agent's clock is behind the browser's clock
	muted   bool          // streams send nothing
	overdue bool          // responses have an old version, in which node-99 owned everything
	resume  *events.State // where new streams resume; nil: they start over
	plain   bool          // whether there is no demo
	pressed []string      // buttons of the demo that were pressed
	members []clusterhttp.Member
	lost    []clusterhttp.Lost
	alone   map[lease.NodeID]string // addresses of nodes that are heard only over TCP
	past    clusterhttp.History
	stats   clusterhttp.Stats
	state   *events.State
	sent    *events.State        // to streams
	streams map[chan string]bool // events in the format of streams
}

func newFake(t *testing.T, nodes, partitions int, mangle ...string) *fake {
	f := &fake{
		t:          t,
		partitions: partitions,
		mangle:     strings.NewReplacer(mangle...),
		streams:    make(map[chan string]bool),
		short:      make(map[bool]int),
	}
	for i := range nodes {
		f.members = append(f.members, member(i+1))
	}
	f.stats.Settings = clusterhttp.Settings{
		Cluster: "media", Partitions: partitions, Strategy: "rendezvous", HeartbeatMS: 2000, TTLMS: 6000, MaxSkewMS: 5000,
		Addr: f.members[0].Addr, Join: []string{f.members[nodes-1].Addr},
	}
	f.stats.UptimeMS = (26 * time.Hour).Milliseconds()
	f.stats.Rooms = &affinity.Stats{Breaker: "closed", Hosted: 17, StoreCalls: 40, StoreTime: 50 * time.Millisecond}
	f.change(func() {})
	mux := http.NewServeMux()
	page := dashboard.Handler(dashboard.Info{Cluster: "media", Rooms: true, Metrics: true, Demo: true})
	mux.Handle("GET /{$}", page)
	mux.Handle("GET /dashboard/{file}", page)
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /v1/members":             answers(f, f.asMembers),
		"GET /v1/partitions":          answers(f, f.asPartitions),
		"GET /v1/owners":              f.serveOwners,
		"GET /v1/stats":               answers(f, f.asStats),
		"GET /v1/history":             answers(f, f.asHistory),
		"GET /v1/doctor":              f.serveDoctor,
		"GET /v1/rooms":               f.serveRooms,
		"GET /v1/rooms/{room}":        f.serveRoom,
		"GET /v1/rooms/{room}/relays": f.serveRelays,
		"GET /demo":                   f.serveDemo,
		"POST /demo/{action}":         f.serveDemo,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { f.set(func() { serve(w, r) }) })
	}
	mux.HandleFunc("GET /v1/events", f.serveEvents)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var paused, joining, cut bool
		f.set(func() { paused, joining, cut = f.paused, f.joining, f.cut == r.URL.Path })
		if cut {
			_, _ = io.WriteString(w, `{"self":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		if paused {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		if strings.HasPrefix(r.URL.Path, "/v1/") && joining {
			http.Error(w, `{"error":"joining: no other node has accepted this node yet","code":"not_ready"}`, http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

func member(i int) clusterhttp.Member {
	return clusterhttp.Member{
		Profile: lease.Profile{
			ID:          lease.NodeID(fmt.Sprintf("node-%d", i)),
			Incarnation: uint64(i),
			Addr:        fmt.Sprintf("10.0.%d.%d:7946", i/250, i%250),
			APIAddr:     fmt.Sprintf("sfu-%d.example:443", i),
			Zone:        "eu-" + string(rune('a'+i%3)),
			Weight:      100,
			Capacity:    2450,
			Labels:      map[string]string{"rack": fmt.Sprintf("r%d", i%7)},
		},
		State:         lease.Active,
		AgeMS:         max(1, int64(i*617%2100)),
		Load:          int64(i * 7919 % 2300),
		ClockOffsetMS: int64(i*31%17 - 8),
		InSync:        true,
	}
}

// change runs a function that changes the members, and sends the effect to streams.
func (f *fake) change(f2 func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := slices.Clone(f.members)
	f2()
	var nodes []placement.Node
	var live []lease.Incarnation
	for _, m := range f.members {
		live = append(live, lease.Incarnation{Node: m.ID, Number: m.Incarnation})
		if m.State == lease.Active {
			nodes = append(nodes, placement.Node{ID: m.ID, Weight: m.Weight})
		}
	}
	table, err := placement.Compute(placement.Input{Nodes: nodes, Partitions: f.partitions})
	if err != nil {
		f.t.Fatal(err)
	}
	old := f.state
	f.state = events.Next(old, f.members[0].ID, table, live, true)
	f.state.Ended = make(map[lease.Incarnation]lease.Reason)
	for _, l := range f.lost {
		f.state.Ended[lease.Incarnation{Node: l.ID, Number: l.Incarnation}] = l.Reason
	}
	if old == nil {
		f.sent, f.past.Events = f.state, []clusterhttp.Event{{At: f.now(), Kind: cluster.EventStarted, Member: f.members[0].ID}}
	} else {
		f.remember(before, old)
	}
	if !f.muted {
		f.publish()
	}
}

// remember adds the changes to the history, like package cluster.
func (f *fake) remember(before []clusterhttp.Member, old *events.State) {
	now := f.now()
	add := func(e clusterhttp.Event) {
		e.At = now
		f.past.Events = append(f.past.Events, e)
	}
	was := make(map[lease.NodeID]clusterhttp.Member)
	for _, m := range before {
		was[m.ID] = m
	}
	b := events.Diff(old, f.state)
	for _, id := range b.Left {
		if !slices.Contains(b.Joined, id) {
			reason := lease.Departed
			if i := slices.IndexFunc(f.lost, func(l clusterhttp.Lost) bool { return l.ID == id }); i >= 0 {
				reason = f.lost[i].Reason
			}
			add(clusterhttp.Event{Kind: cluster.EventLost, Member: id, Reason: string(reason), Partitions: old.Table.Balance().Counts[id]})
		}
	}
	for _, m := range f.members {
		o, known := was[m.ID]
		switch {
		case !known:
			add(clusterhttp.Event{Kind: cluster.EventJoined, Member: m.ID})
		case o.Incarnation != m.Incarnation:
			add(clusterhttp.Event{Kind: cluster.EventReturned, Member: m.ID, Reason: "replaced"})
		case o.State != m.State && m.State == lease.Draining:
			why := m.Condition()
			if why == "draining" {
				why = ""
			}
			add(clusterhttp.Event{Kind: cluster.EventDraining, Member: m.ID, Reason: why})
		case o.State != m.State && m.State == lease.Active:
			add(clusterhttp.Event{Kind: cluster.EventUndrained, Member: m.ID})
		}
	}
	if len(b.Moved) > 0 {
		add(clusterhttp.Event{Kind: cluster.EventMoved, Moved: len(b.Moved)})
	}
}

func (f *fake) publish() {
	f.stream(eventOf(events.Diff(f.sent, f.state)))
	f.sent = f.state
}

func (f *fake) stream(event string) {
	for s := range f.streams {
		s <- event
	}
}

// moveRoom moves a room away from node-2, and reports this in the history and to streams.
func (f *fake) moveRoom(room string) {
	f.set(func() {
		last := len(f.past.Events) - 1
		if e := f.past.Events[last]; e.Kind == affinity.EventRoomsMoved {
			e.Rooms++
			f.past.Events = append(f.past.Events[:last:last], e) // a response may still refer to the old slice
		} else {
			f.past.Events = append(f.past.Events, clusterhttp.Event{
				At: f.now(), Kind: affinity.EventRoomsMoved, Member: "node-2", Reason: "its node died", Rooms: 1,
			})
		}
		f.stream(fmt.Sprintf("event: moved\ndata: {\"moved\":[{\"room\":%q}],\"resync\":false}\n\n", room))
	})
}

func (f *fake) now() time.Time { return time.Now().Add(-f.behind) }

func (f *fake) leave(id lease.NodeID) {
	f.change(func() {
		f.members = slices.DeleteFunc(f.members, func(m clusterhttp.Member) bool { return m.ID == id })
	})
}

// silence makes the agent report that it hears a node only over TCP.
func (f *fake) silence(node int) {
	m := member(node)
	f.alone = map[lease.NodeID]string{m.ID: m.Addr}
}

// lose removes the members with numbers from to to, which sent no leave message.
func (f *fake) lose(reason lease.Reason, from, to int) {
	f.change(func() {
		for _, m := range f.members[from-1 : to] {
			f.lost = append(f.lost, clusterhttp.Lost{
				Profile: m.Profile, Reason: reason, AgoMS: 4200, Partitions: f.state.Table.Balance().Counts[m.ID],
			})
		}
		f.members = slices.Delete(f.members, from-1, to)
	})
}

func (f *fake) join(i int) { f.change(func() { f.members = append(f.members, member(i)) }) }

// pause breaks all connections and streams until resume is called.
func (f *fake) pause() (resume func()) {
	f.set(func() { f.paused = true })
	f.CloseClientConnections()
	return func() { f.set(func() { f.paused = false }) }
}

// unmute sends the withheld changes to streams.
func (f *fake) unmute() {
	f.set(func() {
		f.muted = false
		f.publish()
	})
}

// set runs f2 under the lock of f. It does not send anything to streams.
func (f *fake) set(f2 func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f2()
}

func (f *fake) send(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		f.t.Error(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = f.mangle.WriteString(w, string(b))
}

// answers serves the value that a function returns.
func answers[T any](f *fake, as func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { f.send(w, as()) }
}

func (f *fake) asMembers() clusterhttp.Members {
	answer := clusterhttp.Members{
		Self:         f.members[0].ID,
		Members:      f.members,
		Version:      f.state.Version,
		Digest:       f.state.Digest(),
		Converged:    true,
		Lost:         f.lost,
		StreamsAlone: maps.Clone(f.alone),
	}
	for _, m := range f.members {
		if !m.InSync {
			answer.Diverged++
		}
	}
	if f.overdue {
		answer.Version = 1
		answer.Members = append(slices.Clone(f.members), member(99))
	}
	return answer
}

func (f *fake) asPartitions() clusterhttp.Partitions {
	b := f.state.Table.Balance()
	answer := clusterhttp.Partitions{
		Export: f.state.Table.Export(f.state.Version), Counts: b.Counts,
		Balance: clusterhttp.Balance{MaxMean: b.MaxMean, CV: b.CV, Advice: b.Advice()},
		Stale:   f.stale(),
	}
	if f.overdue {
		answer.Version, answer.Owners = 1, slices.Repeat([]lease.NodeID{"node-99"}, f.partitions)
	}
	return answer
}

func (f *fake) asStats() clusterhttp.Stats {
	stats := f.stats
	stats.Self, stats.State = f.members[0].ID, cmp.Or(stats.State, "active")
	return stats
}

// stale is false for a stalled agent, because the agent's state may say that it is stalled a heartbeat earlier than its
// answers do.
func (f *fake) stale() bool { return f.stats.Isolated() }

func (f *fake) asHistory() clusterhttp.History {
	past := f.past
	past.Self, past.Now = f.members[0].ID, f.now()
	return past
}

// serveDoctor serves the findings of the real checks.
func (f *fake) serveDoctor(w http.ResponseWriter, r *http.Request) { // runs under the lock, like all of these functions
	look := doctor.Look{Stats: f.asStats(), Members: f.asMembers(), Table: f.asPartitions(), History: f.asHistory()}
	if r.URL.Query().Get("over") == "1s" {
		f.short[f.refuses]++
	}
	if f.refuses {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(clusterhttp.Problem{Code: clusterhttp.CodeBusy, Message: "other calls are examined"})
		return
	}
	f.send(w, doctor.Examination{Before: look, After: look, Addr: "fake"}.Diagnose())
}

func (f *fake) find(id lease.NodeID) clusterhttp.Member {
	return f.members[slices.IndexFunc(f.members, func(m clusterhttp.Member) bool { return m.ID == id })]
}

func (f *fake) serveOwners(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Query().Get("key")
	p := placement.Of(key, f.partitions)
	answer := clusterhttp.Ranked{Key: key, Partition: p, Why: f.state.Table.Why(p), Stale: f.stale()}
	for _, id := range f.state.Table.Rank(p, 5) {
		answer.Owners = append(answer.Owners, f.find(id))
	}
	f.send(w, answer)
}

func (f *fake) serveRoom(w http.ResponseWriter, r *http.Request) {
	room := r.PathValue("room")
	p := placement.Of(room, f.partitions)
	answer := clusterhttp.RoomDetail{RoomAssignment: clusterhttp.RoomAssignment{
		Room: room, Partition: p, Reason: "the owner of its partition has no headroom", Epoch: 1785,
	}, Pinned: true}
	for i, id := range f.state.Table.Rank(p, 100) {
		m := f.find(id)
		c := clusterhttp.RoomCandidate{ID: id, Load: m.Load, Ceiling: 1960, Capacity: m.Capacity, Why: "is not the least loaded"}
		switch i {
		case 0:
			c.Why = "owns its partition; no headroom: carries 1,900 of 1,960 units, and the room costs 2,450"
		case 1:
			c.Taken, c.Why, answer.Node = true, "hosts it: 2,450 of its 3,206 units", m
		}
		answer.Candidates = append(answer.Candidates, c)
	}
	f.send(w, answer)
}

func (f *fake) serveRooms(w http.ResponseWriter, r *http.Request) {
	node := lease.NodeID(r.URL.Query().Get("node"))
	f.send(w, clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{
		{Room: "retro", Node: node, Size: 4},
		{Room: "stand-up", Node: node, Size: 12},
	}})
}

func (f *fake) serveRelays(w http.ResponseWriter, r *http.Request) {
	f.send(w, clusterhttp.RoomRelays{Room: r.PathValue("room"), Relays: f.members[:min(3, len(f.members))]})
}

// serveDemo stands in for roost demo, with a paused third node.
func (f *fake) serveDemo(w http.ResponseWriter, r *http.Request) {
	if f.plain {
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost {
		f.pressed = append(f.pressed, r.PathValue("action")+" "+string(body))
	}
	f.send(w, json.RawMessage(`{"touring":false,"most":20,"nodes":[
		{"id":"node-1","state":"running"},
		{"id":"node-2","state":"running"},
		{"id":"node-3","state":"paused"},
		{"id":"node-4","state":"starting"}
	]}`))
}

func (f *fake) serveEvents(w http.ResponseWriter, r *http.Request) {
	s := make(chan string, 64)
	var event string
	f.set(func() {
		event = eventOf(events.Diff(f.resume, f.state))
		f.streams[s] = true
	})
	defer f.set(func() { delete(f.streams, s) })
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		_, _ = f.mangle.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		select {
		case event = <-s:
		case <-r.Context().Done():
			return
		}
	}
}

// eventOf returns "" for a batch without news, because a resumed stream may have no first batch.
func eventOf(b events.Batch) string {
	if !b.News() {
		return ""
	}
	data, _ := json.Marshal(b)
	return fmt.Sprintf("id: %d\nevent: batch\ndata: %s\n\n", b.Version, data)
}

// awaitStream waits until a client listens to events.
func (f *fake) awaitStream(t *testing.T) {
	t.Helper()
	wait(t, "a client that listens to events", func() (there bool) {
		f.set(func() { there = len(f.streams) > 0 })
		return there
	})
}
