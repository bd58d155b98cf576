package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestTables: tables are aligned, and text from other nodes cannot harm a terminal.
func TestTables(t *testing.T) {
	evil := clusterhttp.Member{
		Profile: lease.Profile{ID: "b", Addr: "10.2\x07:7946", APIAddr: "\x1b[2Jx\n", Zone: "z\u202e", Weight: 1, Capacity: 9},
		State:   lease.Settling,
		AgeMS:   61_234,
		Load:    7,
	}
	node := clusterhttp.Member{Profile: lease.Profile{ID: "b"}, State: lease.Active}
	detail := func(room string, pinned bool, at clusterhttp.Member, source affinity.Source, why string) clusterhttp.RoomDetail {
		a := clusterhttp.RoomAssignment{Room: room, Partition: 7, Node: at, Source: source, Reason: why}
		return clusterhttp.RoomDetail{RoomAssignment: a, Pinned: pinned, Candidates: []clusterhttp.RoomCandidate{
			{ID: "b", Load: 12, Reserved: 2, Ceiling: 400, Capacity: 500, Taken: true, Why: "owns its partition"},
			{ID: "a", Why: "its capacity is not stated"},
		}}
	}
	ends := time.Date(2030, 1, 1, 11, 0, 0, 0, time.UTC)
	f := fakeagent.New(t)
	for request, answer := range map[string]any{
		"GET /v1/members": clusterhttp.Members{Self: "a", Members: []clusterhttp.Member{
			{Profile: lease.Profile{ID: "a", Addr: "10.0.0.1:7946", Weight: 100}, State: lease.Active, AgeMS: 1, InSync: true},
			evil,
		}},
		"GET /v1/place":  clusterhttp.Placed{Key: "k\x07", Partition: 3, Owner: evil},
		"GET /v1/owners": clusterhttp.Ranked{Key: "k", Owners: []clusterhttp.Member{evil}, Why: "b won\x1b"},
		"GET /v1/partitions": clusterhttp.Partitions{
			Export: placement.Export{Partitions: 8, Strategy: "s\n", Digest: 0x123, Version: 9},
			Counts: map[lease.NodeID]int{"a": 6, "b": 2}, Balance: clusterhttp.Balance{MaxMean: 1.5, CV: 0.5, Advice: "advice"}, Diverged: 2,
		},
		"GET /v1/rooms?limit=1000": clusterhttp.Rooms{Rooms: []clusterhttp.PinnedRoom{
			{Room: "room 1", Node: "b", Size: 4, Partition: 7, Epoch: 99}, {Room: "\u202ex", Node: "a"},
		}},
		"GET /v1/rooms?limit=1&node=b": clusterhttp.Rooms{
			Rooms:     []clusterhttp.PinnedRoom{{Room: "r", Node: "b"}},
			Truncated: true,
		},
		"GET /v1/rooms?limit=1000&node=a":  clusterhttp.Rooms{},
		"GET /v1/rooms?limit=1000&node=bb": clusterhttp.Rooms{},
		"GET /v1/rooms/pinned?size=0":      detail("pinned", true, node, affinity.Pinned, "already pinned"),
		"GET /v1/rooms/move?size=9":        detail("move", false, node, affinity.Hash, "it owns it"),
		"GET /v1/rooms/doubt?size=0":       detail("doubt", false, node, affinity.Degraded, "it was known to"),
		"GET /v1/rooms/huge?size=0": detail("huge", false, clusterhttp.Member{},
			affinity.Hash, "no node has the capacity"),
		"GET /v1/rooms/huge/relays?n=5&publishers=1&subscribers=900": clusterhttp.RoomRelays{
			Room: "huge",
			Relays: []clusterhttp.Member{
				{Profile: lease.Profile{ID: "c"}, State: lease.Active},
				{Profile: lease.Profile{ID: "a"}, State: lease.Active},
			},
		},
		"GET /v1/rooms/move/relays?n=2&size=0": clusterhttp.RoomRelays{Room: "move", Relays: []clusterhttp.Member{}},
		"POST /v1/rooms/%E2%80%AEx/resolve": clusterhttp.RoomAssignment{
			Room:      "\u202ex",
			Partition: 7,
			Node:      node,
			Source:    affinity.Override,
			Reason:    "the owner is full",
		},
		"POST /v1/rooms/%2E%2E/move": clusterhttp.RoomAssignment{Room: "..", Node: node, Source: affinity.Pinned, Reason: "moved on request"},
		"DELETE /v1/rooms/a%2Fb":     clusterhttp.ReleasedRoom{Room: "a/b"},
		"GET /v1/reservations": clusterhttp.Reservations{Reservations: []affinity.Reservation{
			{Room: "town-hall", Units: 500, Node: "b", Until: ends}, {Room: "\u202ex", Units: 1, Until: ends},
		}},
		"PUT /v1/rooms/town-hall/reservation":    clusterhttp.RoomAssignment{Room: "town-hall", Node: node},
		"DELETE /v1/rooms/town-hall/reservation": clusterhttp.CancelledReservation{Room: "town-hall"},
	} {
		f.Set(request, answer)
	}
	const candidates = `
NODE  LOAD  RESERVED  CEILING     WHY
b *   12    2         400 of 500  owns its partition
a     0     0         -           its capacity is not stated
`
	for command, want := range map[string]string{
		"members": `ID   STATE     GOSSIP         AGE     WEIGHT  LOAD    ZONE       TABLE
a *  active    10.0.0.1:7946  0s      100     0       -          same
b    settling  10.2\a:7946    1m1.2s  1       7 of 9  "z\u202e"  differs
`,
		"partitions": `OWNER  PARTITIONS  SHARE
a      6           75.0%
b      2           25.0%

8 partitions by "s\n", max/mean 1.50, variation 50.0%
table 0000000000000123, version 9 at this agent, a different one at 2 members: see roost members
advice
`,
		"place k": `KEY    PARTITION  OWNER  GOSSIP       API
"k\a"  3          b      10.2\a:7946  "\x1b[2Jx\n"
`,
		"owners k": `RANK  ID  STATE     GOSSIP       API
1     b   settling  10.2\a:7946  "\x1b[2Jx\n"

partition 0: "b won\x1b"
`,
		"rooms": "ROOM       NODE  SIZE  PARTITION  EPOCH\n" +
			"room 1     b     4     7          99\n" +
			"\"\\u202ex\"  a     0     0          0\n",
		"rooms --node b --limit 1": "ROOM  NODE  SIZE  PARTITION  EPOCH\n" +
			"r     b     0     0          0\n\n" +
			"there are more rooms than these 1: see --limit and --node\n",
		"rooms --node a":          "ROOM  NODE  SIZE  PARTITION  EPOCH\n",
		"rooms --node bb":         "ROOM  NODE  SIZE  PARTITION  EPOCH\n\nno member is called bb; did you mean a or b?\n",
		"room pinned":             "pinned lives on b (partition 7): already pinned.\n" + candidates,
		"room show pinned":        "pinned lives on b (partition 7): already pinned.\n" + candidates,
		"room -- pinned":          "pinned lives on b (partition 7): already pinned.\n" + candidates,
		"room show move --size 9": "move is not pinned. With 9 participants it would go to b (partition 7): it owns it.\n" + candidates,
		"room doubt":              "doubt probably lives on b (partition 7): it was known to.\n" + candidates,
		"room huge":               "huge is not pinned, and cannot be pinned now: no node has the capacity.\n" + candidates,
		"room relays huge -n 5 --publishers 1 --subscribers 900": "relays of huge, best first: c a\n",
		"room relays move":              "no other node accepts rooms, so move has no relays\n",
		"room resolve \u202ex --size 2": "\"\\u202ex\" lives on b (partition 7, override): the owner is full\n",
		"room move .. b":                ".. lives on b: moved on request\n",
		"room release a/b":              "a/b is no longer pinned\n",
		"room unreserve town-hall":      "nothing is reserved for town-hall any more\n",
		"room reserve town-hall --units 500 --until 2030-01-01T11:00:00Z": "500 units reserved for town-hall on b until 2030-01-01T11:00:00Z\n",
		"reservations": "ROOM       UNITS  NODE  UNTIL\n" +
			"town-hall  500    b     " + ends.Local().Format(time.RFC3339) + "\n" +
			"\"\\u202ex\"  1      -     " + ends.Local().Format(time.RFC3339) + "\n",
		"room release a/b --output json": "{\"room\":\"a/b\"}\n",
	} {
		code, got, problem := roostIn(t, f.Env, strings.Fields(command)...)
		if code != 0 || problem != "" || got != want {
			t.Errorf("%s: %d %q\n%s", command, code, problem, got)
		}
	}
}

