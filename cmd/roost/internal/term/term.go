// Package term prints for people: lines with colors, tables that fit the terminal, and pages that are redrawn
// in place. The package escapes text from an agent, so that the text cannot control the terminal.
package term

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

	"github.com/roost-cluster/roost/internal/agenturl"
)

// Terminal describes where output goes. The zero value is a file or pipe.
type Terminal struct {
	Moves   bool // the cursor can move
	Colours bool

	file *os.File // nil if not a terminal
}

// Of returns the terminal that w writes to. Of uses the environment variables TERM and NO_COLOR.
func Of(w io.Writer, getenv func(string) string) Terminal {
	f, ok := w.(*os.File)
	if !ok || !Is(w) {
		return Terminal{}
	}
	able := getenv("TERM") != "" && getenv("TERM") != "dumb"
	return Terminal{file: f, Moves: able, Colours: able && getenv("NO_COLOR") == ""}
}

// Is reports whether a reader or writer is a terminal.
func Is(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Size returns the number of columns and lines. 0 means no limit.
func (t Terminal) Size() (columns, lines int) {
	if t.file == nil {
		return 0, 0
	}
	columns, lines, err := term.GetSize(int(t.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

// Replace replaces the line at the cursor. An empty line clears it. Replace cuts the line to fit, because text that
// wraps to the next row would not be cleared later.
func (t Terminal) Replace(w io.Writer, l Line) {
	if columns, _ := t.Size(); columns > 0 {
		l = l.Clipped(columns - 1)
	}
	_, _ = io.WriteString(w, "\r"+l.In(t.Colours)+"\x1b[K")
}

// Tone is how a text looks on a terminal with colors.
type Tone string

// The tones use the eight basic ANSI colors, because users have configured those to be readable.
const (
	Plain   Tone = ""
	Heading Tone = "1"
	Faint   Tone = "2"
	Good    Tone = "32"
	Warning Tone = "33"
	Bad     Tone = "31"
)

// Toned is a text with a tone.
type Toned struct {
	Text string
	Tone Tone
}

// Harmless escapes the characters of a text that a terminal would interpret or not show, except the runes in
// kept. Text from an agent must be escaped, because an agent can put any characters into it.
func Harmless(s string, kept ...rune) string {
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

// Complain prints a problem, prefixed with "roost: ".
func Complain(w io.Writer, text string) {
	_, _ = fmt.Fprintf(w, "roost: %s\n", Harmless(agenturl.Redacted(text), '\n', '\t'))
}

// Line is a line of output.
type Line []Toned

// TextLine returns a line in the plain tone.
func TextLine(text string) Line { return Line{{Text: text}} }

// TextLines splits a text into lines in the plain tone.
func TextLines(text string) (lines []Line) {
	for l := range strings.Lines(text) {
		lines = append(lines, TextLine(strings.TrimSuffix(l, "\n")))
	}
	return lines
}

// String returns the line without colors.
func (l Line) String() string { return l.In(false) }

// In returns the line as it is printed, with or without colors. All output for people must pass through In,
// which escapes terminal controls.
func (l Line) In(colours bool) string {
	var b strings.Builder
	for _, t := range l {
		text := Harmless(t.Text)
		if colours && t.Tone != Plain {
			text = "\x1b[" + string(t.Tone) + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	return b.String()
}

// Text returns the lines as they are printed, each followed by end.
func Text(lines []Line, colours bool, end string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.In(colours) + end)
	}
	return b.String()
}

// Clipped returns the line, cut to the given number of columns.
func (l Line) Clipped(most int) Line {
	for i, t := range l {
		text := Harmless(t.Text)
		n := Columns(text)
		if n > most {
			return append(slices.Clone(l[:i]), Toned{clip(text, most), t.Tone})
		}
		most -= n
	}
	return l
}

// clip cuts s to the given number of columns. An ellipsis marks the cut.
func clip(s string, most int) string {
	switch {
	case Columns(s) <= most:
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

// Columns returns the width of s on a terminal, in columns. s must not contain control characters.
func Columns(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0 // a combining character
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// Wrapped breaks a text into lines at spaces. If columns is less than 10, which includes 0 for no limit,
// Wrapped leaves the text as one line.
func Wrapped(text string, columns int) (lines []string) {
	if text == "" {
		return nil
	}
	if columns < 10 {
		return []string{text}
	}
	used := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case used == "":
			used = word
		case Columns(used)+1+Columns(word) > columns:
			lines, used = append(lines, used), word
		default:
			used += " " + word
		}
	}
	return append(lines, used)
}
