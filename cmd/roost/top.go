package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/session"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

func (p *program) topCommand() *cobra.Command {
	var every time.Duration
	cmd := p.clientCommand(&cobra.Command{
		Use:   "top [flags]",
		Short: "Watch a cluster in the whole terminal window",
		Long: `Watch the members as the agent sees them: how old their leases are, what they own and
carry, whose table differs, and the last changes. Members with problems come first. Use the
arrow keys, or j and k, to scroll, and q or Ctrl-C to quit. The command needs a terminal;
for files and pipes use roost members --watch.`,
		Example: `  roost top
  roost top --addr 10.0.0.7:8401 --every 500ms`,
		Args: takes(),
	}, func(ctx context.Context, s *session.Session, _ []string) error {
		if s.JSON {
			return settings.UsageError("top draws on a terminal; for JSON use: roost members --watch --output json")
		}
		in, ok := p.stdin.(*os.File)
		if !s.Term.Moves || !ok || !term.Is(in) {
			return settings.UsageError("top needs a terminal with a movable cursor (TERM is not dumb); for files and pipes use: roost members --watch")
		}
		now, err := topNow(ctx, s, clusterhttp.Partitions{})
		if err != nil {
			return err
		}
		return top(ctx, s, in, now, every)
	}, settings.Setting{
		Name: "every", Arg: "DURATION", Default: "1s", Set: settings.Duration(&every), FlagOnly: true, Usage: "ask at least this often",
	})
	_ = cmd.Flags().MarkHidden("output") // top has no output that could be JSON
	return cmd
}

// top draws pages until the user quits or a signal arrives.
func top(ctx context.Context, s *session.Session, in *os.File, v topView, every time.Duration) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var news []term.Line
	skip := 0
	screen := &term.Full{
		In: in, Out: s.Out, Term: s.Term, Update: make(chan func()),
		Page: func(columns, lines int) []term.Line {
			skip = min(max(0, skip), max(0, len(v.members.Members)-1))
			v = v.aged(time.Now(), every)
			return v.page(columns, lines, skip, news)
		},
		Key: func(typed string, last byte) bool {
			for keys, by := range scrolling {
				if strings.HasSuffix(typed, keys) {
					skip += by
				}
			}
			return strings.IndexByte("qQ\x03\x04", last) < 0 // Ctrl-C and Ctrl-D, too
		},
	}
	update := func(f func()) {
		select {
		case screen.Update <- f:
		case <-ctx.Done():
		}
	}
	changed := make(chan struct{}, 1)
	go followEvents(ctx, s, changed, func(lines []term.Line) {
		update(func() {
			news = append(news, lines...)
			news = news[max(0, len(news)-keptNews):]
		})
	})
	go askAgain(ctx, s, v, every, changed, func(next topView) { update(func() { v = next }) })
	return screen.Run(ctx)
}

// scrolling maps keys to the number of members to scroll by. The keys are j, k, the arrow keys, space, b and
// the page keys.
var scrolling = map[string]int{"j": 1, "k": -1, "\x1b[B": 1, "\x1b[A": -1, " ": 10, "b": -10, "\x1b[6~": 10, "\x1b[5~": -10}

// followEvents passes the lines about each batch of changes to add. The first batch of a stream is the
// current state, so it is not added.
func followEvents(ctx context.Context, s *session.Session, changed chan<- struct{}, add func([]term.Line)) {
	heard := false
	_ = session.Stream(ctx, s.Events, func(b events.Batch, first bool) error {
		session.Touch(changed)
		switch now := time.Now(); {
		case !first:
			add(batchLines(now, b))
		case heard:
			add(term.TextLines(now.Format(time.TimeOnly) + "  " + s.AnswersAgain() + "; changes in between are missing"))
		}
		heard = true
		return nil
	}, func(error) error { return nil })
}

