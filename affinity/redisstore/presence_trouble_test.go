package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/presence"
)

// A dead node leaves no ghosts, and its users who come back on another node are counted
// once. The node's link is cut, so that it sends no farewell.
func TestPresenceNodeKilled(t *testing.T) { // S1.1, S1.2, S1.3
	long(t)
	server := redistest.Start(t)
	link := redistest.Proxy(t, server.Addr())
	const interval, grace = 500 * time.Millisecond, 3 * time.Second
	a := startPresence(t, openPresence(t, link.URL(server)), interval, grace)
	b := startPresence(t, openPresence(t, server.URL()), interval, grace)
	onlooker := startPresence(t, openPresence(t, server.URL()), interval, grace)
	err := errors.Join(a.Join(t.Context(), "r", "ada/1"), a.Join(t.Context(), "r", "cy/1"), b.Join(t.Context(), "r", "bob/1"))
	if err = errors.Join(err, has(onlooker, "r", "ada/1", "bob/1", "cy/1")); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	link.Cut()
	if err := b.Join(t.Context(), "r", "cy/1"); err != nil {
		t.Fatal(err)
	}
	if err := has(onlooker, "r", "ada/1", "bob/1", "cy/1"); err != nil && time.Since(killed) < grace {
		t.Error(err)
	}
	redistest.Eventually(t, "the ghost to go", func() error { return has(onlooker, "r", "bob/1", "cy/1") })
	t.Logf("gone after %v", time.Since(killed))
	if gone := time.Since(killed); gone < grace || gone > interval+grace+5*time.Second {
		t.Errorf("gone after %v, want %v to %v", gone, grace, interval+grace)
	}
	if s := a.Stats(); s.Here != 2 || s.Failed == 0 {
		t.Errorf("the dead node's stats are %+v", s)
	}
}

