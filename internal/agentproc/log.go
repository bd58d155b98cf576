package agentproc

import (
	"bytes"
	"regexp"
	"sync"
)

// Log keeps the output of a process. It is safe for concurrent use. The zero value keeps all output.
type Log struct {
	// Tail is the number of lines to keep. 0 keeps all lines. Normally Log keeps the last lines. After a
	// panic, it keeps the first lines of the panic instead, because they name the cause.
	Tail int

	mu   sync.Mutex
	text []byte
}

// maxLine is the maximum average length of the kept lines in bytes, if Tail is set.
const maxLine = 2 << 10

// Write implements io.Writer. It never fails or blocks.
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

// String returns the kept output.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
