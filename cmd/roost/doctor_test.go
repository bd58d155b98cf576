package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"pgregory.net/rapid"
)

// healthyLook is what doctor sees of the healthy cluster.
func healthyLook() look {
	h := healthy()
	l := look{stats: h["GET /v1/stats"].(clusterhttp.Stats), members: h["GET /v1/members"].(clusterhttp.Members), table: h["GET /v1/partitions"].(clusterhttp.Partitions)}
	rooms := *l.stats.Rooms
	l.stats.Rooms = &rooms
	return l
}

// reading has a loop that reads events be so many states behind.
func reading(l *look, behind uint64) {
	l.stats.Readers = []events.ReaderStats{{Name: "http", Open: 3}, {Name: "watch", Open: 1, Behind: behind}}
}

// TestChecks: each thing that can be wrong is found, told apart from what is
// usual, and explained; and nothing else is complained about.
func TestChecks(t *testing.T) {
	both := func(f func(l *look)) func(b, a *look) { return func(b, a *look) { f(b); f(a) } }
	after := func(f func(l *look)) func(b, a *look) { return func(_, a *look) { f(a) } }
	member := func(i int, f func(m *clusterhttp.Member)) func(l *look) {
		return func(l *look) { f(&l.members.Members[i]) }
	}
	for name, c := range map[string]struct {
		change func(before, after *look)
		want   string // name: verdict: part of the finding; of what is not ok
	}{
		"healthy": {func(_, _ *look) {}, ""},
		"drain":   {both(func(l *look) { l.stats.State = "draining" }), "ready: warn: draining"},
		"settle":  {after(func(l *look) { l.stats.State = "settling" }), "ready: warn: settling"},
		"fenced":  {after(func(l *look) { l.stats.State = "joining" }), "ready: fail: joining"},

		"an old lease":    {after(member(2, func(m *clusterhttp.Member) { m.AgeMS = 4001 })), "leases: warn: node-c 4s"},
		"at two thirds":   {after(member(2, func(m *clusterhttp.Member) { m.AgeMS = 4000 })), ""},
		"another's clock": {after(member(1, func(m *clusterhttp.Member) { m.ClockOffsetMS = 5100 })), "clocks: fail: node-b by 5.1s"},
		"a slow clock":    {after(member(1, func(m *clusterhttp.Member) { m.ClockOffsetMS = -9000 })), "clocks: warn: node-b by -9s"},
		"nearly":          {after(member(1, func(m *clusterhttp.Member) { m.ClockOffsetMS = 2600 })), "clocks: warn: node-b by 2.6s"},
		"its own clock": {after(func(l *look) { // is the one that is wrong if all others agree
			l.members.Members[1].ClockOffsetMS, l.members.Members[2].ClockOffsetMS = -6000, -6000
		}), "clocks: fail: node-a by 6s"},

		"drift that stays":  {both(member(1, func(m *clusterhttp.Member) { m.InSync = false })), "tables: warn: node-b"},
		"drift that came":   {after(member(1, func(m *clusterhttp.Member) { m.InSync = false })), ""},
		"one after another": {func(b, a *look) { b.members.Members[1].InSync, a.members.Members[2].InSync = false, false }, ""},
		"a newcomer":        {both(member(1, func(m *clusterhttp.Member) { m.InSync, m.State = false, lease.Settling })), ""},
		"no table":          {after(func(l *look) { l.members.Digest, l.table = 0, clusterhttp.Partitions{} }), "tables: warn: no table"},

		"uneven":   {after(func(l *look) { l.table.Balance.Advice = "raise Partitions." }), "balance: warn: 64 partitions on 3 nodes"},
		"too few":  {after(func(l *look) { l.table.Partitions = 2 }), "balance: fail: 2 partitions on 3 nodes"},
		"weight 0": {after(member(1, func(m *clusterhttp.Member) { m.Weight = 0 })), "members: warn: of weight 0: node-b"},
		"all settle": {after(func(l *look) { // as they do when they start together
			for i := range l.members.Members {
				l.members.Members[i].State = lease.Settling
			}
		}), "members: warn: nobody owns anything yet; settling: node-a, node-b, node-c"},
		"one drains":     {after(member(1, func(m *clusterhttp.Member) { m.State = lease.Draining })), ""},
		"no owner":       {after(func(l *look) { weigh(l, 0, 0, 0) }), "members: fail: none of 3 members + members: warn: of weight 0: node-a, node-b, node-c"},
		"one and drains": {after(func(l *look) { weigh(l, 0, 100, 100); drainAll(l, 1, 2) }), "members: fail: none of 3 members may own anything; draining: node-b, node-c + members: warn: of weight 0: node-a"},

		"lost seed":   {after(func(l *look) { l.stats.Settings.Join = []string{"10.0.0.9:7946", "10.0.0.2:7946"} }), "seeds: warn: no live member at 10.0.0.9:7946"},
		"no seed":     {after(func(l *look) { l.stats.Settings.Join = nil }), "seeds: warn: none"},
		"itself only": {after(func(l *look) { l.stats.Settings.Join = []string{"10.0.0.1:7946"} }), "seeds: warn: none"},
		"alone":       {after(func(l *look) { l.members.Members = l.members.Members[:1] }), "seeds: fail: told to join 10.0.0.2:7946, seeds.test:7946 + members: warn: this node is alone"},
		"alone by name": {after(func(l *look) {
			l.members.Members, l.stats.Settings.Join = l.members.Members[:1], []string{"seeds.test:7946"}
		}), "members: warn: this node is alone + seeds: warn: alone, and told to join seeds.test:7946"},
		"the first": {after(func(l *look) { l.members.Members = l.members.Members[:1]; l.stats.Settings.Join = nil }), "members: warn: this node is alone"},

		"hasty":             {after(func(l *look) { l.stats.Settings.TTLMS = 4900 }), "settings: warn: less than 2.5 heartbeats"},
		"redis away":        {after(func(l *look) { l.stats.Rooms.StoreDoubt, l.stats.Rooms.Breaker = true, "open" }), "redis: fail: breaker: open"},
		"a loop hangs":      {func(b, a *look) { reading(b, 1); reading(a, 3) }, "events: warn: watch by 3 states"},
		"it catches up":     {func(b, a *look) { reading(b, 3); reading(a, 1) }, ""},
		"it just fell back": {after(func(l *look) { reading(l, 3) }), ""},
		"no rooms":          {both(func(l *look) { l.stats.Rooms = nil }), ""},
	} {
		e := examination{before: healthyLook(), after: healthyLook(), over: 2 * time.Second, addr: "agent:8401"}
		c.change(&e.before, &e.after)
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, " + ")
		}
		judge(t, name, e, want)
	}
}

