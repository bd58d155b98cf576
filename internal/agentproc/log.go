package agentproc

import (
	"bytes"
	"regexp"
	"sync"
)

// Log keeps output. It is safe for concurrent use. The zero value is empty and keeps everything.
type Log struct {
	// Tail is how many lines to keep: the last lines or, after a panic, its first lines, which name the
	// cause. 0 keeps everything.
	Tail int

	mu   sync.Mutex
	text []byte
}

// maxLine is how many bytes a line may have on average if only a tail is kept.
const maxLine = 2 << 10

// Write implements io.Writer. It never fails and never blocks the process.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if l.Tail > 0 {
		l.trim()
	}
	return len(b), nil
}

var crash = regexp.MustCompile(`(?m)^(panic|fatal error): `)

func (l *Log) trim() {
	most := l.Tail * maxLine
	if at := crash.FindIndex(l.text); at != nil {
		l.text = l.text[at[0]:]
		lines := bytes.SplitAfterN(l.text, []byte("\n"), l.Tail+1)
		l.text = bytes.Join(lines[:min(len(lines), l.Tail)], nil)
		l.text = l.text[:min(len(l.text), most)]
		return
	}
	for bytes.Count(l.text, []byte("\n")) > l.Tail {
		_, l.text, _ = bytes.Cut(l.text, []byte("\n"))
	}
	l.text = l.text[max(0, len(l.text)-most):]
}

// String returns what was kept.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
