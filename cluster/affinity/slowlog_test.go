package affinity_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// blockedHandler is a log handler that waits for its channel.
type blockedHandler struct{ released chan struct{} }

func (b blockedHandler) Enabled(context.Context, slog.Level) bool { return true }
func (b blockedHandler) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b blockedHandler) WithGroup(string) slog.Handler            { return b }
func (b blockedHandler) Handle(context.Context, slog.Record) error {
	<-b.released
	return nil
}

// With a blocked log handler, rooms stay where they are hosted, those of dead nodes move,
// and joins are answered.
func TestBlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := blockedHandler{make(chan struct{})}
		t.Cleanup(func() { close(blocked.released) })
		f := newFleet(t, pinstore.NewMemory(), affinity.Config{PinTTL: time.Minute, Log: slog.New(blocked)}, "a", "b", "c")
		at := make(map[string]string)
		for _, room := range names(30) {
			f.host("a", room, 2)
			at[room] = string(f.resolve("b", room, 2).Node)
		}
		f.crash("c")
		time.Sleep(10 * time.Minute)
		for room, node := range at {
			switch now := string(f.resolve("b", room, 2).Node); {
			case now == "c":
				t.Errorf("%s is still on the dead node", room)
			case now != node && node != "c":
				t.Errorf("%s moved from %s to %s", room, node, now)
			}
		}
	})
}
