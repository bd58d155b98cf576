package routing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// withRooms starts a resolver on each agent. The resolvers share a store.
func (w *web) withRooms() map[string]*affinity.Resolver {
	w.t.Helper()
	store, all := pinstore.NewMemory(), make(map[string]*affinity.Resolver)
	for _, id := range w.c.IDs() {
		rooms, err := affinity.Start(w.c.Agent(id), store, affinity.Config{Log: quiet})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = rooms.Close() })
		all[id] = rooms
		w.serve(id, clusterhttp.NewServer(clusterhttp.Handler(w.c.Agent(id), clusterhttp.Options{Log: quiet, Rooms: rooms})))
	}
	return all
}

// The agent that the client follows resolves rooms, but does not host them. If that agent fails, another agent resolves
// them.
func TestResolve(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		rooms := w.withRooms()
		f := w.follow("a", "b")
		w.ready(f)
		for _, room := range []string{"one", "two/..", "../..", "three", "four"} {
			d, err := f.Resolve(t.Context(), room, 3)
			at, wantErr := rooms["c"].Resolve(t.Context(), room, affinity.Demand{})
			if err != nil || wantErr != nil || d.To != at.Node || d.Epoch != at.Epoch || d.Room != room ||
				d.Addr != string(d.To)+".example:9000" || d.Epoch == 0 {
				t.Errorf("%+v, %v; want %+v, %v", d, err, at, wantErr)
			}
		}
		if stats := rooms["a"].Stats(); stats.Hosted != 0 {
			t.Errorf("the agent hosts %d rooms", stats.Hosted)
		}
		if _, err := f.Resolve(t.Context(), "bad*name", 0); !isStatus(err, 400) {
			t.Errorf("a name that is none: %v", err)
		}
		host, _, _ := strings.Cut(f.Status().Agent, ":")
		w.c.Crash(host)
		if d, err := f.Resolve(t.Context(), "after", 0); err != nil || d.To == "" {
			t.Errorf("after a crash: %+v, %v", d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Resolve(ctx, "late", 0); !errors.Is(err, context.Canceled) {
			t.Errorf("after its context: %v", err)
		}
		w.c.Crash(others([]string{"a", "b"}, host)[0])
		if _, err := f.Resolve(t.Context(), "alone", 0); err == nil {
			t.Error("resolved without an agent")
		}
	})
}

func isStatus(err error, status int) bool {
	answer, ok := errors.AsType[*routing.AgentError](err)
	return ok && answer.Status == status
}

// The stream of a room returns each new node of the room, continues with another agent if its agent crashes, and ends
// with its context.
func TestFollowRoom(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		rooms := w.withRooms()
		f := w.follow("a", "b")
		w.ready(f)
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan reconnect.Directive, 10)
		go func() {
			defer close(seen)
			for d := range f.Follow(ctx, "room") {
				seen <- d
			}
		}()
		expect := func(to string) {
			t.Helper()
			select {
			case d := <-seen:
				if string(d.To) != to {
					t.Errorf("it is at %+v, want %s", d, to)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("no word of %s", to)
			}
		}
		time.Sleep(time.Second)
		at, err := rooms["c"].Resolve(t.Context(), "room", affinity.Demand{})
		if err != nil {
			t.Fatal(err)
		}
		expect(string(at.Node))
		host, _, _ := strings.Cut(f.Status().Agent, ":")
		other := others([]string{"a", "b"}, host)[0]
		to := other
		if string(at.Node) == other {
			to = "c"
		}
		move(t, rooms["c"], to)
		expect(to)
		w.c.Crash(host)
		time.Sleep(10 * time.Second)
		at, _ = rooms["c"].Resolve(t.Context(), "room", affinity.Demand{})
		next := others([]string{other, "c"}, string(at.Node))[0]
		move(t, rooms["c"], next)
		expect(next)
		cancel()
		for d := range seen {
			t.Errorf("%+v after the end", d)
		}
	})
}

// If an agent hangs, the stream of a room switches to another agent as soon as the routing client does.
func TestFollowRoomOfHungAgent(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		rooms := w.withRooms()
		at, err := rooms["c"].Resolve(t.Context(), "room", affinity.Demand{})
		if err != nil {
			t.Fatal(err)
		}
		f := w.follow("a", "b")
		w.ready(f)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan reconnect.Directive, 10)
		go func() {
			for d := range f.Follow(ctx, "room") {
				seen <- d
			}
		}()
		<-seen
		host, _, _ := strings.Cut(f.Status().Agent, ":")
		w.hold(host)
		next := others([]string{"a", "b", "c"}, string(at.Node))[0]
		move(t, rooms["c"], next)
		began := time.Now()
		select {
		case d := <-seen:
			if took := time.Since(began); string(d.To) != next || took > 3*time.Second {
				t.Errorf("%+v after %v", d, took)
			}
		case <-time.After(time.Minute):
			t.Error("no word of the move")
		}
		w.release(host)
	})
}

