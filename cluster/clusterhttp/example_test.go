package clusterhttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// start returns the only node of a cluster when it is ready.
func start() *cluster.Agent {
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-a", Bind: "127.0.0.1:0", APIAddr: "sfu-a.example:443", Bootstrap: true,
		Network: cluster.Local, LeaseTTL: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	<-agent.Ready()
	return agent
}

// A program mounts the API in its own HTTP server.
func ExampleHandler() {
	agent := start()
	defer agent.Close()

	mux := http.NewServeMux()
	mux.Handle("/roost/", http.StripPrefix("/roost", clusterhttp.Handler(agent, clusterhttp.Options{
		Token: "from a file", // other machines reach the mux
		Log:   slog.New(slog.DiscardHandler),
	})))
	mux.HandleFunc("GET /join/{room}", func(w http.ResponseWriter, r *http.Request) {
		owner, err := agent.Place(r.PathValue("room"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "go to", owner.APIAddr)
	})

	ask := func(method, path string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, nil))
		fmt.Printf("%d %s", w.Code, w.Body)
	}
	ask("GET", "/join/room-17")
	ask("GET", "/roost/readyz")
	ask("GET", "/roost/v1/place")
	ask("POST", "/roost/v1/leave")
	// Output:
	// 200 go to sfu-a.example:443
	// 200 {"status":"ready"}
	// 400 {"error":"key is missing: request /v1/place?key=…","code":"bad_request"}
	// 401 {"error":"this needs the header Authorization: Bearer with the agent's token","code":"unauthorized"}
}

func ExampleNewServer() {
	agent := start()
	defer agent.Close()

	srv := clusterhttp.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{}))
	srv.Addr = "127.0.0.1:0" // usually clusterhttp.DefaultBase
	ended := make(chan error)
	go func() { ended <- srv.ListenAndServe() }()

	// … until shutdown. Leave first, because other nodes must know before clients do.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := agent.Leave(ctx); err != nil {
		fmt.Println(err)
	}
	if err := srv.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-ended)
	// Output: http: Server closed
}

func ExampleClient() {
	agent := start()
	defer agent.Close()
	srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: slog.New(slog.DiscardHandler)}))
	defer srv.Close()

	ctx := context.Background()
	client := clusterhttp.Client{Base: srv.URL} // or "127.0.0.1:8401"
	placed, err := client.Place(ctx, "room-17")
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(placed.Key, "is at", placed.Owner.ID, "which serves at", placed.Owner.APIAddr)

	drained, err := client.Drain(ctx)
	fmt.Println(drained.State, drained.Converged, err)
	_, err = client.Place(ctx, "room-17")
	fmt.Println(err)
	// Output:
	// room-17 is at node-a which serves at sfu-a.example:443
	// draining true <nil>
	// no member can own anything: 1 draining; undrain a member, or start another node (no_members)
}

func ExampleClient_Events() {
	agent := start()
	defer agent.Close()
	srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: slog.New(slog.DiscardHandler)}))
	defer srv.Close()

	client := clusterhttp.Client{Base: srv.URL}
	for batch, err := range client.Events(context.Background()) {
		if err != nil {
			fmt.Println("the end") // range again to continue
			break
		}
		fmt.Println("released", len(batch.Released), "acquired", len(batch.Acquired))
		if len(batch.Acquired) > 0 {
			go agent.Close()
		}
	}
	// Output:
	// released 0 acquired 1024
	// released 1024 acquired 0
	// the end
}

// An agent next to a media server in another language returns the node of a room, and
// keeps the room pinned while it is on this node.
func ExampleClient_ResolveRoom() {
	agent := start()
	defer agent.Close()
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	defer rooms.Close()
	srv := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{
		Rooms: rooms, Log: slog.New(slog.DiscardHandler),
	}))
	defer srv.Close()

	client := clusterhttp.Client{Base: srv.URL, HTTP: srv.Client()}
	at, err := client.ResolveRoom(context.Background(), "room-17", affinity.Demand{Size: 4})
	if err != nil {
		panic(err)
	}
	if at.Hosted {
		fmt.Printf("serve %s here, and ask again within %d s\n", at.Room, at.TouchWithinS)
	} else {
		fmt.Println("redirect to", at.Node.APIAddr)
	}
	// Output: serve room-17 here, and ask again within 3600 s
}