func weigh(l *look, weights ...uint32) {
	for i, w := range weights {
		l.members.Members[i].Weight = w
	}
}

func drainAll(l *look, which ...int) {
	for _, i := range which {
		l.members.Members[i].State = lease.Draining
	}
}

// judge compares what is not ok with what is wanted, by name, verdict and a part of
// the finding.
func judge(t *testing.T, name string, e examination, want []string) {
	t.Helper()
	checks := e.checks()
	ok := make(map[string]bool)
	for _, c := range checks {
		if c.Status == passed {
			ok[c.Name] = true
			continue
		}
		if c.Means == "" || c.Do == "" {
			t.Errorf("%s: %s does not say what it means or what to do: %+v", name, c.Name, c)
		}
		got := fmt.Sprintf("%s: %s: %s", c.Name, c.Status, c.Finding)
		if len(want) == 0 {
			t.Errorf("%s: complains %q", name, got)
			continue
		}
		name, rest, _ := strings.Cut(want[0], ": ")
		verdict, part, _ := strings.Cut(rest, ": ")
		head := name + ": " + verdict + ": "
		if !strings.HasPrefix(got, head) || !strings.Contains(got, part) {
			t.Errorf("%s: got %q, want %q", name, got, want[0])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("%s: no complaint of %q", name, want)
	}
	for _, c := range checks {
		if c.Status != passed && ok[c.Name] {
			t.Errorf("%s: %s is ok and not ok", name, c.Name)
		}
	}
	for _, must := range []string{"agent", "ready", "leases", "clocks", "tables", "balance", "members", "seeds", "messages", "settings", "losses", "fences", "redis"} {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.Name == must }) {
			t.Errorf("%s: nothing is said of %s", name, must)
		}
	}
}

