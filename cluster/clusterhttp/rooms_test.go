package clusterhttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// startRooms starts a resolver for each node of c, in a synctest bubble.
func startRooms(t *testing.T, c *clustertest.Cluster, store pinstore.Store, cfg affinity.Config) map[string]*affinity.Resolver {
	t.Helper()
	cfg.Log = quiet
	rooms := make(map[string]*affinity.Resolver)
	for _, id := range c.IDs() {
		r, err := affinity.Start(c.Agent(id), store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		rooms[id] = r
		t.Cleanup(func() { _ = r.Close() })
	}
	return rooms
}

// roomCluster is the cluster of trio, with a resolver and a client for each node.
type roomCluster struct {
	*clustertest.Cluster
	rooms   map[string]*affinity.Resolver
	clients map[string]*Client
}

const pinTTL = time.Minute

func open(t *testing.T, store pinstore.Store, opts Options) *roomCluster {
	t.Helper()
	c := trio(t)
	h := &roomCluster{c, startRooms(t, c, store, affinity.Config{PinTTL: pinTTL}), make(map[string]*Client)}
	opts.Log = quiet
	for id, rooms := range h.rooms {
		opts.Rooms = rooms
		h.clients[id] = serve(t, NewServer(Handler(c.Agent(id), opts))).client(t)
	}
	return h
}

// Every valid room name works, and every invalid room name is rejected.
func TestRoomNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := open(t, pinstore.NewMemory(), Options{}).clients["a"]
		good := []string{
			"a/b", "a//b", "//", "a/", ".", "..", "...", "../..", "a/../b", "%2F", "%", "a?b#c", "a;b&c=d", "+", "x y", " ",
			"resolve", "move", "rooms", "é\u0301ü", "日本", "\u202e", "<script>", `"'\`, strings.Repeat("ü", affinity.MaxNameBytes/2),
		}
		for _, name := range good {
			got, err := client.ResolveRoom(ctx, name, affinity.Demand{Size: 2})
			if err != nil || got.Room != name || got.Epoch == 0 {
				t.Errorf("resolve %q: %+v, %v", name, got, err)
			}
			detail, err := client.Room(ctx, name, affinity.Demand{Size: 2})
			if err != nil || detail.Room != name || !detail.Pinned || detail.Node.ID != got.Node.ID {
				t.Errorf("show %q: %+v, %v", name, detail, err)
			}
			if got, err := client.RoomRelays(ctx, name, affinity.Demand{}, 0); err != nil || got.Room != name || len(got.Relays) != 2 {
				t.Errorf("relays of %q: %+v, %v", name, got, err)
			}
			if moved, err := client.MoveRoom(ctx, name, "c"); err != nil || moved.Room != name || moved.Node.ID != "c" {
				t.Errorf("move %q: %+v, %v", name, moved, err)
			}
		}
		list, err := client.Rooms(ctx, "c", 0)
		var names []string
		for _, r := range list.Rooms {
			names = append(names, r.Room)
		}
		slices.Sort(good)
		if err != nil || !slices.Equal(names, good) {
			t.Errorf("listed %q, %v", names, err)
		}
		for _, name := range good {
			if err := client.ReleaseRoom(ctx, name); err != nil {
				t.Errorf("release %q: %v", name, err)
			}
		}
	})
}

func TestNotRoomNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		roomCluster := open(t, pinstore.NewMemory(), Options{})
		client := roomCluster.clients["a"]
		h := Handler(roomCluster.Agent("a"), Options{Log: quiet, Rooms: roomCluster.rooms["a"]})
		for _, name := range []string{
			"", "{", "}", "{17}", "*", "a*", "\x00", "a\nb", "\x7f", "\u0085", "\xff", "a\xc3", "\xed\xa0\x80",
			strings.Repeat("x", affinity.MaxNameBytes+1), strings.Repeat("x", 10_000), strings.Repeat("%", 10_000),
		} {
			_, err := client.ResolveRoom(ctx, name, affinity.Demand{})
			expectProblem(t, err, 400, CodeBadRequest, "room: invalid name")
			_, err = client.Room(ctx, name, affinity.Demand{})
			expectProblem(t, err, 400, CodeBadRequest, "room: invalid name")
			_, err = client.MoveRoom(ctx, name, "b")
			expectProblem(t, err, 400, CodeBadRequest, "room: invalid name")
			expectProblem(t, client.ReleaseRoom(ctx, name), 400, CodeBadRequest, "room: invalid name")
			if name == "" {
				continue
			}
			path := "/v1/rooms/" + url.PathEscape(name) // as other clients send it
			for method, rest := range map[string]string{"GET": "", "DELETE": "", "POST": "/resolve"} {
				expect(t, do(h, method, path+rest, ""), 400, "room: invalid name")
			}
			expect(t, do(h, "POST", path+"/move", `{"to":"b"}`), 400, "room: invalid name")
		}
		for _, path := range []string{
			"/v1/rooms//resolve", "/v1/rooms/./resolve", "/v1/rooms/x/../resolve", "/v1/rooms/a/b/resolve",
			"/v1/rooms/x/", "/v1/rooms/%2F/resolve",
		} {
			expect(t, do(h, "POST", path, ""), 404, CodeNotFound)
		}
		below := http.StripPrefix("/roost", h)
		expect(t, do(below, "POST", "/roost/v1/rooms/a/b/resolve", ""), 404, CodeNotFound)
		if list, err := client.Rooms(ctx, "", 0); err != nil || len(list.Rooms) > 0 {
			t.Errorf("pinned anyway: %+v, %v", list, err)
		}
		expect(t, do(below, "POST", "/roost/v1/rooms/a%2F%2E%2E/resolve", ""), 200, `{"room":"a/.."`)
	})
}

// Every agent returns the same node for a room. Only that node hosts the room, as long as clients call resolve
// regularly.
func TestResolveHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		const within = 20 * time.Second
		h := open(t, pinstore.NewMemory(), Options{HostFor: within})
		hosted := func(id string) int {
			rooms, _ := h.rooms[id].Hosted()
			return len(rooms)
		}
		home, other := "", ""
		for _, id := range []string{"a", "b", "c", "a", "b", "c"} {
			got, err := h.clients[id].ResolveRoom(ctx, "room", affinity.Demand{Size: 4})
			if err != nil || (home != "" && string(got.Node.ID) != home) {
				t.Fatalf("%s says %+v, %v; before that it was %s", id, got, err, home)
			}
			home = string(got.Node.ID)
			switch {
			case id != home:
				other = id
				fallthrough
			default:
				if got.Hosted != (id == home) || (got.TouchWithinS == 20) != got.Hosted || got.Epoch == 0 || got.Node.Addr == "" {
					t.Errorf("%s says %+v", id, got)
				}
			}
		}
		for _, id := range h.IDs() {
			if want := id == home; (hosted(id) == 1) != want {
				t.Errorf("%s hosts %d rooms, want it: %v", id, hosted(id), want)
			}
		}
		for range 5 { // called often enough
			time.Sleep(within * 9 / 10)
			if got, err := h.clients[home].ResolveRoom(ctx, "room", affinity.Demand{Size: 3}); err != nil || !got.Hosted {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if _, units := h.rooms[home].Hosted(); units != 12 {
			t.Errorf("a room of 4 costs %d units after a join with 3", units)
		}
		if got, err := h.clients[home].TouchRoom(ctx, "room", affinity.Demand{Size: 3}); err != nil || !got.Hosted {
			t.Fatalf("%+v, %v", got, err)
		}
		if _, units := h.rooms[home].Hosted(); units != 6 {
			t.Errorf("a room of 3 costs %d units", units)
		}

		// After a room has moved, the old node's agent returns the new node.
		moved, err := h.clients[home].MoveRoom(ctx, "room", other)
		if err != nil || string(moved.Node.ID) != other || moved.Hosted {
			t.Errorf("move: %+v, %v", moved, err)
		}
		got, err := h.clients[home].ResolveRoom(ctx, "room", affinity.Demand{Size: 3})
		if err != nil || string(got.Node.ID) != other || got.Hosted || hosted(home) != 0 {
			t.Errorf("%s hosts %d and says %+v, %v", home, hosted(home), got, err)
		}
		got, err = h.clients[other].ResolveRoom(ctx, "room", affinity.Demand{Size: 3})
		if err != nil || !got.Hosted || got.Epoch != moved.Epoch || hosted(other) != 1 {
			t.Errorf("%s hosts %d and says %+v, %v", other, hosted(other), got, err)
		}

		time.Sleep(within + 10*time.Second) // without a resolve the hosting expires
		if hosted(other) != 0 {
			t.Error("the hosting does not expire")
		}
		if d, err := h.clients[home].Room(ctx, "room", affinity.Demand{}); err != nil || !d.Pinned {
			t.Errorf("the pin expired with the hosting: %+v, %v", d, err)
		}
		time.Sleep(pinTTL)
		if d, err := h.clients[home].Room(ctx, "room", affinity.Demand{}); err != nil || d.Pinned {
			t.Errorf("the pin does not expire: %+v, %v", d, err)
		}
	})
}

// A client reports over HTTP that it cannot reach a room's node. The room stays on a node that runs, and moves away
// from a node that has ended.
func TestReportRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{})
		was, err := h.clients["a"].ResolveRoom(t.Context(), "room", affinity.Demand{Size: 3})
		if err != nil {
			t.Fatal(err)
		}
		at := "a"
		if was.Node.ID == "a" {
			at = "b"
		}
		last := reconnect.Directive{Room: "room", To: was.Node.ID, Epoch: was.Epoch}
		if is, err := h.clients[at].ReportRoom(t.Context(), last); err != nil || is.Node.ID != was.Node.ID || is.Epoch != was.Epoch {
			t.Errorf("of a node that runs: %+v, %v", is, err)
		}
		handler := Handler(h.Agent(at), Options{Log: quiet, Rooms: h.rooms[at]})
		json := "Content-Type: application/json"
		expect(t, do(handler, "POST", "/v1/rooms/room/report", `{"epoch":1}`, json), 400, "to is missing")
		expect(t, do(handler, "POST", "/v1/rooms/room/report", `{"to":""}`, json), 400, "to: ")
		expect(t, do(handler, "POST", "/v1/rooms/other/report", `{"to":"b"}`, json), 404, CodeNoPin)
		time.Sleep(time.Second)

		h.Crash(string(was.Node.ID))
		began := time.Now()
		is, err := h.clients[at].ReportRoom(t.Context(), last)
		took := time.Since(began)
		if err != nil || is.Node.ID == was.Node.ID || is.Epoch <= was.Epoch || is.Node.Addr == "" || took > time.Second {
			t.Errorf("of a node that has ended: %+v, %v after %v", is, err, took)
		}
	})
}

// If HostFor is negative, resolve does not host the room.
func TestResolveWithoutHosting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{HostFor: -1})
		for id, client := range h.clients {
			if got, err := client.ResolveRoom(t.Context(), "room", affinity.Demand{Size: 4}); err != nil || got.Hosted || got.TouchWithinS != 0 {
				t.Errorf("%+v, %v", got, err)
			}
			if rooms, _ := h.rooms[id].Hosted(); len(rooms) > 0 {
				t.Errorf("%s hosts %v", id, rooms)
			}
		}
	})
}

// broken is a store that fails, or reports a concurrent change, if the test wants that.
type broken struct {
	*pinstore.Memory
	fails, overtaken atomic.Bool
}

var errDown = errors.New("connection refused")

func (b *broken) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	results := make([]pinstore.Result, len(ops))
	for i, op := range ops {
		switch {
		case ctx.Err() != nil || b.fails.Load():
			results[i].Err = errors.Join(pinstore.ErrStore, errDown, ctx.Err())
		case b.overtaken.Load() && op.If != (pinstore.Pin{}):
			results[i].Pin = pinstore.Pin{Incarnation: lease.Incarnation{Node: "c", Number: 1}, Epoch: 9}
		default:
			results[i] = b.Memory.Swap(ctx, op)[0]
		}
	}
	return results
}

func (b *broken) Index(
	ctx context.Context,
	ps []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) ([]pinstore.Entry, error) {
	if b.fails.Load() {
		return nil, errDown
	}
	return b.Memory.Index(ctx, ps, want, limit)
}

func (b *broken) Heartbeat(ctx context.Context, self lease.Incarnation, ttl time.Duration, ask []lease.Incarnation) ([]bool, error) {
	if b.fails.Load() {
		return nil, errDown
	}
	return b.Memory.Heartbeat(ctx, self, ttl, ask)
}

// If the store fails, resolve returns a degraded assignment, and calls that read pins fail.
func TestRoomsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := &broken{Memory: pinstore.NewMemory()}
		h := open(t, store, Options{})
		client := h.clients["a"]
		if _, err := client.ResolveRoom(ctx, "known", affinity.Demand{Size: 2}); err != nil {
			t.Fatal(err)
		}
		store.fails.Store(true)
		time.Sleep(5 * time.Second)
		if got, err := client.ResolveRoom(ctx, "new", affinity.Demand{Size: 2}); err != nil ||
			got.Source != affinity.Degraded || got.Node.ID == "" || got.Epoch != 0 {
			t.Errorf("resolve: %+v, %v", got, err)
		}
		if d, err := client.Room(ctx, "known", affinity.Demand{Size: 2}); err != nil || d.Source != affinity.Degraded || d.Pinned {
			t.Errorf("of a known room: %+v, %v", d, err)
		}
		if d, err := client.Room(ctx, "other", affinity.Demand{Size: 2}); err != nil || d.Source != affinity.Degraded || d.Pinned ||
			!strings.Contains(d.Reason, "the store does not answer") {
			t.Errorf("of an unknown room: %+v, %v", d, err)
		}
		_, err := client.Rooms(ctx, "", 0)
		expectProblem(t, err, 503, CodeStore, "the store does not answer: connection refused")
		_, err = client.MoveRoom(ctx, "known", "b")
		expectProblem(t, err, 503, CodeStore, "the store does not answer")
		expectProblem(t, client.ReleaseRoom(ctx, "known"), 503, CodeStore, "the store does not answer")
		w := do(Handler(h.Agent("a"), Options{Log: quiet, Rooms: h.rooms["a"]}), "GET", "/v1/rooms", "")
		if w.Header().Get("Retry-After") == "" {
			t.Error("Retry-After is missing")
		}
		store.fails.Store(false)
		time.Sleep(5 * time.Second)
		store.overtaken.Store(true)
		_, err = client.MoveRoom(ctx, "known", "b")
		expectProblem(t, err, 409, CodeChanged, "resolve the room again")
		store.overtaken.Store(false)

		if err := h.rooms["a"].Close(); err != nil {
			t.Error(err)
		}
		id := keyAt(t, h.Agent("a"), "a")
		_, err = client.ResolveRoom(ctx, id, affinity.Demand{Size: 2})
		expectProblem(t, err, 503, CodeClosed, "no longer hosts rooms")
	})
}

// If callers disconnect, the node must not conclude that the store does not respond.
func TestRoomHangUps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		roomCluster := open(t, &broken{Memory: pinstore.NewMemory()}, Options{})
		h := Handler(roomCluster.Agent("a"), Options{Log: quiet, Rooms: roomCluster.rooms["a"]})
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		expect(t, do(h, "POST", "/v1/rooms/x/resolve", ""), 200, "hash")
		for target, body := range map[string]string{
			"GET /v1/rooms/x": "", "GET /v1/rooms/x/relays": "", "GET /v1/rooms": "", "DELETE /v1/rooms/y": "",
			"POST /v1/rooms/y/resolve": "", "POST /v1/rooms/z/move": `{"to":"b"}`,
		} {
			for range 10 { // several in a row, because one alone might be ignored
				method, path, _ := strings.Cut(target, " ")
				r := httptest.NewRequestWithContext(gone, method, path, strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
			if roomCluster.rooms["a"].Stats().StoreDoubt {
				t.Fatalf("%s: the store is in doubt", target)
			}
		}
		expect(t, do(h, "POST", "/v1/rooms/z/resolve", ""), 200, "hash")
	})
}

// A pin may name a node that the answering node does not know.
func TestUnknownNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := pinstore.NewMemory()
		h := open(t, store, Options{})
		far := lease.Incarnation{Node: "far", Number: 1 << 60}
		if _, err := store.Heartbeat(t.Context(), far, time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		store.Swap(t.Context(), pinstore.Op{
			Partition: placement.Of("room", h.Agent("a").Config().Partitions), Room: "room", Set: pinstore.Pin{Incarnation: far}, TTL: time.Hour,
		})
		want := Member{Profile: lease.Profile{ID: "far", Incarnation: far.Number}, State: lease.Left}
		got, err := h.clients["a"].ResolveRoom(t.Context(), "room", affinity.Demand{})
		if err != nil || got.Node.ID != want.ID || got.Node.State != want.State || got.Incarnation != 1<<60 || got.Hosted {
			t.Errorf("resolve: %+v, %v", got, err)
		}
		if d, err := h.clients["b"].Room(t.Context(), "room", affinity.Demand{}); err != nil || !d.Pinned || d.Node.ID != "far" {
			t.Errorf("show: %+v, %v", d, err)
		}
	})
}

// A node that computes its load from its rooms rejects a posted load. A posted load would replace the computed load
// until the next room begins or ends, so the node would look too full or too empty.
func TestPostedLoadNextToAComputedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		rooms := startRooms(t, c, pinstore.NewMemory(), affinity.Config{ReportLoad: true})
		client := serve(t, NewServer(Handler(c.Agent("a"), Options{Log: quiet, Rooms: rooms["a"]}))).client(t)
		_, err := client.SetLoad(t.Context(), 5000)
		p, ok := errors.AsType[*Problem](err)
		if !ok || p.Status != http.StatusConflict || !strings.Contains(p.Message, "--report-load") || !errors.Is(err, cluster.ErrLoadComputed) {
			t.Errorf("a load was posted: %v", err)
		}
		time.Sleep(5 * time.Second)
		if load := c.Agent("b").Members()[0].Load; load != 0 {
			t.Errorf("a carries %d units without a room", load)
		}
		if _, err := client.SetUse(t.Context(), map[string]int64{"cpu": 1}); err == nil || !strings.Contains(err.Error(), "--resources") {
			t.Errorf("the use of a resource that a does not have: %v", err)
		}
		_ = rooms["a"].Close()
		if _, err := client.SetLoad(t.Context(), 5); err != nil {
			t.Errorf("after the resolver has ended: %v", err)
		}
	})
}

// If this node has never seen another node, the response has no age for that node. It must not have an age of 292
// years.
func TestNeverMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := pinstore.NewMemory()
		c := open(t, store, Options{})
		if _, err := c.clients["b"].ResolveRoom(ctx, "standup", affinity.Demand{}); err != nil {
			t.Fatal(err)
		}
		c.Split([]string{"a"}, []string{"b", "c"})
		time.Sleep(15 * time.Second)
		c.Start("d")
		d, err := affinity.Start(c.Agent("d"), store, affinity.Config{PinTTL: pinTTL, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		c.Split([]string{"a"}, []string{"b", "c", "d"})
		time.Sleep(15 * time.Second)
		if _, err := c.clients["b"].MoveRoom(ctx, "standup", "d"); err != nil {
			t.Fatal(err)
		}
		for id, met := range map[string]bool{"a": false, "b": true} {
			w := httptest.NewRecorder()
			Handler(c.Agent(id), Options{Log: quiet, Rooms: c.rooms[id]}).ServeHTTP(w,
				httptest.NewRequest(http.MethodGet, "http://localhost/v1/rooms/standup", nil))
			if body := w.Body.String(); !strings.Contains(body, `"node":{"id":"d"`) || strings.Contains(body, `"age_ms"`) != met {
				t.Errorf("%s answers %d %s", id, w.Code, body)
			}
			members, err := c.clients[id].Members(ctx)
			for _, m := range members.Members {
				if m.AgeMS < 1 || err != nil {
					t.Errorf("%s says that the lease of %s is %d ms old (%v)", id, m.ID, m.AgeMS, err)
				}
			}
		}
	})
}

// The history contains the events of rooms and of members in chronological order.
func TestHistoryOfRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, pinstore.NewMemory(), Options{})
		time.Sleep(time.Second)
		const room = "retro"
		at, err := c.rooms["a"].Resolve(t.Context(), room, affinity.Demand{})
		if err != nil {
			t.Fatal(err)
		}
		to := lease.NodeID("a")
		if at.Node == to {
			to = "b"
		}
		if _, err := c.rooms["a"].Move(t.Context(), room, to); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.Crash("c")
		time.Sleep(time.Minute)
		got, err := c.clients["a"].History(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, e := range got.Events {
			kinds = append(kinds, string(e.Kind))
			if e.Kind == affinity.EventRoomsMoved && (e.Member != at.Node || e.Rooms != 1 || e.Reason != "moved on request") {
				t.Errorf("%+v", e)
			}
		}
		if text := strings.Join(kinds, " "); text != "started ready rooms-moved lost moved" {
			t.Error(text)
		}
	})
}
