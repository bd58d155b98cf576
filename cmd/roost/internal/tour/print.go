package tour

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// printer writes for people.
type printer struct {
	w       io.Writer
	err     error // the first of w
	term    term.Terminal
	waiting bool          // a moving line is on the screen
	shown   time.Duration // how much of this wait plain lines have shown
}

func newPrinter(w io.Writer) *printer { return &printer{w: w, term: term.Of(w, os.Getenv)} }

func (p *printer) paint(tone term.Tone, text string) string {
	return term.Line{{Text: text, Tone: tone}}.In(p.term.Colours && text != "")
}

// Write keeps the first error for the verdict.
func (p *printer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.err = cmp.Or(p.err, err)
	return n, err
}

// line prints one line.
func (p *printer) line(format string, args ...any) {
	p.settle()
	_, _ = io.WriteString(p, strings.TrimRight(fmt.Sprintf(format, args...), " ")+"\n")
}

func (p *printer) title(number int, title, why string) {
	p.line("")
	p.line("%s", p.paint(term.Heading, fmt.Sprintf("%d. %s", number, title)))
	for l := range strings.Lines(why) {
		p.line("   %s", p.paint(term.Faint, strings.TrimSuffix(l, "\n")))
	}
	p.line("")
}

func (p *printer) fact(label, value, remark string) {
	p.line("   %-17s %s%s", label, pad(value, 24), p.paint(term.Faint, remark))
}

func (p *printer) check(c check) {
	if c.held() {
		p.line("   %s    %s", p.paint(term.Good, "held"), c.what)
		return
	}
	p.line("   %s  %s", p.paint(term.Bad, "BROKEN"), c.what)
	p.line("           %s", p.paint(term.Bad, c.problem))
}

// wait shows the progress of a wait: on one line that moves, or every two seconds where
// lines cannot move.
func (p *printer) wait(text string, waited time.Duration) {
	if p.term.Moves {
		p.term.Replace(p, term.Line{{Text: fmt.Sprintf("   %4.1f s  %s", waited.Seconds(), text), Tone: term.Faint}})
		p.waiting = true
		return
	}
	const every = 2 * time.Second
	if waited-p.shown >= every {
		p.shown = waited.Truncate(every)
		p.line("   %4.1f s  %s", p.shown.Seconds(), text)
	}
}

// waited ends a wait.
func (p *printer) waited() {
	p.settle()
	if p.shown > 0 {
		p.line("")
	}
	p.shown = 0
}

// settle removes the moving line.
func (p *printer) settle() {
	if p.waiting {
		p.term.Replace(p, nil)
		p.waiting = false
	}
}

// holding is a row of the table of owners.
type holding struct {
	node                      lease.NodeID
	partitions, rooms         int
	morePartitions, moreRooms int // than before
	streams                   int // the cost of its rooms
	note                      string
}

// columns selects the columns of a holding.
type columns int

const (
	onlyPartitions columns = iota
	andRooms               // by the hash
	andPinned              // rooms, and their cost
)

const barWidth = 20 // of the node that owns most

func (p *printer) holdings(rows []holding, show columns) {
	most, width := 1, 0
	for _, r := range rows {
		most = max(most, r.partitions)
		width = max(width, len(r.node))
	}
	head := [...]string{"partitions", "partitions         rooms", "partitions        pinned        streams"}[show]
	p.line("   %-*s  %s", width, "", p.paint(term.Faint, head))
	for _, r := range rows {
		l := fmt.Sprintf("%-*s  %10s", width, r.node, count(r.partitions))
		if show >= andRooms {
			l += fmt.Sprintf(" %5s  %6s %5s", signed(r.morePartitions), count(r.rooms), signed(r.moreRooms))
		}
		if show == andPinned {
			l += fmt.Sprintf("  %7s", count(r.streams))
		}
		bar := strings.Repeat("█", (r.partitions*barWidth+most/2)/most)
		p.line("   %s  %s%s", l, pad(bar, barWidth+2), r.note)
	}
	p.line("")
}

// row is the line of a step in the summary.
type row struct {
	what         string
	moved, of    int
	expected     string
	rooms        int // by the hash
	pinned       int
	agreed       time.Duration
	checks, held int
}

func (p *printer) summary(rows []row) {
	p.line("")
	heading := fmt.Sprintf("%-18s %17s  %9s  %6s  %6s  %7s  %s",
		"What happened", "partitions moved", "expected", "rooms", "pinned", "agreed", "checks")
	p.line("%s", p.paint(term.Heading, heading))
	for _, r := range rows {
		held := p.paint(term.Good, "held")
		if r.held < r.checks {
			held = p.paint(term.Bad, fmt.Sprintf("%d of %d BROKEN", r.checks-r.held, r.checks))
		}
		p.line("%-18s %8s %8s  %9s  %6s  %6s  %7s  %s", r.what, count(r.moved), percent(r.moved, r.of), r.expected,
			count(r.rooms), count(r.pinned), seconds(r.agreed), held)
	}
}

// pad fills text up with spaces.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// count writes 1024 as 1,024.
func count(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && n > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func signed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", n)
}

func percent(part, whole int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, whole)))
}

// seconds writes a measured duration, whole a configured one.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
func whole(d time.Duration) string   { return fmt.Sprintf("%g s", d.Seconds()) }
