package browser

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/redistest"
)

// twoNodes are node-a and node-b, with rooms on one Redis.
type twoNodes struct {
	a, b         *cluster.Agent
	redis        *redistest.Server
	rooms, other *affinity.Resolver // of node-a and node-b
	address      string             // of the page of node-a
	client       *clusterhttp.Client
}

func startTwo(t *testing.T) *twoNodes {
	t.Helper()
	const ttl = 10 * time.Second
	n := &twoNodes{a: agent(t, ttl, "node-a"), redis: redistest.Start(t)}
	n.b = agent(t, ttl, "node-b", n.a.Addr())
	resolver := func(a *cluster.Agent) *affinity.Resolver {
		redis, err := rueidisconn.Open(t.Context(), rueidisconn.Options{URL: n.redis.URL()})
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(redis, redisstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		rooms, err := affinity.Start(a, store, affinity.Config{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rooms.Close() })
		return rooms
	}
	n.rooms, n.other = resolver(n.a), resolver(n.b)
	n.address, n.client = serve(t, n.a, clusterhttp.Options{Rooms: n.rooms})
	members(t, n.client, "node-a", "node-b")
	<-n.a.Ready()
	<-n.b.Ready()
	wait(t, "agreement", func() bool { return n.a.Converged() && n.b.Converged() && len(n.b.Owned()) > 0 })
	return n
}

// open opens the page of node-a.
func (n *twoNodes) open(t *testing.T) *tab {
	t.Helper()
	p := open(t, n.address, 1440, 900)
	p.ready(2)
	return p
}

// resolve assigns a room to a node.
func (n *twoNodes) resolve(t *testing.T, room, size int) affinity.Assignment {
	t.Helper()
	at, err := n.rooms.Resolve(t.Context(), fmt.Sprint("room-", room), affinity.Demand{Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// While Redis is down, the page says so, and what to do. It does not say that rooms moved, because none did.
func TestRedisStops(t *testing.T) {
	n := startTwo(t)
	for i := range 50 {
		n.resolve(t, i, 2)
	}
	p := n.open(t)
	n.redis.Kill()
	wait(t, "an agent that notices", func() bool { return n.rooms.Stats().StoreDoubt })
	p.text("#health-found [data-level=bad] .finding", "Redis has not answered lately")
	p.text("#health-found .fix", "check whether Redis runs")
	p.text("#store-number", "No answer")
	if seen := eval[string](p, `document.getElementById("events").innerText`); regexp.MustCompile(`rooms? moved`).MatchString(seen) {
		t.Errorf("Redis stopped, no room moved, and the page says\n%s", seen)
	}

	n.redis.Restart()
	p.until("all is well again",
		`document.getElementById("health").dataset.level === "good" && document.getElementById("store-number").textContent === "Up"`)
	p.clean(n.address)
}

// The rooms of a node can be listed, moved and released, and the page shows what the store then contains.
func TestRoomsOfANode(t *testing.T) {
	n := startTwo(t)
	on := func(node string) (names []string) {
		all, err := n.client.Rooms(t.Context(), node, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all.Rooms {
			names = append(names, r.Room)
		}
		return names
	}
	for i := 0; len(on("node-a")) < 3; i++ {
		n.resolve(t, i, i+1)
	}
	here, there := on("node-a"), len(on("node-b"))
	p := n.open(t)
	p.do(press("#members-body .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
	p.text("#node-title", "node-a")
	p.text("#node-facts", n.a.Addr())
	if listed := eval[string](p, `document.getElementById("rooms-body").textContent`); listed != "" {
		t.Errorf("rooms were listed without a request: %s", listed)
	}
	p.do(press("#rooms-list"))
	for _, room := range here {
		p.text("#rooms-body th", room)
	}
	p.until("the largest first", `(n => n.length === 3 && n[0] > n[1] && n[1] > n[2])(
		[...document.querySelectorAll("#rooms-body td:nth-child(2)")].map(e => +e.textContent))`)

	p.do(press(fmt.Sprintf(`#rooms-body [aria-label="Move %s"]`, here[0])), chromedp.WaitVisible(chromedp.CSS("#confirm")))
	p.text("#confirm", fmt.Sprintf("Move %s to node-b?", here[0]))
	p.do(press("#confirm-yes"))
	p.text("#rooms-result", here[0]+" moved to node-b")
	p.text("#rooms-note", "2 rooms")
	p.text("#events", "1 room of node-a moved: on request")
	p.do(press(fmt.Sprintf(`#rooms-body [aria-label="Release %s"]`, here[1])), press("#confirm-yes"))
	p.text("#rooms-result", here[1]+" is released")
	p.text("#rooms-note", "1 room")
	if now := on("node-a"); !slices.Equal(now, here[2:]) {
		t.Errorf("the store has %q on node-a, want %q", now, here[2:])
	}
	if now := len(on("node-b")); now != there+1 {
		t.Errorf("the store has %d rooms on node-b, want %d", now, there+1)
	}
	p.clean(n.address)
}
