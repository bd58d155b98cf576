package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"pgregory.net/rapid"
)

func healthyTop() topView {
	h := fakeagent.Healthy()
	return topView{
		at: time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC), addr: "127.0.0.1:8401", stats: healthyStats(),
		members: h["GET /v1/members"].(clusterhttp.Members), table: h["GET /v1/partitions"].(clusterhttp.Partitions),
	}
}

// TestTopGolden compares the page with a file: wide and narrow, with and without problems.
func TestTopGolden(t *testing.T) {
	healthy := healthyTop()
	trouble := healthyTop()
	trouble.members.Diverged = 1
	b, c := &trouble.members.Members[1], &trouble.members.Members[2]
	b.State, b.AgeMS, b.InSync, b.ClockOffsetMS = lease.Draining, 5900, false, -7300
	c.Capacity, c.Load, c.Zone = 0, 12, "zone \x1b[2J of a very long name"
	trouble.table.Balance.Advice = "raise Partitions from 64 to 256 on every node of the cluster."
	trouble.problem = "no agent answers\nstart one"
	trouble.members.Lost = []clusterhttp.Lost{
		{Profile: lease.Profile{ID: "node-z"}, Reason: lease.Crashed, AgoMS: 14_300, Partitions: 21},
		{Profile: lease.Profile{ID: "node-y"}, Reason: lease.Departed, AgoMS: 90_000},
	}
	crowd := healthyTop()
	for range 7 {
		crowd.members.Members = append(crowd.members.Members, healthy.members.Members...)
	}
	crowd.members.Members[20].State = lease.Settling
	crowd.members.Members[22].ClockOffsetMS = 3000
	empty := healthyTop()
	empty.table, empty.stats.State = clusterhttp.Partitions{}, "settling"
	isolated, stalled := healthyTop(), healthyTop()
	isolated.stats.State, stalled.stats.State = "isolated", "joining"
	var log []term.Line
	for i := range 9 {
		log = append(log,
			batchLines(healthy.at.Add(time.Duration(i)*time.Second), events.Batch{Version: uint64(i + 1), Joined: []lease.NodeID{"node-d"}})...)
	}
	var got strings.Builder
	for _, p := range []struct {
		name           string
		v              topView
		columns, lines int
		log            []term.Line
	}{
		{"healthy", healthy, 130, 20, log[:2]},
		{"narrow", healthy, 60, 16, log},
		{"low", healthy, 130, 9, log},
		{"crowd", crowd, 130, 18, log},
		{"trouble", trouble, 130, 20, nil},
		{"scrolled", crowd, 130, 18, log},
		{"no table", empty, 130, 20, nil},
		{"isolated", isolated, 130, 3, nil},
		{"stalled", stalled, 130, 3, nil},
	} {
		_, _ = fmt.Fprintf(&got, "--- %s, %d by %d\n", p.name, p.columns, p.lines)
		skip := 0
		if p.name == "scrolled" {
			skip = 20
		}
		for _, l := range term.Cut(p.v.page(p.columns, p.lines, skip, p.log), p.columns, p.lines) {
			got.WriteString(strings.TrimRight(l.String(), " ") + "\n")
		}
	}
	golden(t, "testdata/top.txt", got.String())
}

// TestTopAged: the page shows that an answer is overdue before the timeout. A problem that is already known stays.
func TestTopAged(t *testing.T) {
	v := healthyTop()
	for after, want := range map[time.Duration]string{
		0:                "",
		13 * time.Second: "",
		14 * time.Second: "its process may be paused, or its machine out of CPU",
	} {
		if got := v.aged(v.at.Add(after), 10*time.Second).problem; got != want {
			t.Errorf("after %v: %q, want %q", after, got, want)
		}
	}
	v.problem = "refused"
	if got := v.aged(v.at.Add(time.Hour), time.Second).problem; got != "refused" {
		t.Errorf("got %q", got)
	}
}

// TestTopFits: no page is larger than the terminal, and the news leaves room for members.
func TestTopFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := healthyTop()
		for i := range rapid.IntRange(0, 50).Draw(t, "members") {
			m := v.members.Members[0]
			m.ID = lease.NodeID(fmt.Sprint("more-", i))
			v.members.Members = append(v.members.Members, m)
		}
		var log []term.Line
		for range rapid.IntRange(0, keptNews).Draw(t, "news") {
			log = append(log, batchLines(v.at, events.Batch{Joined: []lease.NodeID{"x"}})...)
		}
		columns, lines := rapid.IntRange(1, 200).Draw(t, "columns"), rapid.IntRange(1, 60).Draw(t, "lines")
		skip := rapid.IntRange(0, len(v.members.Members)-1).Draw(t, "skip")
		page := term.FullPage(v.page(columns, lines, skip, log), columns, lines, true)
		rows := strings.Split(page, "\r\n")
		if len(rows) > lines {
			t.Fatalf("%d rows, at most %d", len(rows), lines)
		}
		for _, row := range rows {
			if text := uncoloured(row); term.Columns(text) > columns {
				t.Fatalf("%q has %d columns, at most %d", text, term.Columns(text), columns)
			}
		}
		if lines >= 18 && columns > 80 && (skip == 0 && !strings.Contains(page, "node-a") || len(log) > 0 != strings.Contains(page, "joined")) {
			t.Fatalf("members and news are not both visible:\n%s", uncoloured(page))
		}
	})
}

// uncoloured removes escape sequences.
func uncoloured(s string) string {
	return regexp.MustCompile(`\x1b\[[?;0-9]*[A-Za-z]`).ReplaceAllString(s, "")
}
