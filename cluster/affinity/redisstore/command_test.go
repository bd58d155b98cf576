package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// insideScripts are the commands that scripts call. The server counts these commands, too.
var insideScripts = []string{
	"get", "mget", "set", "del", "pttl", "publish", "pexpire", "time", "zadd", "zrem", "zremrangebyscore", "zscore", "exists",
}

// Each op that writes is a single run of the script. So is a batch, even if it has several partitions. A read takes at
// most three plain commands.
func TestOneCommand(t *testing.T) {
	server, s := started(t)
	pin := swap(t, s, first("warm", node("n", 1))).Pin // from here on, the server has the script
	batch := make([]pinstore.Op, 64)
	for i := range batch {
		batch[i] = first(fmt.Sprint("batch ", i), node("n", 1))
		batch[i].Partition = placement.Partition(i / 8)
	}
	for _, c := range []struct {
		name string
		ops  []pinstore.Op
	}{
		{"first claim", []pinstore.Op{first("room", node("n", 1))}},
		{"claim of what is taken", []pinstore.Op{first("room", node("m", 1))}},
		{"read", []pinstore.Op{read("room")}},
		{"read of nothing", []pinstore.Op{read("nothing")}},
		{"replace", []pinstore.Op{{Partition: 17, Room: "warm", If: pin, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour}}},
		{"replace in vain", []pinstore.Op{{Partition: 17, Room: "warm", If: pin, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour}}},
		{"release", []pinstore.Op{{Partition: 17, Room: "warm", If: pinstore.Pin{Incarnation: node("m", 1)}}}},
		{"batch", batch},
	} {
		server.ResetStats()
		for i, r := range s.Swap(t.Context(), c.ops...) {
			if r.Err != nil {
				t.Fatalf("%s: op %d: %v", c.name, i, r.Err)
			}
		}
		calls := server.Commands()
		if reads := calls["get"] + calls["mget"] + calls["pttl"]; reads > int64(3*len(c.ops)) {
			t.Errorf("%s: %d commands that read; want 3 for each op at most", c.name, reads)
		}
		for _, name := range append([]string{"info", "config|resetstat", "ping"}, insideScripts...) {
			delete(calls, name)
		}
		want := map[string]int64{"evalsha": 1}
		if strings.HasPrefix(c.name, "read") {
			want = map[string]int64{}
		}
		if !maps.Equal(calls, want) {
			t.Errorf("%s: commands %v; want %v", c.name, calls, want)
		}
	}
}

// All keys expire, even the keys of an abandoned room. When a room is released, its index entry is deleted with its
// pin.
func TestKeys(t *testing.T) {
	server := redistest.Start(t)
	s := ready(t, redisAt{URL: server.URL(), Prefix: "p:"})
	pin := swap(t, s, first("moved", node("a:1", 1))).Pin
	swap(t, s, pinstore.Op{Partition: 17, Room: "moved", If: pin, Set: pinstore.Pin{Incarnation: node("b", 2)}, TTL: time.Hour})
	swap(t, s, first("stays", node("c", 3)))
	ada := presence.Participant{Room: presence.Room{Partition: 17, Name: "stays"}, Name: "ada/1"}
	_, err := s.Heartbeat(t.Context(), node("b", 2), time.Hour, nil)
	if err := errors.Join(err, s.Presence().Heartbeat(t.Context(), time.Hour, ada)); err != nil {
		t.Fatal(err)
	}
	keys := strings.Split(server.Do("KEYS", "*"), "\n")
	slices.Sort(keys)
	want := []string{"p:l", "p:lives", "p:n:b|2", "p:n:c|3", "p:{17}:r:moved", "p:{17}:r:stays", "p:{17}:u:stays"}
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q; want %q", keys, want)
	}
	for _, key := range keys {
		most := 3_600_000
		if key == "p:l" || strings.HasPrefix(key, "p:n:") {
			most += most / 8 // the expiry of an index moves in steps
		}
		if ttl, err := strconv.Atoi(server.Do("PTTL", key)); err != nil || ttl <= 3_590_000 || ttl > most {
			t.Errorf("%s lasts %d ms (%v); want an hour", key, ttl, err)
		}
	}
	if got := server.Do("GET", "p:{17}:r:stays"); !strings.HasPrefix(got, "c|3|") || !strings.HasSuffix(got, "|2|") {
		t.Errorf("value %q", got)
	}
	if got := server.Do("ZRANGE", "p:{17}:u:stays", "0", "-1"); got != "ada/1" {
		t.Errorf("participants %q", got)
	}
	swap(t, s, pinstore.Op{Partition: 17, Room: "stays", If: pinstore.Pin{Incarnation: node("c", 3)}})
	if err := s.Presence().Leave(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if left := server.Do("EXISTS", "p:n:c|3", "p:{17}:r:stays", "p:{17}:u:stays"); left != "0" {
		t.Errorf("%s keys are left of a room that was released, without participants", left)
	}
}

