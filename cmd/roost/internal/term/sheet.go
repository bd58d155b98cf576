package term

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Sheet is a table that fits the terminal.
type Sheet struct {
	rows [][]Toned // the first is the header
}

const (
	gap       = 2  // columns between cells
	leastCell = 12 // minimum width of a column that is cut
)

// NewSheet returns a table with the given header, in which tabs separate the cells.
func NewSheet(header string) *Sheet {
	s := new(Sheet)
	var cells []any
	for cell := range strings.SplitSeq(header, "\t") {
		cells = append(cells, Toned{cell, Heading})
	}
	s.Row(cells...)
	return s
}

// Row adds a row. Cells are formatted as by fmt.Sprint, except if they are Toned.
func (s *Sheet) Row(cells ...any) {
	row := make([]Toned, len(cells))
	for i, cell := range cells {
		t, ok := cell.(Toned)
		if !ok {
			t.Text = fmt.Sprint(cell)
		}
		row[i] = Toned{Harmless(t.Text), t.Tone} // escaped here, because the widths of the columns depend on it
	}
	s.rows = append(s.rows, row)
}

// Lines lays out the table for a terminal that is at most most columns wide. If most is 0, there is no limit.
// Lines first cuts the widest columns and then drops columns from the right.
func (s *Sheet) Lines(most int) []Line {
	widths := s.widths()
	if most > 0 {
		widths = fit(widths, most)
	}
	lines := make([]Line, len(s.rows))
	for i, row := range s.rows {
		var l Line
		for k, w := range widths {
			cell := Toned{clip(row[k].Text, w), row[k].Tone}
			l = append(l, cell)
			if k < len(widths)-1 {
				l = append(l, Toned{Text: strings.Repeat(" ", w-Columns(cell.Text)+gap)})
			}
		}
		lines[i] = l
	}
	return lines
}

func (s *Sheet) widths() []int {
	widths := make([]int, len(s.rows[0]))
	for _, row := range s.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], Columns(cell.Text))
		}
	}
	return widths
}

// fit cuts and drops columns until the table fits.
func fit(widths []int, most int) []int {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for total > most {
		widest := 0
		for i, w := range widths {
			if w > widths[widest] {
				widest = i
			}
		}
		switch last := len(widths) - 1; {
		case widths[widest] > leastCell:
			widths[widest]--
			total--
		case last > 0:
			total -= widths[last] + gap
			widths = widths[:last]
		default:
			widths[0], total = most, most
		}
	}
	return widths
}

// Page returns a function that lays out a table, followed by the text below, for a given number of columns.
func Page(header string, fill func(row func(cells ...any)), below ...string) func(columns int) []Line {
	t := NewSheet(header)
	fill(t.Row)
	return func(columns int) []Line {
		return append(t.Lines(columns), TextLines(strings.Join(below, ""))...)
	}
}

// Printable quotes a text if it contains line breaks or terminal controls.
func Printable(s string) string {
	quoted := strconv.Quote(s)
	if quoted[1:len(quoted)-1] == s {
		return s
	}
	return quoted
}

// OrDash returns s in printable form, or a dash if s is empty.
func OrDash(s string) string { return Printable(cmp.Or(s, "-")) }

// Percent formats a share of 1 as a percentage.
func Percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// Age formats milliseconds as a duration. 0 means an unknown age.
func Age(ms int64) string {
	if ms == 0 {
		return OrDash("")
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// Plural formats a number with a noun, which gets an s except after 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
