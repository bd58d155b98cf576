package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// TestTables: tables line up, and what others put into their records does no harm
// to a terminal.
func TestTables(t *testing.T) {
	evil := clusterhttp.Member{ID: "b", State: lease.Settling, Addr: "10.2\x07:7946", APIAddr: "\x1b[2Jx\n", Zone: "z\u202e", AgeMS: 61_234, Weight: 1, Load: 7, Capacity: 9}
	answers := map[string]any{
		"/v1/members": clusterhttp.Members{Self: "a", Members: []clusterhttp.Member{{ID: "a", Addr: "10.0.0.1:7946", State: lease.Active, InSync: true, Weight: 100}, evil}},
		"/v1/place":   clusterhttp.Placed{Key: "k\x07", Partition: 3, Owner: evil},
		"/v1/owners":  clusterhttp.Ranked{Key: "k", Owners: []clusterhttp.Member{evil}, Why: "b won\x1b"},
		"/v1/partitions": clusterhttp.Partitions{
			Export: placement.Export{Partitions: 8, Strategy: "s\n", Digest: 0x123, Version: 9},
			Counts: map[lease.NodeID]int{"a": 6, "b": 2}, Balance: clusterhttp.Balance{MaxMean: 1.5, CV: 0.5, Advice: "advice"}, Drift: 2,
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(answers[r.URL.Path])
	}))
	defer server.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"members"}, `
ID   STATE     GOSSIP         AGE     WEIGHT  LOAD    ZONE       TABLE
a *  active    10.0.0.1:7946  0s      100     0       -          same
b    settling  10.2\a:7946    1m1.2s  1       7 of 9  "z\u202e"  differs
`},
		{[]string{"partitions"}, `
OWNER  PARTITIONS  SHARE
a      6           75.0%
b      2           25.0%

8 partitions by "s\n", max/mean 1.50, variation 50.0%
table 0000000000000123, version 9 at this agent, another one at 2 members: see roost members
advice
`},
		{[]string{"place", "k"}, `
KEY    PARTITION  OWNER  GOSSIP       API
"k\a"  3          b      10.2\a:7946  "\x1b[2Jx\n"
`},
		{[]string{"owners", "k"}, `
RANK  ID  STATE     GOSSIP       API
1     b   settling  10.2\a:7946  "\x1b[2Jx\n"

partition 0: "b won\x1b"
`},
	} {
		code, got, fault := roostIn(t, map[string]string{"ROOST_ADDR": server.URL}, c.args...)
		if code != 0 || fault != "" || got != strings.TrimPrefix(c.want, "\n") {
			t.Errorf("%v: %d %q\n%s", c.args, code, fault, got)
		}
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
		Version: 7, Joined: []lease.NodeID{"c"}, Left: []lease.NodeID{"b"},
		Moved:    []events.Move{{Partition: 1, From: "b", To: "c"}, {Partition: 2, From: "", To: "a"}, {Partition: 9, From: "b", To: "c"}, {Partition: 3, From: "a", To: ""}},
		Released: owned(3), Acquired: owned(2, 4, 6, 8, 10, 12),
	})
	want := `03:04:05  v7     left      b
03:04:05  v7     joined    c
03:04:05  v7     moved     nobody -> a: 1 (2)
03:04:05  v7     moved     a -> nobody: 1 (3)
03:04:05  v7     moved     b -> c: 2 (1 9)
03:04:05  v7     released  here: 1 (3)
03:04:05  v7     acquired  here: 6 (2 4 6 8 10 …)
`
	var got strings.Builder
	for _, l := range lines {
		got.WriteString(l.String() + "\n")
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}
