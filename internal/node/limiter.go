package node

import "time"

// limiter bounds how often one log line repeats.
type limiter struct{ last time.Time }

// allow reports whether the line may be written now, and notes that it is.
func (l *limiter) allow(now time.Time, every time.Duration) bool {
	if !l.last.IsZero() && now.Sub(l.last) < every {
		return false
	}
	l.last = now
	return true
}
