package main

import (
	"fmt"
	"strings"
)

// sheet is a table of text that is made to fit a terminal.
type sheet struct {
	rows [][]toned // the first is the header
}

const (
	gap       = 2  // columns between cells
	leastCell = 12 // columns that a cell keeps when its column is cut
)

// newSheet takes a header with a tab between its cells.
func newSheet(header string) *sheet {
	s := new(sheet)
	var cells []any
	for cell := range strings.SplitSeq(header, "\t") {
		cells = append(cells, toned{cell, heading})
	}
	s.row(cells...)
	return s
}

// row adds a row. Cells are shown as fmt does, unless they are toned.
func (s *sheet) row(cells ...any) {
	row := make([]toned, len(cells))
	for i, cell := range cells {
		t, ok := cell.(toned)
		if !ok {
			t.text = fmt.Sprint(cell)
		}
		row[i] = toned{harmless(t.text), t.tone} // now, since it decides how wide columns are
	}
	s.rows = append(s.rows, row)
}

// lines lays the table out for a terminal of so many columns, 0 for no limit. The
// widest columns are cut first; what does not fit even so is left out from the
// right.
func (s *sheet) lines(most int) []line {
	widths := s.widths()
	if most > 0 {
		widths = fit(widths, most)
	}
	lines := make([]line, len(s.rows))
	for i, row := range s.rows {
		var l line
		for k, w := range widths {
			cell := toned{clip(row[k].text, w), row[k].tone}
			l = append(l, cell)
			if k < len(widths)-1 {
				l = append(l, toned{text: strings.Repeat(" ", w-columnsOf(cell.text)+gap)})
			}
		}
		lines[i] = l
	}
	return lines
}

func (s *sheet) widths() []int {
	widths := make([]int, len(s.rows[0]))
	for _, row := range s.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], columnsOf(cell.text))
		}
	}
	return widths
}

// fit narrows columns until all fit.
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
