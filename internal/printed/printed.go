// Package printed holds what a process, or another goroutine, has printed so far,
// for tests that look at it while it goes on.
package printed

import (
	"bytes"
	"sync"
)

// Buffer is an io.Writer whose text can be read at any time, from any goroutine. The
// zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
