package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/redistest"
)

// at returns a script for which the server's clock always shows ms.
func at(source string, ms int64) script {
	return newScript(fmt.Sprintf(`
		local server = redis
		local redis = {call = function(name, ...)
			if name == 'TIME' then return {'%d', '%d'} end
			return server.call(name, ...)
		end}
		%s`, ms/1000, ms%1000*1000+999, source))
}

// frozen returns a copy of p for which the server's clock always shows now.
func frozen(p *Presence, now int64) *Presence {
	return &Presence{p.store, at(presenceHeartbeatSource, now), at(membersSource, now), at(countSource, now)}
}

// A member whose heartbeat is exactly as old as stale is not returned, before and after its removal. A member whose
// heartbeat is a millisecond younger is returned. The server's clock measures the age.
func TestPresenceBoundary(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, redisAt{URL: server.URL()}).Presence()
	const now, stale = 1_700_000_000_123, 65 * time.Second
	room := presence.Room{Partition: 17, Name: "r"}
	const key = "roost:{17}:u:r"
	server.Do("ZADD", key, fmt.Sprint(now-65_001), "older", fmt.Sprint(now-65_000), "exactly",
		fmt.Sprint(now-64_999), "younger", fmt.Sprint(now+5_000), "from the future")
	then := frozen(store, now)

	check := func(want ...string) {
		t.Helper()
		members, err := then.Members(t.Context(), stale, room)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range members {
			got = append(got, fmt.Sprintf("%s %d", m.Name, m.Idle.Milliseconds()))
		}
		slices.Sort(got)
		counts, err := then.Count(t.Context(), stale, room)
		if err != nil || !slices.Equal(got, want) || counts[0] != len(want) {
			t.Errorf("members are %q, count is %v, %v; want %q", got, counts, err, want)
		}
	}
	check("from the future 0", "younger 64999")
	if n := server.Do("ZCARD", key); n != "4" {
		t.Errorf("reading left %s of 4", n)
	}
	if err := then.Heartbeat(t.Context(), stale, presence.Participant{Room: room, Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	check("ada 0", "from the future 0", "younger 64999")
	got := server.Do("ZRANGE", key, "0", "-1", "WITHSCORES")
	if got != "younger\n1699999935124\nada\n1700000000123\nfrom the future\n1700000005123" {
		t.Errorf("the room has\n%s", got)
	}
}

// The store sends one command for each room. Each of these runs at most one range command, and none of them scans the
// keys.
func TestPresenceCommands(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, redisAt{URL: server.URL()}).Presence()
	var seats []presence.Participant
	var rooms []presence.Room
	for r := range 50 {
		rooms = append(rooms, presence.Room{Partition: 17, Name: fmt.Sprint(r)})
		for i := range 20 {
			seats = append(seats, presence.Participant{Room: rooms[r], Name: fmt.Sprint(i)})
		}
	}
	run := func() {
		t.Helper()
		_, members := store.Members(t.Context(), time.Minute, rooms[0])
		_, count := store.Count(t.Context(), time.Minute, rooms...)
		if err := errors.Join(store.Heartbeat(t.Context(), time.Minute, seats...), members, count); err != nil {
			t.Fatal(err)
		}
	}
	run() // to load the scripts
	server.ResetStats()
	run()
	got := server.Commands()
	want := map[string]int64{
		"evalsha": 50 + 50 + 1, "time": 50 + 50 + 1,
		"zremrangebyscore": 50, "zadd": 50, "pexpire": 50, "zcount": 50, "zrangebyscore": 1,
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s ran %d times, want %d", name, got[name], n)
		}
		delete(got, name)
	}
	for _, harness := range []string{"info", "config|resetstat", "ping", "hello"} {
		delete(got, harness)
	}
	for name, n := range got {
		if !strings.HasPrefix(name, "client|") {
			t.Errorf("%s ran %d times, want 0", name, n)
		}
	}
}

