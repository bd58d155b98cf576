package term

import (
	"io"
	"time"
)

const (
	progressAfter = time.Second            // shorter work shows no progress
	progressEvery = 100 * time.Millisecond // at most
)

// Progress shows the progress of long work on one line of a terminal. If the output is not a terminal, it
// prints nothing. The methods of Progress are not safe for concurrent use.
type Progress struct {
	Term Terminal // of Out
	Out  io.Writer

	next  time.Time
	shown bool
}

// Show replaces the line. Nothing is shown until a second after the first call.
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