// TestStaleTable: if an agent is isolated, fenced or stalled, no command presents its table as the cluster's table.
func TestStaleTable(t *testing.T) {
	f, h := fakeagent.New(t), fakeagent.Healthy()
	placed, ranked, table := h["GET /v1/place"].(clusterhttp.Placed), h["GET /v1/owners"].(clusterhttp.Ranked),
		h["GET /v1/partitions"].(clusterhttp.Partitions)
	for _, stale := range []bool{false, true} {
		placed.Stale, ranked.Stale, table.Stale = stale, stale, stale
		f.Set("GET /v1/place", placed)
		f.Set("GET /v1/owners", ranked)
		f.Set("GET /v1/partitions", table)
		for command, want := range map[string]string{
			"place k": staleTable, "owners k": staleTable, "partitions": staleTable,
			"plan --add node-d": "this agent is isolated, fenced or stalled, so its table may be old",
		} {
			code, out, problem := roostIn(t, f.Env, strings.Fields(command)...)
			if command == "partitions" { // the warning is below the table, because no script parses these lines
				if strings.Contains(out, "the same on every member") == stale {
					t.Errorf("stale %v:\n%s", stale, out)
				}
				out, problem = "", out
			}
			if code != exitOK || strings.Contains(problem, want) != stale || strings.Contains(out, "isolated") {
				t.Errorf("%s, stale %v: %d %q", command, stale, code, problem)
			}
		}
		_, out, problem := roostIn(t, f.Env, "place", "k", "--output", "json")
		if problem != "" || strings.Contains(out, `"stale":true`) != stale {
			t.Errorf("as JSON: %q %q", out, problem)
		}
	}
}

