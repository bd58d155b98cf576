package term

import (
	"io"
	"time"
)

const (
	progressAfter = time.Second            // shorter work shows none
	progressEvery = 100 * time.Millisecond // at most
)

// Progress is a line about long work on a terminal. It prints nothing if the output is not a terminal. Its
// methods are not safe for concurrent use.
type Progress struct {
	Term Terminal // of Out
	Out  io.Writer

	next  time.Time
	shown bool
}

// Show replaces the line. The first call begins the work.
func (p *Progress) Show(text string) {
	now := time.Now()
	if p.next.IsZero() {
		p.next = now.Add(progressAfter)
	}
	if !p.Term.Moves || now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	p.Term.Replace(p.Out, TextLine(text))
}

// Clear removes the line.
func (p *Progress) Clear() {
	if p.shown {
		p.Term.Replace(p.Out, nil)
	}
}