func move(t *testing.T, rooms *affinity.Resolver, to string) {
	t.Helper()
	if _, err := rooms.Move(t.Context(), "room", lease.NodeID(to)); err != nil {
		t.Fatal(err)
	}
}

// If a room has no pin, its stream sends no directive. This is not a failure, even if the caller ends the stream or the
// agent ends it after half a minute.
func TestFollowRoomWithoutPin(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		var opened atomic.Int64
		for _, id := range []string{"a", "b"} {
			w.answer(id, func(rw http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/room/follow") {
					rw.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				opened.Add(1)
				rw.Header().Set("Content-Type", "text/event-stream")
				for range 3 {
					if err := http.NewResponseController(rw).Flush(); err != nil || r.Context().Err() != nil {
						return
					}
					time.Sleep(10 * time.Second)
					_, _ = fmt.Fprint(rw, ": keep-alive\n\n")
				}
			})
		}
		for _, agents := range [][]string{{"a"}, {"a", "b"}} {
			for _, long := range []time.Duration{5 * time.Second, 5 * time.Minute} {
				var log agentproc.Log
				f := w.followAs(routing.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, agents...)
				before := opened.Load()
				ctx, cancel := context.WithTimeout(t.Context(), long)
				for d := range f.Follow(ctx, "room") {
					t.Errorf("%+v", d)
				}
				cancel()
				_ = f.Close()
				if text := log.String(); strings.Contains(text, "no agent follows the room") {
					t.Errorf("%v, %v: %s", agents, long, text)
				}
				if n := opened.Load() - before; n != 1+int64(long/(30*time.Second)) && n != int64(long/(30*time.Second)) {
					t.Errorf("%v, %v: opened %d times", agents, long, n)
				}
			}
		}
	})
}

// If the loop body takes minutes, the stream does not end. If the stream is silent afterwards, it ends.
func TestFollowRoomSlowly(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		table := clusterServer(w.c.Agent("a")).Handler
		var opened atomic.Int64
		w.answer("a", func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/room/follow") {
				table.ServeHTTP(rw, r)
				return
			}
			n := opened.Add(1)
			rw.Header().Set("Content-Type", "text/event-stream")
			for _, to := range []string{"b", "c"} {
				_, _ = fmt.Fprintf(rw, "data: {\"room\": \"room\", \"to\": %q, \"epoch\": %d}\n\n", fmt.Sprint(to, n), n)
				_ = http.NewResponseController(rw).Flush()
			}
			<-r.Context().Done()
		})
		f := w.follow("a")
		w.ready(f)
		var seen []string
		var pauses []time.Duration
		last := time.Now()
		for d := range f.Follow(t.Context(), "room") {
			seen, pauses = append(seen, string(d.To)), append(pauses, time.Since(last))
			if len(seen) == 3 {
				break
			}
			time.Sleep(5 * time.Minute)
			last = time.Now()
		}
		if got := fmt.Sprint(seen); got != "[b1 c1 b2]" || pauses[2] < 50*time.Second || pauses[2] > 52*time.Second {
			t.Errorf("%s after %v", got, pauses)
		}
	})
}

// If no agent accepts the token, the client logs one warning and continues to ask.
func TestFollowRoomRefused(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		var asked atomic.Int64
		refused := func(rw http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			rw.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(rw, `{"error":"the token is another one","code":"unauthorized"}`)
		}
		w.answer("a", refused)
		w.answer("b", refused)
		var log agentproc.Log
		f := w.followAs(routing.Config{Token: "wrong", Log: slog.New(slog.NewTextHandler(&log, nil))}, "a", "b")
		if _, err := f.Resolve(t.Context(), "room", 0); !isStatus(err, http.StatusUnauthorized) {
			t.Errorf("Resolve: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for d := range f.Follow(ctx, "room") {
					t.Errorf("%+v", d)
				}
			})
		}
		all.Wait()
		for _, line := range []string{"no agent has a current table", "no agent follows the room"} {
			if text := log.String(); strings.Count(text, line) != 1 || strings.Count(text, "the token is another one") < 2 {
				t.Errorf("not logged once: %s\n%s", line, text)
			}
		}
		if n := asked.Load(); n < 120 || n > 600 {
			t.Errorf("asked %d times within a minute, for the table and five rooms", n)
		}
	})
}

// If a routing client has created its own transport, Close closes all connections.
func TestCloseEndsConnections(t *testing.T) {
	var open atomic.Int64
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(rw, `{"room":"room","node":{"id":"a"},"epoch":1}`)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			open.Add(1)
		}
		if s == http.StateClosed {
			open.Add(-1)
		}
	}
	srv.Start()
	defer srv.Close()
	f, err := routing.Start(t.Context(), routing.Config{Agents: []string{srv.URL}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := f.Resolve(t.Context(), "room", 0); err != nil || d.To != "a" {
		t.Fatalf("%+v, %v", d, err)
	}
	if open.Load() == 0 {
		t.Error("no connection is open")
	}
	_ = f.Close()
	for deadline := time.Now().Add(10 * time.Second); open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are open after Close", open.Load())
		}
	}
}