// If one room cannot be written, the store still writes the others.
func TestPresencePoisonedRoom(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, redisAt{URL: server.URL()}).Presence()
	server.Do("SET", "roost:{17}:u:bad", "x")
	var seats []presence.Participant
	for _, room := range []string{"a", "bad", "c"} {
		seats = append(seats, presence.Participant{Room: presence.Room{Partition: 17, Name: room}, Name: "ada"})
	}
	err := store.Heartbeat(t.Context(), time.Hour, seats...)
	if !errors.Is(err, presence.ErrStore) || !strings.Contains(err.Error(), "1 of 3 commands failed") ||
		!strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Heartbeat: %v", err)
	}
	for _, room := range []string{"a", "c"} {
		counts, err := store.Count(t.Context(), time.Hour, presence.Room{Partition: 17, Name: room})
		if err != nil || counts[0] != 1 {
			t.Errorf("count of %s is %v, %v", room, counts, err)
		}
	}
}

// The store reads a room in pages, and returns each member exactly once, whether the members have equal or different
// times. A page contains all members with the same millisecond.
func TestPresencePages(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, redisAt{URL: server.URL()}).Presence()
	const now = 1_700_000_000_000
	room := presence.Room{Partition: 17, Name: "r"}
	for _, c := range []struct {
		name         string
		alone, alike int // members with different heartbeats, and then members with the same heartbeat
		commands     int64
	}{
		{"less than a page", most - 1, 0, 1},
		{"a page", most, 0, 2},
		{"two pages and a half", 2*most + most/2, 0, 3},
		{"all alike", 0, 3 * most, 3},
		{"the end of a page alike", most - 1, most, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			server.Do("FLUSHALL")
			add := []string{"ZADD", "roost:{17}:u:r"}
			for i := range c.alone + c.alike {
				add = append(add, fmt.Sprint(now-20_000+min(i, c.alone)), fmt.Sprint(i))
			}
			server.Do(add...)
			server.ResetStats()
			members, err := frozen(store, now).Members(t.Context(), time.Minute, room)
			seen := make(map[string]bool)
			for _, m := range members {
				seen[m.Name] = true
			}
			if want := c.alone + c.alike; err != nil || len(seen) != want || len(members) != want {
				t.Errorf("%d members with %d names, %v; want %d", len(members), len(seen), err, want)
			}
			if n := server.Commands()["zrangebyscore"]; n < c.commands || n > 2*c.commands {
				t.Errorf("%d range commands, want %d to %d", n, c.commands, 2*c.commands)
			}
		})
	}
}

// While the store reads a room page by page, its members send heartbeats, which move them to later pages. The answer
// contains each member exactly once.
func TestPresencePagesMove(t *testing.T) {
	store := ready(t, redisAt{URL: redistest.Start(t).URL()}).Presence()
	room := presence.Room{Partition: 17, Name: "r"}
	seats := make([]presence.Participant, 5*most)
	for i := range seats {
		seats[i] = presence.Participant{Room: room, Name: fmt.Sprint(i)}
	}
	if err := store.Heartbeat(t.Context(), time.Hour, seats...); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var heartbeats sync.WaitGroup
	heartbeats.Go(func() {
		for ctx.Err() == nil {
			from := rand.IntN(len(seats) - most/2)
			if err := store.Heartbeat(t.Context(), time.Hour, seats[from:from+most/2]...); err != nil {
				t.Error(err)
			}
		}
	})
	for range 20 {
		members, err := store.Members(t.Context(), time.Hour, room)
		names := make(map[string]bool)
		for _, m := range members {
			names[m.Name] = true
		}
		if err != nil || len(members) != len(seats) || len(names) != len(seats) {
			t.Errorf("%d members with %d names, %v; want %d", len(members), len(names), err, len(seats))
		}
	}
	stop()
	heartbeats.Wait()
}
