package clusterhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/sse"
)

// elsewhere returns a node other than the room's node.
func elsewhere(at RoomAssignment) string {
	if at.Node.ID == "b" {
		return "c"
	}
	return "b"
}

// Moves of rooms have their own event type and no ids. Clients that only know batches ignore them, and the batches keep
// their ids.
func TestMovedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		h := open(t, pinstore.NewMemory(), Options{})
		a := h.Agent("a")
		p := serve(t, NewServer(Handler(a, Options{Log: quiet, Rooms: h.rooms["a"]})))
		l := p.listen(t)
		first := l.batch()

		if _, err := h.clients["b"].ResolveRoom(ctx, "room", affinity.Demand{Size: 2}); err != nil {
			t.Fatal(err)
		}
		at, err := h.clients["a"].ResolveRoom(ctx, "room", affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		to := elsewhere(at)
		moved, err := h.clients["c"].MoveRoom(ctx, "room", to)
		if err != nil {
			t.Fatal(err)
		}
		lines := l.next()
		if len(lines) != 2 || lines[0] != "event: moved" {
			t.Fatalf("%q", lines)
		}
		var b affinity.MovedBatch
		if err := json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &b); err != nil {
			t.Fatal(err)
		}
		if len(b.Moved) != 1 || b.Resync || b.Moved[0].Room != "room" || string(b.Moved[0].To.Node) != to ||
			b.Moved[0].Epoch != moved.Epoch || b.Moved[0].Addr != to+".example:9000" {
			t.Errorf("%+v", b)
		}
		_ = h.rooms["a"].Close() // the rooms end, but the stream continues
		go func() { _ = a.Drain(ctx) }()
		if got := l.batch(); got.Version <= first.Version {
			t.Errorf("batch %d after %d", got.Version, first.Version)
		}
	})
}

// flushing is a response writer that calls a function at each flush.
type flushing struct {
	http.ResponseWriter
	flushed func()
}

func (f flushing) FlushError() error {
	err := http.NewResponseController(f.ResponseWriter).Flush()
	f.flushed()
	return err
}

// If a client receives the first bytes of a stream before it resolves its rooms, it learns of every later move.
func TestMovedFromTheStart(t *testing.T) {
	for _, tt := range []struct {
		id    string // Last-Event-ID
		flush int    // 1: the headers; 2: the resync
	}{{"", 1}, {"of another run", 1}, {"of another run", 2}} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, pinstore.NewMemory(), Options{})
			at, err := h.clients["a"].ResolveRoom(t.Context(), "room", affinity.Demand{Size: 2})
			if err != nil {
				t.Fatal(err)
			}
			api := Handler(h.Agent("a"), Options{Log: quiet, Rooms: h.rooms["a"]})
			flushes := 0
			move := func() {
				if flushes++; flushes != tt.flush {
					return
				}
				if _, err := h.clients["a"].MoveRoom(t.Context(), "room", elsewhere(at)); err != nil {
					t.Error(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events", nil)
			r.Header.Set("Last-Event-ID", tt.id)
			w := httptest.NewRecorder()
			api.ServeHTTP(flushing{w, move}, r)
			if !strings.Contains(w.Body.String(), `{"moved":[{"room":"room",`) {
				t.Errorf("after flush %d, Last-Event-ID %q: %s", tt.flush, tt.id, w.Body)
			}
		})
	}
}

// The Go client receives moves. When a node crashes, the client receives the moves of that node's rooms.
func TestClientMovedRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		h := open(t, pinstore.NewMemory(), Options{})
		lost := make(map[string]bool)
		for i := range 60 {
			room := fmt.Sprintf("room-%d", i)
			if at, err := h.clients["a"].ResolveRoom(ctx, room, affinity.Demand{Size: 2}); err != nil {
				t.Fatal(err)
			} else if at.Node.ID == "c" {
				lost[room] = true
			}
		}
		go func() {
			time.Sleep(time.Second)
			h.Crash("c")
		}()
		seen := 0
		for b, err := range h.clients["a"].MovedRooms(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range b.Moved {
				if !lost[m.Room] || m.From.Node != "c" || m.To.Node == "c" {
					t.Errorf("%+v", m)
				}
				seen++
			}
			if seen >= len(lost) {
				break
			}
		}
		if len(lost) == 0 || seen != len(lost) {
			t.Errorf("%d rooms moved, want %d", seen, len(lost))
		}
		agent := h.Agent("a")
		go func() {
			time.Sleep(time.Second)
			_ = agent.Close()
		}()
		for _, err := range h.clients["a"].MovedRooms(ctx) {
			if !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v", err)
			}
		}
	})
}

