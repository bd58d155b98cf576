package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// topView is what roost top shows: what an agent said last.
type topView struct {
	at      time.Time
	addr    string
	stats   clusterhttp.Stats
	members clusterhttp.Members
	table   clusterhttp.Partitions // zero if it has none
	fault   string                 // why there is nothing newer
}

// topNow asks for what is shown. The table is long, so it is only asked for if it
// is another one than had.
func (s *session) topNow(ctx context.Context, had clusterhttp.Partitions) (v topView, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	v = topView{at: time.Now(), addr: s.addr, table: had}
	if v.stats, err = s.Stats(ctx); err != nil {
		return v, err
	}
	if v.members, err = s.Members(ctx); err != nil {
		return v, err
	}
	if m := v.members; m.Version != had.Version || m.Digest != had.Digest || had.Partitions == 0 {
		v.table, err = s.Partitions(ctx)
	}
	if notThere(err) != nil {
		v.table, err = clusterhttp.Partitions{}, nil
	}
	return v, err
}

const (
	newsLines = 6   // of a page that is high enough
	newsHead  = 2   // lines above them
	wide      = 110 // columns that are enough for everything
	keptNews  = 50  // lines
	barWidth  = 8
)

// page lays everything out, without the first members if so many are skipped. Where
// room is scarce, members come before news, and those in trouble before others.
func (v topView) page(columns, lines, skip int, log []line) []line {
	page := v.head()
	room := lines - len(page)
	if len(log) > 0 && room > 2*newsLines {
		room -= min(len(log), newsLines) + newsHead
	}
	if len(v.members.Members) >= room { // some will not be seen
		v.members.Members = slices.Clone(v.members.Members)
		slices.SortStableFunc(v.members.Members, func(a, b clusterhttp.Member) int { return v.trouble(b) - v.trouble(a) })
	}
	rows := v.grid(columns >= wide).lines(columns)
	page = append(page, cut(slices.Delete(rows, 1, 1+skip), columns, room)...)
	if news := min(len(log), lines-len(page)-newsHead); news > 0 {
		page = append(page, line{}, line{{"changes since the start", heading}})
		page = append(page, log[len(log)-news:]...)
	}
	return page
}

// aged says so if there should long have been another answer.
func (v topView) aged(now time.Time, every time.Duration) topView {
	const silence = 3 * time.Second
	if v.fault == "" && now.Sub(v.at) > every+silence {
		v.fault = "its process may be stopped, or its machine starved"
	}
	return v
}

// trouble is 1 for a member that is worth a look.
func (v topView) trouble(m clusterhttp.Member) int {
	s := v.stats.Settings
	if m.State != lease.Active || !m.InSync || 3*m.AgeMS > 2*s.TTLMS || clockOf(m.ClockOffsetMS, s.MaxSkewMS).tone != plain {
		return 1
	}
	return 0
}

func (v topView) head() []line {
	title := line{
		{"roost top", heading},
		{"  " + v.at.Format(time.TimeOnly) + "  q ends", faint},
		{text: fmt.Sprintf("  cluster %s, as %s at %s sees it", printable(v.stats.Settings.Cluster), v.members.Self, v.addr)},
	}
	head := []line{title, v.summary()}
	if v.fault != "" {
		head = append(head, line{{"no answer since: " + strings.ReplaceAll(v.fault, "\n", "; "), bad}})
	}
	if v.table.Balance.Advice != "" {
		head = append(head, line{{printable(v.table.Balance.Advice), warning}})
	}
	return append(head, line{})
}

func (v topView) summary() line {
	drift := toned{"the same table everywhere", good}
	switch {
	case v.table.Partitions == 0:
		return line{{text: plural(len(v.members.Members), "member") + ", "}, {"no table yet: this node is " + v.stats.State, warning}}
	case v.members.Drift > 0:
		drift = toned{plural(v.members.Drift, "member") + " with another table", warning}
	}
	return line{{text: plural(len(v.members.Members), "member") + ", "}, drift, {text: fmt.Sprintf(", version %d: %d partitions, max/mean %.2f, variation %s",
		v.members.Version, v.table.Partitions, v.table.Balance.MaxMean, percent(v.table.Balance.CV))}}
}

// grid has a row for each member. Bars are for terminals that are wide.
func (v topView) grid(bars bool) *sheet {
	t := newSheet("ID\tSTATE\tLEASE\tPARTITIONS\tSHARE\tLOAD\tTABLE\tWEIGHT\tCLOCK\tZONE")
	ttl, skew := v.stats.Settings.TTLMS, v.stats.Settings.MaxSkewMS
	for _, m := range v.members.Members {
		n := v.table.Counts[m.ID]
		share := float64(n) / float64(max(1, v.table.Partitions))
		t.row(marked(m.ID, v.members.Self), stateOf(m), gauge(m.AgeMS, ttl, age(m.AgeMS), bars), n, percent(share),
			gauge(m.Load, m.Capacity, loadOf(m), bars), sameOrNot(m.InSync), m.Weight, clockOf(m.ClockOffsetMS, skew), orDash(m.Zone))
	}
	return t
}

// gauge shows how much of a whole a part is, if the whole is known.
func gauge(part, whole int64, text string, bar bool) toned {
	if whole <= 0 {
		return toned{text: text}
	}
	share := min(max(float64(part)/float64(whole), 0), 1)
	if full := int(share * barWidth); bar {
		text = strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + " " + text
	}
	switch {
	case share >= 0.9:
		return toned{text, bad}
	case share > 2.0/3:
		return toned{text, warning}
	}
	return toned{text, good}
}

func clockOf(offsetMS, skewMS int64) toned {
	t := toned{text: fmt.Sprintf("%+.1fs", float64(offsetMS/100)/10)} // never -0.0
	switch off := max(offsetMS, -offsetMS); {
	case off > skewMS:
		t.tone = bad
	case off > skewMS/2:
		t.tone = warning
	}
	return t
}
