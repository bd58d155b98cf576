package signalling_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/affinity/signalling"
)

// A server of the fleet sends clients to the nodes that host their rooms.
func Example() {
	log := slog.New(slog.DiscardHandler)
	agent, err := cluster.Start(context.Background(), cluster.Config{
		ID: "node-1", Bind: "127.0.0.1:0", Partitions: 8, APIAddr: "media-1.example.org:443", Log: log,
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = agent.Close() }()
	<-agent.Ready()
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: log})
	if err != nil {
		panic(err)
	}
	defer func() { _ = rooms.Close() }()

	mux := http.NewServeMux()
	mux.Handle("POST /whip/{room}", signalling.Redirect(rooms, "https")) // only on a server that hosts no rooms
	mux.Handle("GET /where/{room}", signalling.Where(rooms))
	mux.Handle("GET /follow/{room}", signalling.Follow(rooms, 0))
	mux.Handle("POST /report/{room}", signalling.Report(rooms))
	mux.Handle("GET /reconnect.mjs", signalling.JavaScript())
	for _, target := range []string{"GET /where/standup", "POST /whip/standup", "GET /where/bad*name"} {
		var method, path string
		_, _ = fmt.Sscan(target, &method, &path)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		var d reconnect.Directive
		_ = json.Unmarshal(answer.Body.Bytes(), &d)
		fmt.Println(answer.Code, d.Addr+answer.Header().Get("Location"))
	}
	// Output:
	// 200 media-1.example.org:443
	// 307 https://media-1.example.org:443/whip/standup
	// 400
}