// TestCounters: a counter warns if it grew between the looks, and by itself.
func TestCounters(t *testing.T) {
	set := func(s *clusterhttp.Stats, name string, n uint64) {
		for _, part := range []any{&s.Counts, s.Rooms} { // by its name in the JSON
			if err := json.Unmarshal(fmt.Appendf(nil, "{%q:%d}", name, n), part); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range counters() {
		e := examination{before: healthyLook(), after: healthyLook(), over: 2 * time.Second}
		set(&e.before.stats, c.name, 5)
		set(&e.after.stats, c.name, 5)
		judge(t, c.name+" of old", e, nil)
		set(&e.after.stats, c.name, 7)
		judge(t, c.name, e, []string{c.check + ": warn: " + c.name + ": 2 more within 2s, 7 since the agent started"})
		set(&e.after.stats, c.name, 3) // it was started again between the looks
		judge(t, c.name+" anew", e, nil)
	}
}

// TestDoctorCommand: exit codes and output, and what is said if there is no view.
func TestDoctorCommand(t *testing.T) {
	joining := clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeNotReady, Message: "joining: no node", State: "joining"}
	ended := clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeClosed, Message: "the agent has left"}
	seedless := healthyLook().stats
	seedless.Settings.Join = nil
	doubt := healthyLook().stats
	doubt.Rooms.StoreDoubt = true
	for name, c := range map[string]struct {
		stats any
		code  int
		want  string
	}{
		"ok":      {healthyLook().stats, exitOK, "13 ok, 0 warn, 0 fail, as node-a sees it"},
		"warn":    {seedless, exitWarned, "12 ok, 1 warn, 0 fail, as node-a sees it"},
		"fail":    {doubt, exitBroken, "12 ok, 0 warn, 1 fail, as node-a sees it"},
		"joining": {joining, exitBroken, "has not joined: joining: no node"},
		"ended":   {ended, exitBroken, "has ended: the agent has left"},
	} {
		f := newFake(t)
		f.set("GET /v1/stats", c.stats)
		code, out, fault := roostIn(t, f.env, "doctor", "--over", "1ms")
		if code != c.code || fault != "" || !strings.Contains(out, c.want) {
			t.Errorf("%s: exits with %d, prints %q\n%s", name, code, fault, out)
		}
		code, out, _ = roostIn(t, f.env, "doctor", "--over", "1ms", "--output", "json")
		var d struct {
			Status string
			Checks []struct{ Name, Status string }
		}
		if err := json.Unmarshal([]byte(out), &d); err != nil || code != c.code || len(d.Checks) == 0 {
			t.Errorf("%s as json: exits with %d, %v\n%s", name, code, err, out)
		}
		if want := map[int]string{exitOK: "ok", exitWarned: "warn", exitBroken: "fail"}[c.code]; d.Status != want {
			t.Errorf("%s: status is %q, want %q", name, d.Status, want)
		}
	}

	f := newFake(t)
	f.env["ROOST_ADDR"] = "http://me:secret@" + f.env["ROOST_ADDR"]
	if code, out, fault := roostIn(t, f.env, "doctor", "--over", "1ms"); code != exitOK || strings.Contains(out+fault, "secret") {
		t.Errorf("behind a proxy that asks for a password: %d %q %q", code, out, fault)
	}
	f.set("GET /v1/stats", nil)
	if code, out, fault := roostIn(t, f.env, "doctor"); code != exitFailed || out != "" || !strings.Contains(fault, "older version") {
		t.Errorf("an old agent: %d %q %q", code, out, fault)
	}
	f.env["ROOST_ADDR"] = "127.0.0.1:1"
	if code, out, fault := roostIn(t, f.env, "doctor"); code != exitFailed || out != "" || !strings.Contains(fault, "start one with `roost agent`") {
		t.Errorf("no agent: %d %q %q", code, out, fault)
	}
}

func TestCheckLines(t *testing.T) {
	c := check{"clocks", warned, "far from the others: b", "a node that is ahead is fenced", "have NTP set the clock"}
	var got strings.Builder
	for _, l := range c.lines(44) {
		got.WriteString(l.in(false) + "\n")
	}
	want := `warn  clocks    far from the others: b
                means: a node that is ahead
                       is fenced
                do:    have NTP set the
                       clock
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

// TestWrapped: no line is too long unless a word is, and no word is lost.
func TestWrapped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-z]{3,20}`), 10, 30).Draw(t, "words")
		columns := rapid.IntRange(20, 30).Draw(t, "columns")
		lines := wrapped(strings.Join(words, " "), columns)
		for _, l := range lines {
			if columnsOf(l) > columns {
				t.Fatalf("%q is longer than %d", l, columns)
			}
		}
		if got := strings.Fields(strings.Join(lines, " ")); !slices.Equal(got, words) {
			t.Fatalf("got %q, want %q", got, words)
		}
	})
}