// An index does not expire before its last entry, regardless of the order in which the entries are added.
func TestIndexLasts(t *testing.T) {
	server, s := started(t)
	brief, long := first("brief", node("n", 1)), first("long", node("n", 1))
	brief.TTL = time.Second
	for name, swaps := range map[string][][]pinstore.Op{
		"brief, long":                {{brief}, {long}},
		"long, brief":                {{long}, {brief}},
		"brief and long in a batch":  {{brief, long}},
		"long and brief in a batch ": {{long, brief}},
	} {
		server.Do("FLUSHALL")
		for _, ops := range swaps {
			for _, r := range s.Swap(t.Context(), ops...) {
				if r.Err != nil || !r.Done {
					t.Fatal(r)
				}
			}
		}
		for _, key := range []string{names(s).rooms(17, "n|1"), names(s).incarnations(17)} {
			if ttl, err := strconv.Atoi(server.Do("PTTL", key)); err != nil || ttl <= 3_590_000 {
				t.Errorf("%s: %s lasts %d ms (%v); want an hour", name, key, ttl, err)
			}
		}
		score, err := strconv.ParseFloat(server.Do("ZSCORE", names(s).incarnations(17), "n|1"), 64)
		if err != nil || score < float64(time.Now().Add(59*time.Minute).UnixMilli()) {
			t.Errorf("%s: the incarnation is listed until %f (%v)", name, score, err)
		}
	}
}

