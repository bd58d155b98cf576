package term

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress: a long operation shows a progress line on a terminal, and the line disappears at the end. Short
// operations and other outputs show none.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			moves bool
			each  time.Duration
			want  string
		}{
			{true, time.Millisecond, ""},
			{false, time.Second, ""},
			{true, 600 * time.Millisecond, "\r2 of 3\\x1b\x1b[K|\r3 of 3\\x1b\x1b[K|\r\x1b[K"},
		} {
			var out strings.Builder
			p := &Progress{Term: Terminal{Moves: c.moves}, Out: &out}
			for n := range 4 { // after 0, 0.6, 1.2 and 1.8 s
				p.Show(fmt.Sprint(n, " of 3\x1b"))
				p.Show("at once again")
				time.Sleep(c.each)
			}
			p.Clear()
			if got := strings.ReplaceAll(out.String(), "K\r", "K|\r"); got != c.want {
				t.Errorf("moves %v, each %v: %q, want %q", c.moves, c.each, got, c.want)
			}
		}
	})
}