// askAgain asks the agent again after every tick and change, and passes each answer to show. If the agent
// does not answer, askAgain passes the last answer with the reason.
func askAgain(ctx context.Context, s *session.Session, v topView, every time.Duration, changed <-chan struct{}, show func(topView)) {
	again := time.NewTicker(every)
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-again.C:
		case <-changed:
		case <-ctx.Done():
			return
		}
		next, err := topNow(ctx, s, v.table)
		if err == nil {
			v = next
		} else {
			v.problem = s.Explain(err).Error()
		}
		show(v)
	}
}

// topView is the last answer of the agent.
type topView struct {
	at      time.Time
	addr    string
	stats   clusterhttp.Stats
	members clusterhttp.Members
	table   clusterhttp.Partitions // zero if the agent has none
	problem string                 // why there is no newer answer
}

// topNow asks the agent for its statistics and members. Because the table is large, topNow asks for it only
// if it has changed since had.
func topNow(ctx context.Context, s *session.Session, had clusterhttp.Partitions) (v topView, err error) {
	ctx, cancel := s.Bound(ctx)
	defer cancel()
	v = topView{at: time.Now(), addr: s.Addr, table: had}
	if v.stats, err = s.Stats(ctx); err != nil {
		return v, err
	}
	if v.members, err = s.Members(ctx); err != nil {
		return v, err
	}
	if m := v.members; m.Version != had.Version || m.Digest != had.Digest || had.Partitions == 0 {
		v.table, err = s.Partitions(ctx)
	}
	if session.Absent(err) != nil {
		v.table, err = clusterhttp.Partitions{}, nil
	}
	return v, err
}

const (
	newsLines = 6   // on a page with enough lines
	newsHead  = 2   // lines above the changes
	wide      = 110 // columns that are enough for all columns and bars
	keptNews  = 50  // lines
	barWidth  = 8
)

// page lays out the page, without the first skip members. On a small terminal, members take precedence over
// changes, and members that need attention come first.
func (v topView) page(columns, lines, skip int, news []term.Line) []term.Line {
	page := v.head()
	room := lines - len(page)
	if len(news) > 0 && room > 2*newsLines {
		room -= min(len(news), newsLines) + newsHead
	}
	if len(v.members.Members) >= room { // some members will be hidden
		v.members.Members = slices.Clone(v.members.Members)
		slices.SortStableFunc(v.members.Members, func(a, b clusterhttp.Member) int { return v.trouble(b) - v.trouble(a) })
	}
	rows := v.grid(columns >= wide).Lines(columns)
	page = append(page, term.Cut(slices.Delete(rows, 1, 1+skip), columns, room)...)
	if n := min(len(news), lines-len(page)-newsHead); n > 0 {
		page = append(page, term.Line{}, term.Line{{Text: "changes since the start", Tone: term.Heading}})
		page = append(page, news[len(news)-n:]...)
	}
	return page
}

// aged returns the view with a problem if the next answer is overdue.
func (v topView) aged(now time.Time, every time.Duration) topView {
	const grace = 3 * time.Second
	if v.problem == "" && now.Sub(v.at) > every+grace {
		v.problem = "its process may be paused, or its machine out of CPU"
	}
	return v
}

// trouble returns 1 for a member that needs attention, and 0 otherwise.
func (v topView) trouble(m clusterhttp.Member) int {
	s := v.stats.Settings
	if m.State != lease.Active || !m.InSync || 3*m.AgeMS > 2*s.TTLMS || clockOf(m.ClockOffsetMS, s.MaxSkewMS).Tone != term.Plain {
		return 1
	}
	return 0
}

