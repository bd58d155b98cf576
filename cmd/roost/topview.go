package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/events"
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

// page lays everything out. Where room is scarce, members come before news, and
// those in trouble before others.
func (v topView) page(columns, lines int, log []line) []line {
	page := v.head()
	room := lines - len(page)
	news := 0
	if room > 2*newsLines {
		news = min(len(log), newsLines)
	}
	room -= news + newsHead
	if len(v.members.Members) >= room { // some will not be seen
		v.members.Members = slices.Clone(v.members.Members)
		slices.SortStableFunc(v.members.Members, func(a, b clusterhttp.Member) int { return v.trouble(b) - v.trouble(a) })
	}
	page = append(page, cut(v.grid(columns >= wide).lines(columns), columns, room)...)
	if news = min(len(log), lines-len(page)-newsHead); news > 0 {
		page = append(page, line{}, line{{"changes since the start", heading}})
		page = append(page, log[len(log)-news:]...)
	}
	return page
}

// trouble is 1 for a member that is worth a look.
func (v topView) trouble(m clusterhttp.Member) int {
	if m.State != lease.Active || !m.InSync || 3*m.AgeMS > 2*v.stats.Settings.TTLMS {
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

// appendNews adds what has changed, the newest at the end.
func appendNews(log []line, at time.Time, b events.Batch) []line {
	var text strings.Builder
	_ = printBatch(&text, at, b)
	for l := range strings.Lines(text.String()) {
		log = append(log, textLine(strings.TrimSuffix(l, "\n")))
	}
	return log[max(0, len(log)-keptNews):]
}
