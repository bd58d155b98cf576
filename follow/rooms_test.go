package follow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/follow"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/reconnect"
)

// withRooms gives the agents a store that they share.
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

// Rooms are resolved by the agent that is followed, which does not host them, and by another one if that
// fails (S7.1).
func TestResolve(t *testing.T) {
	inWeb(t, func(t *testing.T, w *web) {
		rooms := w.withRooms()
		f := w.follow("a", "b")
		w.ready(f)
		for _, room := range []string{"one", "two/..", "..", "three", "four"} {
			d, err := f.Resolve(t.Context(), room, 3)
			at, wantErr := rooms["c"].Resolve(t.Context(), room, affinity.Demand{})
			if err != nil || wantErr != nil || d.To != at.Node || d.Epoch != at.Epoch || d.Room != room || d.Addr != string(d.To)+".example:9000" || d.Epoch == 0 {
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
	answer, ok := errors.AsType[*follow.AgentError](err)
	return ok && answer.Status == status
}

// The stream of a room has each node that it gets, goes on with another agent, and ends with its
// context (S7.1).
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

// A room's stream leaves an agent that hangs as soon as the follower does (S7.1).
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
