package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// terminal is where the standard output goes; the zero value is a file or pipe.
type terminal struct {
	file    *os.File // nil: it is no terminal
	moves   bool     // its cursor can be moved
	colours bool
}

func (p *program) terminal() terminal {
	f, ok := p.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return terminal{}
	}
	kind := p.getenv("TERM")
	able := kind != "" && kind != "dumb"
	return terminal{file: f, moves: able, colours: able && p.getenv("NO_COLOR") == ""}
}

// size returns how many columns and lines there are; 0 stands for no limit.
func (t terminal) size() (columns, lines int) {
	if t.file == nil {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(t.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

// tone is how a text is shown where there are colours.
type tone string

// The tones, as ANSI sets them: the eight basic colours alone, which users
// arrange to be readable on their background.
const (
	plain   tone = ""
	heading tone = "1"
	faint   tone = "2"
	good    tone = "32"
	warning tone = "33"
	bad     tone = "31"
)

// toned is a text in a tone.
type toned struct {
	text string
	tone tone
}

// harmless escapes what a terminal would act on, or not show, but for the runes
// that are kept. Whoever answers can put that into any text.
func harmless(s string, kept ...rune) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) || slices.Contains(kept, r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// complain tells people what is wrong.
func complain(w io.Writer, text string) {
	_, _ = fmt.Fprintf(w, "roost: %s\n", harmless(redacted(text), '\n', '\t'))
}

// line is one line of output.
type line []toned

func textLine(text string) line { return line{{text: text}} }

func textLines(text string) (lines []line) {
	for l := range strings.Lines(text) {
		lines = append(lines, textLine(strings.TrimSuffix(l, "\n")))
	}
	return lines
}

// in returns the line as it is written. All that people read goes through here, so
// that none of it can command the terminal.
func (l line) in(colours bool) string {
	var b strings.Builder
	for _, t := range l {
		text := harmless(t.text)
		if colours && t.tone != plain {
			text = "\x1b[" + string(t.tone) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	return b.String()
}

// clipped returns the line cut to so many columns.
func (l line) clipped(most int) line {
	for i, t := range l {
		n := columnsOf(t.text)
		if n > most {
			return append(slices.Clone(l[:i]), toned{clip(t.text, most), t.tone})
		}
		most -= n
	}
	return l
}

// clip cuts s so that it takes at most so many columns, and shows that by an
// ellipsis.
func clip(s string, most int) string {
	switch {
	case columnsOf(s) <= most:
		return s
	case most < 1:
		return ""
	}
	used := 0
	for i, r := range s {
		if used += columnsOfRune(r); used > most-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// columnsOf returns how wide a terminal shows s, which has no control characters.
func columnsOf(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0 // it is put on the rune before
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}
