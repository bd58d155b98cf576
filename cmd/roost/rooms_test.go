package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// TestRoomTables: what is printed about rooms, whatever they are called.
func TestRoomTables(t *testing.T) {
	node := clusterhttp.Member{ID: "b", State: lease.Active}
	candidates := []clusterhttp.RoomCandidate{
		{ID: "b", Load: 12, Reserved: 2, Ceiling: 400, Capacity: 500, Taken: true, Why: "owns its partition"},
		{ID: "a", Why: "its capacity is not stated"},
	}
	detail := func(a clusterhttp.RoomAssignment, pinned bool) clusterhttp.RoomDetail {
		return clusterhttp.RoomDetail{RoomAssignment: a, Pinned: pinned, Candidates: candidates}
	}
	answers := map[string]any{
		"GET /v1/rooms?limit=1000": clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{
			{Room: "room 1", Node: "b", Size: 4, Partition: 7, Epoch: 99}, {Room: "\u202ex", Node: "a"},
		}},
		"GET /v1/rooms?limit=1&node=b": clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{{Room: "r", Node: "b"}}, Truncated: true},
		"GET /v1/rooms/pinned?size=0":  detail(clusterhttp.RoomAssignment{Room: "pinned", Partition: 7, Node: node, Source: affinity.Pinned, Reason: "already pinned"}, true),
		"GET /v1/rooms/move?size=9":    detail(clusterhttp.RoomAssignment{Room: "move", Partition: 7, Node: node, Source: affinity.Hash, Reason: "it owns it"}, false),
		"GET /v1/rooms/doubt?size=0":   detail(clusterhttp.RoomAssignment{Room: "doubt", Partition: 7, Node: node, Source: affinity.Degraded, Reason: "it was known to"}, false),
		"GET /v1/rooms/huge?size=0":    detail(clusterhttp.RoomAssignment{Room: "huge", Reason: "no node has the capacity"}, false),
		"POST /v1/rooms/%E2%80%AEx/resolve": clusterhttp.RoomAssignment{
			Room: "\u202ex", Partition: 7, Node: node, Source: affinity.Override, Reason: "the owner is full",
		},
		"POST /v1/rooms/%2E%2E/move": clusterhttp.RoomAssignment{Room: "..", Node: node, Source: affinity.Pinned, Reason: "moved on request"},
		"DELETE /v1/rooms/a%2Fb":     clusterhttp.ReleasedRoom{Room: "a/b"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.RequestURI]
		if !ok {
			t.Errorf("asked for %s %s", r.Method, r.RequestURI)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	const table = `
NODE  LOAD  RESERVED  CEILING     WHY
b *   12    2         400 of 500  owns its partition
a     0     0         -           its capacity is not stated
`
	for _, c := range []struct {
		args string
		want string
	}{
		{"rooms", "ROOM       NODE  SIZE  PARTITION  EPOCH\nroom 1     b     4     7          99\n\"\\u202ex\"  a     0     0          0\n"},
		{"rooms --node b --limit 1", "ROOM  NODE  SIZE  PARTITION  EPOCH\nr     b     0     0          0\n\nthere are more than these 1: see --limit and --node\n"},
		{"room pinned", "pinned lives on b (partition 7): already pinned.\n" + table},
		{"room show pinned", "pinned lives on b (partition 7): already pinned.\n" + table},
		{"room show move --size 9", "move is not pinned. With 9 participants it would go to b (partition 7): it owns it.\n" + table},
		{"room doubt", "doubt probably lives on b (partition 7): it was known to.\n" + table},
		{"room huge", "huge is not pinned, and cannot be now: no node has the capacity.\n" + table},
		{"room resolve \u202ex --size 2", "\"\\u202ex\" lives on b (partition 7, override): the owner is full\n"},
		{"room move .. b", ".. lives on b: moved on request\n"},
		{"room release a/b", "a/b is not pinned any more\n"},
		{"room release a/b --output json", "{\"room\":\"a/b\"}\n"},
		{"room -- pinned", "pinned lives on b (partition 7): already pinned.\n" + table},
	} {
		code, got, fault := roostIn(t, map[string]string{"ROOST_ADDR": server.URL}, strings.Fields(c.args)...)
		if code != 0 || fault != "" || got != c.want {
			t.Errorf("%s: %d %q\n%s", c.args, code, fault, got)
		}
	}
}
