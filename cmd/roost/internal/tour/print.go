package tour

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/term"
	"github.com/roost-cluster/roost/lease"
)

// printer writes the tour's output for a terminal or a file.
type printer struct {
	w       io.Writer
	err     error // first error of w
	term    term.Terminal
	waiting bool          // a line that changes is on the screen
	shown   time.Duration // the last time in the current wait at which a plain line was printed
}

func newPrinter(w io.Writer) *printer { return &printer{w: w, term: term.Of(w, os.Getenv)} }

func (p *printer) paint(tone term.Tone, text string) string {
	return term.Line{{Text: text, Tone: tone}}.In(p.term.Colours && text != "")
}

// Write records the first error, which the verdict returns.
func (p *printer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.err = cmp.Or(p.err, err)
	return n, err
}

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
	p.line("   %-17s %-24s%s", label, value, p.paint(term.Faint, remark))
}

func (p *printer) check(c check) {
	if c.held() {
		p.line("   %s    %s", p.paint(term.Good, "held"), c.what)
		return
	}
	p.line("   %s  %s", p.paint(term.Bad, "BROKEN"), c.what)
	p.line("           %s", p.paint(term.Bad, c.problem))
}

// wait shows the progress of a wait on a single line that changes. If the terminal cannot change lines, wait
// prints a new line every two seconds.
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

// settle removes the line that changes.
func (p *printer) settle() {
	if p.waiting {
		p.term.Replace(p, nil)
		p.waiting = false
	}
}

const barWidth = 20 // of the node that owns most

// holdings prints how many partitions, rooms and streams each node has, and how the numbers changed. A node's
// note is printed only once.
func (t *tour) holdings(before view) {
	now, placedWas, placedIs := t.seen[0], before.placed, t.seen[0].placed
	head, withRooms, withStreams := "partitions", len(t.rooms) > 0, len(t.parties) > 0
	switch {
	case withStreams:
		head, placedWas, placedIs = "partitions        pinned        streams", homesOf(before.pins), homesOf(now.pins)
	case withRooms:
		head = "partitions         rooms"
	}
	nodes := slices.DeleteFunc(slices.Clone(t.nodes), func(n *node) bool { return n.state == lease.Left && n.note == "" })
	most, width := 1, 0
	for _, n := range nodes {
		most, width = max(most, tally(now.owners, n.id)), max(width, len(n.id))
	}
	streams := streamsOf(now.pins)
	t.out.line("   %-*s  %s", width, "", t.out.paint(term.Faint, head))
	for _, n := range nodes {
		partitions, rooms := tally(now.owners, n.id), tally(placedIs, n.id)
		l := fmt.Sprintf("%-*s  %10s", width, n.id, count(partitions))
		if withRooms {
			l += fmt.Sprintf(" %5s  %6s %5s", signed(partitions-tally(before.owners, n.id)), count(rooms), signed(rooms-tally(placedWas, n.id)))
		}
		if withStreams {
			l += fmt.Sprintf("  %7s", count(streams[n.id]))
		}
		bar := strings.Repeat("█", (partitions*barWidth+most/2)/most)
		t.out.line("   %s  %-*s%s", l, barWidth+2, bar, n.note)
		n.note = ""
	}
	t.out.line("")
}

// tally counts the keys that the node owns.
func tally[K comparable](owners map[K]lease.NodeID, id lease.NodeID) (n int) {
	for _, owner := range owners {
		if owner == id {
			n++
		}
	}
	return n
}

// facts prints the numbers of a change and returns them for the summary.
func (t *tour) facts(c change, o outcome) row {
	r := row{
		what: c.what, moved: len(o.moves), of: len(o.is.owners), expected: "none", agreed: o.took,
		rooms: len(diff(o.was.placed, o.is.placed)), pinned: len(movedPins(o.was.pins, o.is.pins)),
	}
	partitions, pinned := "expected: none", "expected: none"
	if c.oneIn > 0 {
		r.expected = percent(1, c.oneIn)
		partitions = fmt.Sprintf("expected: 1/%d = %s", c.oneIn, r.expected)
	}
	if c.gone != "" {
		pinned = fmt.Sprintf("expected: the %s of %s", count(tally(homesOf(o.was.pins), c.gone)), c.gone)
	}
	number := func(n, of int) string { return fmt.Sprintf("%-5s %7s", count(n), percent(n, of)) }
	t.out.fact("agreed after", seconds(o.took), c.usual)
	t.out.fact("partitions moved", number(r.moved, r.of), partitions)
	t.out.fact("rooms moved", number(r.rooms, len(t.rooms)), "by hash alone")
	t.out.fact("pinned moved", number(r.pinned, len(t.parties)), pinned)
	if was, is := o.was.pins[bigRoom], o.is.pins[bigRoom]; was != is {
		t.out.fact("the big room", fmt.Sprintf("%s to %s", was.node, orNone(is.node)), "to a node with headroom, if there is one")
	}
	switch left := tally(homesOf(o.is.pins), c.gone); {
	case left > 0:
		t.out.fact("not re-pinned", fmt.Sprintf("%s, after %s", count(left), seconds(o.repinned)), "")
	case c.gone != "":
		t.out.fact("re-pinned after", seconds(o.repinned), "time until no pin named that node")
	}
	t.askedAgain()
	t.out.line("")
	return r
}

// askedAgain prints how many questions were repeated.
func (t *tour) askedAgain() {
	if n := t.again.Swap(0); n > 0 {
		t.out.fact("asked again", fmt.Sprintf("%s times", count(int(n))), "the store was slow, so an agent could only guess")
	}
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

// count formats a number with separators: 1024 becomes 1,024.
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

// seconds formats a measured duration. The function whole formats configured durations.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
func whole(d time.Duration) string   { return fmt.Sprintf("%g s", d.Seconds()) }