func (v topView) head() []term.Line {
	title := term.Line{
		{Text: "roost top", Tone: term.Heading},
		{Text: "  " + v.at.Format(time.TimeOnly) + "  q quits", Tone: term.Faint},
		{Text: fmt.Sprintf("  cluster %s, as %s at %s sees it", term.Printable(v.stats.Settings.Cluster), v.members.Self, v.addr)},
	}
	head := []term.Line{title, v.summary()}
	if v.problem != "" {
		head = append(head, term.Line{{Text: "no answer since: " + strings.ReplaceAll(v.problem, "\n", "; "), Tone: term.Bad}})
	}
	head = append(head, v.lost()...)
	if v.table.Balance.Advice != "" {
		head = append(head, term.Line{{Text: term.Printable(v.table.Balance.Advice), Tone: term.Warning}})
	}
	return append(head, term.Line{})
}

// lost lists the members that were lost most recently, at most three.
func (v topView) lost() (lines []term.Line) {
	const most = 3
	for _, l := range v.members.Lost {
		if l.Reason != lease.Departed && len(lines) < most {
			lines = append(lines, term.Line{{Text: lostLine(l), Tone: term.Bad}})
		}
	}
	return lines
}

func (v topView) summary() term.Line {
	members := term.Toned{Text: term.Plural(len(v.members.Members), "member") + ", "}
	if v.table.Partitions == 0 {
		return term.Line{members, {Text: "no table yet: this node is " + v.stats.State, Tone: term.Warning}}
	}
	divergence := term.Toned{Text: "the same table everywhere", Tone: term.Good}
	switch {
	case v.stats.Isolated() || v.stats.State == "joining":
		divergence = term.Toned{Text: "the last table of this node, which is " + v.stats.State, Tone: term.Warning}
	case v.members.Diverged > 0:
		divergence = term.Toned{Text: term.Plural(v.members.Diverged, "member") + " with another table", Tone: term.Warning}
	}
	return term.Line{members, divergence, {Text: fmt.Sprintf(", version %d: %d partitions, max/mean %.2f, variation %s",
		v.members.Version, v.table.Partitions, v.table.Balance.MaxMean, term.Percent(v.table.Balance.CV))}}
}

// grid returns a table with a row for each member. If bars is true, leases and loads have bars.
func (v topView) grid(bars bool) *term.Sheet {
	t := term.NewSheet("ID\tSTATE\tLEASE\tPARTITIONS\tSHARE\tLOAD\tTABLE\tWEIGHT\tCLOCK\tZONE")
	ttl, skew := v.stats.Settings.TTLMS, v.stats.Settings.MaxSkewMS
	for _, m := range v.members.Members {
		n := v.table.Counts[m.ID]
		share := float64(n) / float64(max(1, v.table.Partitions))
		t.Row(marked(m.ID, v.members.Self), stateOf(m), gauge(m.AgeMS, ttl, term.Age(m.AgeMS), bars), n, term.Percent(share),
			gauge(m.Load, m.Capacity, loadOf(m), bars), sameOrNot(m.InSync), m.Weight, clockOf(m.ClockOffsetMS, skew), term.OrDash(m.Zone))
	}
	return t
}

// gauge returns text in a color that shows how large part is compared to whole. If bar is true, a bar precedes
// the text. If whole is unknown (0 or less), gauge returns the text alone.
func gauge(part, whole int64, text string, bar bool) term.Toned {
	if whole <= 0 {
		return term.Toned{Text: text}
	}
	share := min(max(float64(part)/float64(whole), 0), 1)
	if full := int(share * barWidth); bar {
		text = strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + " " + text
	}
	switch {
	case share >= 0.9:
		return term.Toned{Text: text, Tone: term.Bad}
	case share > 2.0/3:
		return term.Toned{Text: text, Tone: term.Warning}
	}
	return term.Toned{Text: text, Tone: term.Good}
}

func clockOf(offsetMS, skewMS int64) term.Toned {
	t := term.Toned{Text: fmt.Sprintf("%+.1fs", float64(offsetMS/100)/10)} // never -0.0
	switch off := max(offsetMS, -offsetMS); {
	case off > skewMS:
		t.Tone = term.Bad
	case off > skewMS/2:
		t.Tone = term.Warning
	}
	return t
}
