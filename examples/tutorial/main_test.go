package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
)

func TestMain(m *testing.M) { leak.Main(m) }

// startNode returns a node with a running RunOwned. Its agent is closed when the test ends.
func startNode(t *testing.T, id string, seeds ...string) *sfu {
	t.Helper()
	agent, err := cluster.Start(t.Context(), cluster.Config{
		ID: id, APIAddr: id + ".example.org", Bind: "127.0.0.1:0", Join: seeds,
		Network: cluster.Local, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &sfu{agent: agent, rooms: make(map[placement.Partition]map[string]int)}
	ended := make(chan error, 1)
	go func() { ended <- agent.RunOwned(context.Background(), s.serve) }()
	t.Cleanup(func() {
		_ = agent.Close()
		<-ended
		if len(s.rooms) != 0 {
			t.Errorf("%s is closed, and holds %d partitions", id, len(s.rooms))
		}
	})
	<-agent.Ready()
	return s
}

// post returns the status of the response, and the target of a redirect.
func (s *sfu) post(path string) (status int, to string) {
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, http.NoBody))
	return w.Code, w.Header().Get("Location")
}

// holds reports whether the node accepts rooms in all partitions that it owns.
func (s *sfu) holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rooms) == len(s.agent.Owned())
}

func TestTwoNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := startNode(t, "a")
	b := startNode(t, "b", a.agent.Addr())
	settled := func() {
		t.Helper()
		redistest.Eventually(t, "two equal tables", func() error {
			if err := a.agent.WaitConverged(ctx); err != nil {
				return err
			}
			if len(a.agent.Members()) != 2 || !a.holds() || !b.holds() {
				return cluster.ErrNotReady
			}
			return b.agent.WaitConverged(ctx)
		})
	}
	settled()

	rooms := map[string]string{"standup": "a", "allhands": "b"} // and their owners
	check := func() {
		t.Helper()
		for room, owner := range rooms {
			want := "http://" + owner + ".example.org/rooms/" + room
			for _, s := range []*sfu{a, b} {
				if status, to := s.post("/join/" + room); status != http.StatusTemporaryRedirect || to != want {
					t.Errorf("join %s: %d to %q, want %q", room, status, to, want)
				}
				want := http.StatusServiceUnavailable
				if owner == s.agent.Config().ID {
					want = http.StatusOK
				}
				if status, to := s.post("/rooms/" + room); status != want || to != "" {
					t.Errorf("%s at %s: %d to %q, want %d", room, s.agent.Config().ID, status, to, want)
				}
			}
		}
	}
	check()
	redistest.Eventually(t, "a misroute in b's numbers", func() error { // the request for standup came to b
		if n := b.agent.Snapshot().Stats.Misrouted; n != 1 {
			return fmt.Errorf("%d misroutes, want 1", n)
		}
		return nil
	})
	if status, to := a.post("/join/a%2Fb%20c"); status != http.StatusTemporaryRedirect || !strings.HasSuffix(to, "/rooms/a%2Fb%20c") {
		t.Errorf("a room with a slash in its name: %d to %q", status, to)
	}

	if err := b.agent.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	settled()
	rooms["allhands"] = "a"
	check()
	if len(b.rooms) != 0 {
		t.Errorf("b has drained, and holds %d partitions", len(b.rooms))
	}

	if err := a.agent.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if status, _ := a.post("/join/standup"); status != http.StatusServiceUnavailable {
		t.Errorf("no node can own anything, and join answers %d", status)
	}
}

// TestNoRoomWithoutRun: a node owns a partition a moment before the partition's run begins. Until the run begins, the
// node accepts no client, because the end of the run has to notify each client.
func TestNoRoomWithoutRun(t *testing.T) {
	s := startNode(t, "a")
	redistest.Eventually(t, "runs", func() error {
		if !s.holds() {
			return cluster.ErrNotReady
		}
		return nil
	})
	p := s.agent.Partition("standup")
	s.mu.Lock()
	delete(s.rooms, p)
	s.mu.Unlock()
	if status, _ := s.post("/rooms/standup"); status != http.StatusServiceUnavailable {
		t.Errorf("entered a room without a run: %d", status)
	}
}