// A server that lost its data has all participants after their next heartbeat.
func TestPresenceServerEmptied(t *testing.T) {
	long(t)
	server := redistest.Start(t)
	p := startPresence(t, openPresence(t, server.URL()), time.Second, 10*time.Second)
	q := startPresence(t, openPresence(t, server.URL()), time.Second, 10*time.Second)
	for r := range 20 {
		if err := errors.Join(p.Join(t.Context(), fmt.Sprint(r), "ada"), q.Join(t.Context(), fmt.Sprint(r), "bob")); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	if err := p.Join(t.Context(), "0", "cy"); !errors.Is(err, presence.ErrStore) {
		t.Errorf("Join without a server: %v", err)
	}
	server.Restart()
	redistest.Eventually(t, "everybody to be back", func() error {
		err := has(q, "0", "ada", "bob", "cy")
		for r := 1; r < 20; r++ {
			err = errors.Join(err, has(p, fmt.Sprint(r), "ada", "bob"))
		}
		return err
	})
}

// With a hanging server no call waits for long, and no change is lost.
func TestPresenceServerHangs(t *testing.T) {
	long(t)
	server := redistest.Start(t)
	const interval, grace = time.Second, 4 * time.Second
	p := startPresence(t, openPresence(t, server.URL()), interval, grace)
	for _, name := range []string{"ada", "bob"} {
		if err := p.Join(t.Context(), "r", name); err != nil {
			t.Fatal(err)
		}
	}
	server.Pause()
	before := time.Now()
	join, leave := p.Join(t.Context(), "r", "cy"), p.Leave(t.Context(), "r", "ada")
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, members := p.Members(short, "r")
	for what, err := range map[string]error{"Join": join, "Leave": leave, "Members": members} {
		if !errors.Is(err, presence.ErrStore) {
			t.Errorf("%s while the server hangs: %v", what, err)
		}
	}
	if took := time.Since(before); took > 3*grace {
		t.Errorf("three calls took %v", took)
	}
	server.Resume()
	redistest.Eventually(t, "cy to be in and ada to be out", func() error { return has(p, "r", "bob", "cy") })

	server.Pause()
	before = time.Now()
	if err := p.Close(); !errors.Is(err, presence.ErrStore) {
		t.Errorf("Close while the server hangs: %v", err)
	}
	if took := time.Since(before); took > 2*grace {
		t.Errorf("Close took %v", took)
	}
	server.Resume()
}

// An error of the server is an ErrStore that contains it.
func TestPresenceServerRefuses(t *testing.T) {
	server := redistest.Start(t)
	store := openPresence(t, server.URL())
	seat := presence.Participant{Room: presence.Room{Partition: 17, Name: "r"}, Name: "ada"}
	beat := func() error { return store.Beat(context.Background(), time.Hour, seat) }
	var loaded func()
	for _, c := range []struct {
		says       string
		begin, end func()
	}{
		{"LOADING", func() { loaded = server.RestartLoading() }, func() { loaded() }},
		{"READONLY", func() { server.ReadOnly(true) }, func() { server.ReadOnly(false) }},
		{
			"WRONGTYPE",
			func() { server.Do("DEL", "roost:{17}:u:r"); server.Do("SET", "roost:{17}:u:r", "x") },
			func() { server.Do("DEL", "roost:{17}:u:r") },
		},
	} {
		if err := beat(); err != nil {
			t.Fatal(err)
		}
		c.begin()
		redistest.Eventually(t, c.says, func() error {
			err := beat()
			if !errors.Is(err, presence.ErrStore) || !strings.Contains(err.Error(), c.says) {
				return fmt.Errorf("answer is %w", err)
			}
			return nil
		})
		c.end()
		redistest.Eventually(t, "the end of "+c.says, beat)
	}
}

// A server at its memory limit still takes heartbeats. If it rejected them, all rooms
// would look empty.
func TestPresenceServerFull(t *testing.T) {
	server := redistest.Start(t)
	store := openPresence(t, server.URL())
	seat := presence.Participant{Room: presence.Room{Partition: 17, Name: "r"}, Name: "ada"}
	if err := store.Beat(t.Context(), time.Hour, seat); err != nil {
		t.Fatal(err)
	}
	server.Full(true)
	if err := store.Beat(t.Context(), time.Hour, seat); err != nil {
		t.Error(err)
	}
	server.Full(false)
}

// A room that cannot be written does not affect the others.
func TestPresencePoisonedRoom(t *testing.T) {
	server := redistest.Start(t)
	store := openPresence(t, server.URL())
	server.Do("SET", "roost:{17}:u:bad", "x")
	var seats []presence.Participant
	rooms := []string{"a", "bad", "c"}
	for _, room := range rooms {
		seats = append(seats, presence.Participant{Room: presence.Room{Partition: 17, Name: room}, Name: "ada"})
	}
	err := store.Beat(t.Context(), time.Hour, seats...)
	if !errors.Is(err, presence.ErrStore) || !strings.Contains(err.Error(), "1 of 3 commands failed") {
		t.Errorf("Beat: %v", err)
	}
	for _, room := range []string{"a", "c"} {
		counts, err := store.Count(t.Context(), time.Hour, presence.Room{Partition: 17, Name: room})
		if err != nil || counts[0] != 1 {
			t.Errorf("count of %s is %v, %v", room, counts, err)
		}
	}
}

// The same in a cluster that loses a third of its masters.
func TestPresenceClusterNodeDies(t *testing.T) {
	long(t)
	cluster := redistest.StartCluster(t, 3, 1)
	p := startPresence(t, openPresence(t, cluster.URL()), time.Second, 10*time.Second)
	const rooms = 60
	for r := range rooms {
		if err := p.Join(t.Context(), fmt.Sprint("room-", r), "ada"); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Node(0).Kill()
	cluster.WaitOK()
	redistest.Eventually(t, "all rooms to have ada", func() error {
		for r := range rooms {
			if err := has(p, fmt.Sprint("room-", r), "ada"); err != nil {
				return err
			}
		}
		if s := p.Stats(); s.Owed > 0 {
			return fmt.Errorf("%d are owed", s.Owed)
		}
		return nil
	})
}