// The store corrects an index whose entries differ from the pins.
func TestStaleIndex(t *testing.T) {
	server, s := started(t)
	const n = 200 // does not fit into a page
	owner := node("n", 1)
	for i := range n {
		swap(t, s, first(strconv.Itoa(i), owner))
	}
	lost := 0
	for i := range n {
		if i != 3 && i != 150 {
			server.Do("DEL", names(s).pin(17, strconv.Itoa(i)))
			lost++
		}
	}
	list := func(limit int) []pinstore.Entry {
		t.Helper()
		entries, err := s.Index(t.Context(), []placement.Partition{17}, func(l lease.Incarnation) bool { return l == owner }, limit)
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	card := func(what, want string) {
		t.Helper()
		if card := server.Do("ZCARD", names(s).rooms(17, "n|1")); card != want {
			t.Errorf("%s: %s entries are left; want %s", what, card, want)
		}
	}
	for _, limit := range []int{2, n} {
		if found := list(limit); len(found) != 2 {
			t.Errorf("%v; want the two that are left", found)
		}
	}
	card("lost pins", "2")
	s.tidy(t.Context(), []call{cleanCall(names(s), shelf{partition: 17, at: owner}, []string{"3", "150"})})
	card("rooms that were pinned again", "2")
	// If a room is now pinned to another incarnation, Index does not return the room, even if the index lists it.
	others := names(s).pin(17, "3")
	mine := server.Do("GET", others)
	server.Do("SET", others, "m|1|5|2|")
	if found := list(n); len(found) != 1 || found[0].Room != "150" {
		t.Errorf("%v; want only 150", found)
	}
	server.Do("SET", others, mine)
	server.Do("ZADD", names(s).rooms(17, "n|1"), "9999999999999", "3")
	// An op that does not match the pin removes the entry.
	server.Do("DEL", names(s).pin(17, "3"))
	swap(t, s, pinstore.Op{
		Partition: 17,
		Room:      "3",
		If:        pinstore.Pin{Incarnation: owner},
		Set:       pinstore.Pin{Incarnation: owner},
		TTL:       time.Hour,
	})
	card("after an op that did not match", "1")
	swap(t, s, pinstore.Op{Partition: 17, Room: "150", If: pinstore.Pin{Incarnation: owner}})
	if found := list(10); len(found) != 0 {
		t.Errorf("%v; want none", found)
	}
	if left := server.Do("ZRANGE", names(s).incarnations(17), "0", "-1"); left != "" {
		t.Errorf("incarnations with rooms: %q; want none", left)
	}
}

// If a key holds a value that roost did not write, the error names the key.
func TestGarbage(t *testing.T) {
	server, s := started(t)
	owner := node("n", 1)
	good := swap(t, s, first("good", owner)).Pin
	ops := func(room string) []pinstore.Op {
		is := pinstore.Pin{Incarnation: owner}
		return []pinstore.Op{
			read(room), first(room, owner),
			{Partition: 17, Room: room, If: is, Set: is, TTL: time.Hour},
			{Partition: 17, Room: room, If: is, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour},
			{Partition: 17, Room: room, If: is},
		}
	}
	for i, value := range []string{
		"", "x", "||||", "n|1|2|", "n|1|2|3", "n|1|x|3|", "n|1|2|x|", "n|-1|2|3|", "n|1|2|-3|", "n|1|2|3\n|", "n|1|2.5|3|",
		"n|99999999999999999999|2|3|", "n|1|9007199254740992|3|", "n|1|99999999999999999999999999|3|", "n n|1|2|3|", "{n}|1|2|3|",
		"n|1|2|99999999999999999999|", "|1|2|3|", "\x00\xff", strings.Repeat("x", 1<<20), "n|1|2|3|" + strings.Repeat("x", 1<<20),
	} {
		room := fmt.Sprint("garbage ", i)
		key := names(s).pin(17, room)
		for _, op := range ops(room) {
			server.Do("SET", key, value)
			results := s.Swap(t.Context(), op, read("good"))
			err := results[0].Err
			if results[0].Pin != (pinstore.Pin{}) && !results[0].Done && err == nil {
				t.Errorf("%.40q: pin %v", value, results[0].Pin)
			}
			if err != nil && (!strings.Contains(err.Error(), key) || len(err.Error()) > 500) {
				t.Errorf("%.40q: error %.600v; want the key", value, err)
			}
			if results[1].Err != nil || results[1].Pin != good {
				t.Errorf("%.40q: the other room: %v, %v", value, results[1].Pin, results[1].Err)
			}
		}
	}
	wrongType(t, server, s, good)
}

func wrongType(t *testing.T, server *redistest.Server, s *Store, good pinstore.Pin) {
	t.Helper()
	all := func(lease.Incarnation) bool { return true }
	server.Do("LPUSH", names(s).pin(17, "list"), "x")
	results := s.Swap(t.Context(), first("list", node("n", 1)), read("good"))
	if results[0].Err == nil || !strings.Contains(results[0].Err.Error(), names(s).pin(17, "list")) || results[1].Pin != good {
		t.Errorf("a list as pin: %v; the other room: %v", results[0].Err, results[1].Pin)
	}
	if server.Do("ZSCORE", names(s).rooms(17, "n|1"), "list") != "" {
		t.Error("what got no pin is in the index")
	}
	server.Do("SET", names(s).rooms(17, "s|1"), "x")
	if r := s.Swap(t.Context(), first("new", node("s", 1)))[0]; r.Err == nil || server.Do("EXISTS", names(s).pin(17, "new")) != "0" {
		t.Errorf("a string as index: error %v; want one, and no pin", r.Err)
	}
	server.Do("ZADD", names(s).incarnations(17), "+inf", "s|1")
	_, err := s.Index(t.Context(), []placement.Partition{17}, all, 100)
	if err == nil || !strings.Contains(err.Error(), names(s).rooms(17, "s|1")) {
		t.Errorf("a string as index: error %v; want the key", err)
	}
	server.Do("ZADD", names(s).incarnations(18), "+inf", "nonsense")
	_, err = s.Index(t.Context(), []placement.Partition{18}, all, 100)
	if err == nil || !strings.Contains(err.Error(), names(s).incarnations(18)) {
		t.Errorf("nonsense as incarnation: error %v; want the key", err)
	}
	server.Do("SET", names(s).heartbeats(), "x")
	if _, err := s.Heartbeat(t.Context(), node("n", 1), time.Hour, nil); err == nil {
		t.Error("a string in place of who signed: no error")
	}
}

func TestHostile(t *testing.T) {
	server, s := started(t)
	server.Do("FLUSHALL")
	owner := node("n", 1)
	for _, op := range []pinstore.Op{
		first("", owner), first("{0}", owner), first("a}b", owner), first("*", owner), first("a\nb", owner), first("a\x00b", owner),
		first("\xff", owner), first(strings.Repeat("x", 10<<10), owner),
		first("r", node("a|b", 1)), first("r", node("{0}", 1)), first("r", node("", 1)), first("r", node("a b", 1)),
		{Partition: 17, Room: "r", If: pinstore.Pin{Incarnation: node("a|b", 1)}},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner, Size: -1}, TTL: time.Hour},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner, Size: pinstore.MaxSize + 1}, TTL: time.Hour},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner, Epoch: 1 << 53}, TTL: time.Hour},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner}},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner}, TTL: time.Microsecond},
		{Partition: 17, Room: "r", Set: pinstore.Pin{Incarnation: owner}, TTL: -time.Hour},
	} {
		good := read("good")
		results := s.Swap(t.Context(), op, good)
		if err := results[0].Err; err == nil || len(err.Error()) > 400 {
			t.Errorf("%.100v: error %v", op, err)
		}
		if results[1].Err != nil {
			t.Errorf("the other op: %v", results[1].Err)
		}
	}
	if _, err := s.Heartbeat(t.Context(), node("a|b", 1), time.Hour, nil); err == nil {
		t.Error("signed as a|b")
	}
	if n := server.Do("DBSIZE"); n != "0" {
		t.Errorf("%s keys were written: %s", n, server.Do("KEYS", "*"))
	}
	if results := s.Swap(context.Background()); len(results) != 0 {
		t.Errorf("%d results for no op", len(results))
	}
}
