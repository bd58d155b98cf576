package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/presence"
)

// at is a script with the server's clock at ms.
func at(source string, ms int64) script {
	return newScript(fmt.Sprintf(`
		local server = redis
		local redis = {call = function(name, ...)
			if name == 'TIME' then return {'%d', '%d'} end
			return server.call(name, ...)
		end}
		%s`, ms/1000, ms%1000*1000+999, source))
}

// frozen is a store on a server with its clock at now.
func frozen(p *Presence, now int64) *Presence {
	return &Presence{p.store, at(beatSource, now), at(membersSource, now), at(countSource, now)}
}

// A member that is exactly stale is out, before and after its removal; a member a
// millisecond younger is in. Time is the server's.
func TestPresenceBoundary(t *testing.T) { // S1.3, S1.4
	server := redistest.Start(t)
	store := ready(t, Options{URL: server.URL()}).Presence()
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
	if err := then.Beat(t.Context(), stale, presence.Participant{Room: room, Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	check("ada 0", "from the future 0", "younger 64999")
	if got := server.Do("ZRANGE", key, "0", "-1", "WITHSCORES"); got != "younger\n1699999935124\nada\n1700000000123\nfrom the future\n1700000005123" {
		t.Errorf("the room has\n%s", got)
	}
}

// One command for each room, one range command in it, and no scan of keys.
func TestPresenceCommands(t *testing.T) { // S1.4, S1.5
	server := redistest.Start(t)
	store := ready(t, Options{URL: server.URL()}).Presence()
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
		if err := errors.Join(store.Beat(t.Context(), time.Minute, seats...), members, count); err != nil {
			t.Fatal(err)
		}
	}
	run() // and load the scripts
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

// A room that cannot be written does not affect the others.
func TestPresencePoisonedRoom(t *testing.T) {
	server := redistest.Start(t)
	store := ready(t, Options{URL: server.URL()}).Presence()
	server.Do("SET", "roost:{17}:u:bad", "x")
	var seats []presence.Participant
	for _, room := range []string{"a", "bad", "c"} {
		seats = append(seats, presence.Participant{Room: presence.Room{Partition: 17, Name: room}, Name: "ada"})
	}
	err := store.Beat(t.Context(), time.Hour, seats...)
	if !errors.Is(err, presence.ErrStore) || !strings.Contains(err.Error(), "1 of 3 commands failed") || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("Beat: %v", err)
	}
	for _, room := range []string{"a", "c"} {
		counts, err := store.Count(t.Context(), time.Hour, presence.Room{Partition: 17, Name: room})
		if err != nil || counts[0] != 1 {
			t.Errorf("count of %s is %v, %v", room, counts, err)
		}
	}
}
