package presence_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// blockedHandler is a log handler that waits for its channel.
type blockedHandler struct {
	slog.Handler
	released chan struct{}
}

// Handle implements slog.Handler.
func (b blockedHandler) Handle(context.Context, slog.Record) error {
	<-b.released
	return nil
}

// Enabled implements slog.Handler.
func (b blockedHandler) Enabled(context.Context, slog.Level) bool { return true }

// The store fails for a while, and the log handler blocks. Participants are present again after the store is back.
func TestBlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := blockedHandler{slog.DiscardHandler, make(chan struct{})}
		t.Cleanup(func() { close(blocked.released) })
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, presence.Config{Log: slog.New(blocked)})
		join(t, p, "r", "ada")
		w.cut(true)
		time.Sleep(stale)
		w.cut(false)
		time.Sleep(3 * stale)
		synctest.Wait()
		wantMembers(t, p, "r", "ada")
	})
}
