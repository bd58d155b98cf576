package term

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Screen draws each page over the previous one.
type Screen struct {
	Out  io.Writer
	Term Terminal

	drawn          int // lines
	columns, lines int // of the terminal at that time
}

// Show draws the page that layOut returns for the number of columns of the terminal.
func (d *Screen) Show(layOut func(columns int) []Line) error {
	columns, lines := d.Term.Size()
	page := Cut(layOut(columns), columns, cmp.Or(lines, 1<<30)-1)
	home := ""
	switch {
	case d.drawn > 0 && (columns != d.columns || lines != d.lines):
		home = "\x1b[2J\x1b[H" // the terminal has moved the content of the screen
	case d.drawn > 0:
		home = fmt.Sprintf("\r\x1b[%dA", d.drawn)
	}
	d.columns, d.lines, d.drawn = columns, lines, len(page)
	_, err := io.WriteString(d.Out, home+Text(page, d.Term.Colours, "\x1b[K\n")+"\x1b[J")
	return err
}

// Cut makes a page fit the given columns and lines.
func Cut(page []Line, columns, lines int) []Line {
	lines = max(1, lines)
	if more := len(page) - lines; more > 0 {
		page = append(page[:lines-1:lines-1], Line{{fmt.Sprintf("… %d more lines", more+1), Faint}})
	}
	if columns > 0 {
		for i := range page {
			page[i] = page[i].Clipped(columns)
		}
	}
	return page
}

// EnterFull switches to the alternate screen of the terminal and hides the cursor. LeaveFull undoes that.
const (
	EnterFull = "\x1b[?1049h\x1b[?25l"
	LeaveFull = "\x1b[?25h\x1b[?1049l"
)

// sizeTime is how often the size of the terminal is checked. There is no portable signal for a change of the
// size.
const sizeTime = 200 * time.Millisecond

// Full draws on the whole terminal in raw mode, from one goroutine. To change what Page draws, send a
// function to Update, and that goroutine calls it.
type Full struct {
	In     *os.File
	Out    io.Writer
	Term   Terminal
	Update chan func()                        // functions to call before the next page
	Page   func(columns, lines int) []Line    // called after each update, key and tick
	Key    func(typed string, last byte) bool // returns false to end; typed has the last four keys or fewer
}

// Run takes over the terminal until ctx ends or Key returns false. Afterwards, Run restores the terminal.
func (f *Full) Run(ctx context.Context) error {
	was, err := term.MakeRaw(int(f.In.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(f.In.Fd()), was) }()
	if _, err := io.WriteString(f.Out, EnterFull); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(f.Out, LeaveFull) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := make(chan byte)
	go f.read(ctx, keys)
	return f.draw(ctx, keys)
}

// draw draws the page whenever it differs from the page on the screen.
func (f *Full) draw(ctx context.Context, keys <-chan byte) error {
	tick := time.NewTicker(sizeTime)
	defer tick.Stop()
	shown, typed := "", ""
	for {
		columns, lines := f.Term.Size()
		if page := FullPage(f.Page(columns, lines), columns, lines, f.Term.Colours); page != shown {
			shown = page
			if _, err := io.WriteString(f.Out, page); err != nil {
				return err
			}
		}
		select {
		case update := <-f.Update:
			update()
		case <-tick.C:
		case key := <-keys:
			typed = typed[max(0, len(typed)-3):] + string(rune(key))
			if !f.Key(typed, key) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// FullPage returns a page that covers the terminal. Lines end with a carriage return and a line feed, because
// in raw mode a line feed does not move the cursor to the first column.
func FullPage(page []Line, columns, lines int, colours bool) string {
	text := Text(Cut(page, columns, lines), colours, "\x1b[K\r\n")
	return "\x1b[H" + strings.TrimSuffix(text, "\r\n") + "\x1b[J"
}

// read sends each key to keys.
func (f *Full) read(ctx context.Context, keys chan<- byte) {
	key := make([]byte, 1)
	for {
		n, err := f.In.Read(key)
		if err != nil {
			return // the program can still be stopped by a signal
		}
		if n == 0 {
			continue
		}
		select {
		case keys <- key[0]:
		case <-ctx.Done():
			return
		}
	}
}