// TestMembersLost: if many members were lost, the table shows the last ten, and how many more there are.
func TestMembersLost(t *testing.T) {
	f := fakeagent.New(t)
	m := fakeagent.Healthy()["GET /v1/members"].(clusterhttp.Members)
	m.Lost = nil
	for i := range 184 {
		m.Lost = append(m.Lost, clusterhttp.Lost{
			Profile: lease.Profile{ID: lease.NodeID(fmt.Sprintf("gone-%03d", i))}, Reason: lease.Crashed, AgoMS: int64(i) * 1000,
		})
	}
	f.Set("GET /v1/members", m)
	_, out, problem := roostIn(t, f.Env, "members")
	if n := strings.Count(out, "gone-"); n != 10 || !strings.Contains(out, "gone-009 crashed 9s ago\nand 174 more were lost or left before: --output json") {
		t.Errorf("%d lost members in\n%s%s", n, out, problem)
	}
	if _, out, _ := roostIn(t, f.Env, "members", "--output", "json"); strings.Count(out, "gone-") != 184 {
		t.Errorf("the answer as JSON lacks some:\n%s", out)
	}
}

// TestAllTable: members --all has a line for each agent, even if the agent does not answer.
func TestAllTable(t *testing.T) {
	const want = `AGENT STATE SEES TABLE DOES NOT SEE LOST HTTP
node-a * active 5 same - - ADDR
node-b ? - - - - reports no HTTP address that others can reach
node-c ? - - - - reports no HTTP address that others can reach
other-001 active 1 differs node-a, node-b, node-c, other-002 node-a crashed http://ADDR
other-002 ? - - - - no answer
`
	var lines []string
	for line := range strings.Lines(allOfTown(t, "members", "--output", "table")) {
		line = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(line, "ADDR")
		lines = append(lines, strings.Join(strings.Fields(line), " ")+"\n")
	}
	if diff := cmp.Diff(want, strings.Join(lines, "")); diff != "" {
		t.Error(diff)
	}
}