// A batch of many rooms is split into several events, so that a slow client can read each event in time.
func TestManyMoved(t *testing.T) {
	const n = 2*roomsInEvent + 1
	b := affinity.MovedBatch{Moved: make([]affinity.Moved, n)}
	for i := range b.Moved {
		b.Moved[i].Room = fmt.Sprintf("room-%d", i)
	}
	for _, want := range []affinity.MovedBatch{b, {Resync: true}} {
		w := httptest.NewRecorder()
		s := stream{Stream: sse.New(w, time.Second)}
		if err := s.sendMoved(want); err != nil {
			t.Fatal(err)
		}
		in := sse.NewReader(w.Body, "moved", maxAnswer)
		got, count := affinity.MovedBatch{}, 0
		for {
			data, err := in.Next()
			if err != nil {
				break
			}
			var part affinity.MovedBatch
			if err := json.Unmarshal(data, &part); err != nil || len(part.Moved) > roomsInEvent {
				t.Fatalf("%d rooms, %v", len(part.Moved), err)
			}
			got.Moved, got.Resync = append(got.Moved, part.Moved...), got.Resync || part.Resync
			count++
		}
		if len(got.Moved) != len(want.Moved) || got.Resync != want.Resync || count != max(1, (len(want.Moved)+roomsInEvent-1)/roomsInEvent) {
			t.Errorf("%d rooms in %d events, resync %v", len(got.Moved), count, got.Resync)
		}
	}
}

// The stream of a room starts with the room's node, contains each move, and ends when the agent ends.
func TestFollowRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{})
		a := h.Agent("a")
		api := Handler(a, Options{Log: quiet, Rooms: h.rooms["a"], MaxStreams: 1, KeepAlive: time.Minute})
		expect(t, do(api, "GET", "/v1/rooms/a*b/follow", ""), 400, CodeBadRequest)
		expect(t, do(Handler(a, Options{Log: quiet}), "GET", "/v1/rooms/r/follow", ""), 501, CodeNoStore)
		expect(t, do(api, "GET", "/reconnect.mjs", ""), 200, "export class Driver")
		expect(t, do(api, "GET", "/routing.mjs", ""), 200, "export class RoutingClient")
		body, pipe := io.Pipe()
		ended := make(chan struct{})
		go func() {
			w := &piped{ResponseRecorder: httptest.NewRecorder(), to: pipe}
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/rooms/r%2F1/follow", nil))
			_ = pipe.Close()
			close(ended)
		}()
		events := sse.NewReader(body, "", maxAnswer)
		next := func() (d reconnect.Directive) {
			data, err := events.Next()
			if err != nil || json.Unmarshal(data, &d) != nil {
				t.Fatalf("%q, %v", data, err)
			}
			return d
		}
		synctest.Wait()
		expect(t, do(api, "GET", "/v1/rooms/r/follow", ""), 503, CodeBusy)
		at, err := h.clients["b"].ResolveRoom(t.Context(), "r/1", affinity.Demand{})
		if err != nil {
			t.Fatal(err)
		}
		if d := next(); d.Room != "r/1" || d.To != at.Node.ID || d.Addr != at.Node.APIAddr || d.Epoch != at.Epoch {
			t.Errorf("first %+v; it lives at %+v", d, at)
		}
		moved, err := h.clients["b"].MoveRoom(t.Context(), "r/1", elsewhere(at))
		if err != nil {
			t.Fatal(err)
		}
		if d := next(); d.To != moved.Node.ID || d.Epoch != moved.Epoch {
			t.Errorf("then %+v; it moved to %+v", d, moved)
		}
		_ = a.Close()
		<-ended
		expect(t, do(api, "GET", "/v1/rooms/r/follow", ""), 503, CodeClosed)
	})
}

// piped is a response writer that writes to a pipe.
type piped struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (p *piped) Write(b []byte) (int, error) { return p.to.Write(b) }
