package gossip

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// linesPerSecond limits memberlist's log, because memberlist logs a line for each unreadable packet.
const linesPerSecond = 5

// logger returns a log.Logger that passes memberlist's lines to slog.
func logger(to *slog.Logger) *log.Logger {
	return log.New(&logWriter{to: to}, "", 0)
}

type logWriter struct {
	to      *slog.Logger
	mu      sync.Mutex
	window  time.Time
	lines   int
	skipped int
}

// Write writes one line such as "[WARN] memberlist: text" to slog.
func (w *logWriter) Write(line []byte) (int, error) {
	level, text := parseLevel(string(bytes.TrimSpace(line)))
	ctx := context.Background()
	if !w.to.Enabled(ctx, level) {
		return len(line), nil
	}
	pass, skipped := w.admit(time.Now())
	if skipped > 0 {
		w.to.Log(ctx, slog.LevelWarn, "memberlist log lines suppressed", "lines", skipped)
	}
	if pass {
		w.to.Log(ctx, level, "memberlist", "line", text)
	}
	return len(line), nil
}

func (w *logWriter) admit(now time.Time) (pass bool, skipped int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.window) >= time.Second {
		skipped = w.skipped
		w.window, w.lines, w.skipped = now, 0, 0
	}
	if w.lines >= linesPerSecond {
		w.skipped++
		return false, skipped
	}
	w.lines++
	return true, skipped
}

// parseLevel lowers memberlist's levels by one step, and the levels of lines about pings by more. A peer that does not
// answer pings is normal, because leases decide which nodes are alive.
func parseLevel(line string) (slog.Level, string) {
	levels := []struct {
		prefix string
		level  slog.Level
	}{
		{"[DEBUG]", slog.LevelDebug - 4},
		{"[INFO]", slog.LevelDebug},
		{"[WARN]", slog.LevelDebug},
		{"[ERR]", slog.LevelInfo},
		{"[ERROR]", slog.LevelInfo},
	}
	for _, l := range levels {
		if rest, ok := strings.CutPrefix(line, l.prefix); ok {
			if strings.Contains(rest, "Failed fallback TCP ping") {
				l.level = slog.LevelDebug
			}
			return l.level, strings.TrimPrefix(strings.TrimSpace(rest), "memberlist: ")
		}
	}
	return slog.LevelDebug, line
}