// TestHistoryTable: each kind of event is one line that says what happened, and text from other nodes cannot harm a
// terminal.
func TestHistoryTable(t *testing.T) {
	at := time.Date(2000, 1, 2, 3, 4, 5, 0, time.Local)
	var events []clusterhttp.Event
	for i, e := range []clusterhttp.Event{
		{Kind: cluster.EventStarted, Member: "a", Incarnation: 7},
		{Kind: cluster.EventReady, Member: "a", Members: 3, Partitions: 21},
		{Kind: cluster.EventLost, Member: "b", Reason: "crashed", Partitions: 1},
		{Kind: cluster.EventLost, Reason: "expired", Members: 900, Partitions: 60},
		{Kind: cluster.EventMoved, Moved: 61, Gained: 30},
		{Kind: cluster.EventReturned, Member: "b"},
		{Kind: cluster.EventReturned, Member: "b", Reason: "replaced"},
		{Kind: cluster.EventReturned, Member: "b", Reason: "replaced", Addr: "10.0.0.2:7946", OldAddr: "10.0.0.1:7946"},
		{Kind: cluster.EventDraining, Member: "b", Reason: "flapping"},
		{Kind: cluster.EventUndrained, Member: "b"},
		{Kind: cluster.EventWeight, Member: "b", OldWeight: 100},
		{Kind: cluster.EventWeight, Members: 21},
		{Kind: cluster.EventCordoned, Member: "b", Why: "slow\x1b[2J"},
		{Kind: cluster.EventIsolated, Member: "a", Why: "minority", Partitions: 21},
		{Kind: cluster.EventReady, Member: "b"},
		{Kind: cluster.EventReady, Members: 21},
		{Kind: affinity.EventStoreAway, Why: "connection refused"},
		{Kind: affinity.EventStoreBack, Lasted: 14050 * time.Millisecond},
		{Kind: affinity.EventDataLost},
		{Kind: affinity.EventPinsRestored, Rooms: 1, Lasted: time.Millisecond},
		{Kind: affinity.EventConflict, Member: "b", Rooms: 3},
		{Kind: affinity.EventRoomsMoved, Member: "b", Reason: "its node died", Rooms: 12},
		{Kind: affinity.EventRoomsMoved, Reason: "moved\x1b[2J", Rooms: 5000, Lasted: 90 * time.Second},
		{Kind: cluster.EventStopped, Member: "a", Reason: "left"},
	} {
		e.At = at.Add(time.Duration(i) * time.Millisecond)
		events = append(events, e)
	}
	f := fakeagent.New(t)
	f.Set("GET /v1/history", clusterhttp.History{Self: "a", Now: at.Add(61 * time.Second), Events: events})
	const want = `TIME                 AGO   EVENT          NODE         DETAIL
Jan  2 03:04:05.000  1m1s  started        a *
Jan  2 03:04:05.001  1m1s  ready          a *          with 3 members, owns 21 partitions
Jan  2 03:04:05.002  1m1s  lost           b            crashed, owned 1 partition
Jan  2 03:04:05.003  1m1s  lost           900 members  expired, owned 60 partitions
Jan  2 03:04:05.004  1m1s  moved          -            61 partitions; this node gained 30, lost 0
Jan  2 03:04:05.005  1m1s  returned       b
Jan  2 03:04:05.006  1m1s  returned       b            new incarnation; the previous one: replaced
Jan  2 03:04:05.007  1m1s  returned       b            a second process with this id, at 10.0.0.2:7946; the one at 10.0.0.1:7946 stops
Jan  2 03:04:05.008  1m1s  draining       b            flapping
Jan  2 03:04:05.009  1m1s  undrained      b
Jan  2 03:04:05.010  1m1s  weight         b            0, was 100
Jan  2 03:04:05.011  1m1s  weight         21 members
Jan  2 03:04:05.012  1m1s  cordoned       b            "slow\x1b[2J"
Jan  2 03:04:05.013  1m1s  isolated       a *          minority, owned 21 partitions
Jan  2 03:04:05.014  1m1s  ready          b
Jan  2 03:04:05.015  1m1s  ready          21 members
Jan  2 03:04:05.016  1m1s  store-away     -            connection refused
Jan  2 03:04:05.017  1m1s  store-back     -            after 14.1s
Jan  2 03:04:05.018  1m1s  data-lost      -
Jan  2 03:04:05.019  1m1s  pins-restored  -            1 room
Jan  2 03:04:05.020  1m1s  conflict       b            3 rooms
Jan  2 03:04:05.021  1m1s  rooms-moved    b            12 rooms, its node died
Jan  2 03:04:05.022  1m1s  rooms-moved    -            5000 rooms, "moved\x1b[2J", within 1m30s
Jan  2 03:04:05.023  1m1s  stopped        a *          left
`
	code, got, problem := roostIn(t, f.Env, "history")
	var lines []string
	for line := range strings.Lines(got) {
		lines = append(lines, strings.TrimRight(line, " \n")+"\n")
	}
	if diff := cmp.Diff(want, strings.Join(lines, "")); diff != "" || code != 0 || problem != "" {
		t.Errorf("%d %q\n%s", code, problem, diff)
	}
}

func TestBatchLines(t *testing.T) {
	owned := func(ps ...placement.Partition) (o []events.Ownership) {
		for _, p := range ps {
			o = append(o, events.Ownership{Partition: p, Since: 1})
		}
		return o
	}
	lines := batchLines(time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC), events.Batch{
		Version: 7, Joined: []lease.NodeID{"c"}, Left: []lease.NodeID{"b", "d"},
		Reasons: map[lease.NodeID]lease.Reason{"b": lease.Crashed, "d": lease.Departed},
		Moved: []events.Move{
			{Partition: 1, From: "b", To: "c"},
			{Partition: 2, From: "", To: "a"},
			{Partition: 9, From: "b", To: "c"},
			{Partition: 3, From: "a", To: ""},
		},
		Released: owned(3), Acquired: owned(2, 4, 6, 8, 10, 12),
	})
	want := `03:04:05  v7     left      b (crashed)
03:04:05  v7     left      d
03:04:05  v7     joined    c
03:04:05  v7     moved     nobody -> a: 1 (2)
03:04:05  v7     moved     a -> nobody: 1 (3)
03:04:05  v7     moved     b -> c: 2 (1 9)
03:04:05  v7     released  here: 1 (3)
03:04:05  v7     acquired  here: 6 (2 4 6 8 10 …)
`
	if diff := cmp.Diff(want, term.Text(lines, false, "\n")); diff != "" {
		t.Error(diff)
	}
}
