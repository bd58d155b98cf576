package affinity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/placement"
)

func TestLogEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := &slog.HandlerOptions{Level: slog.LevelDebug}
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{Log: slog.New(slog.NewJSONHandler(&log, all))}, "a", "b", "c")
		for _, room := range names(50) {
			f.host("a", room, 2)
		}
		f.start("d")
		f.crash("c")
		time.Sleep(soon)

		store.blind.Store(true) // so that joins come before rooms are moved
		f.crash("b")
		time.Sleep(2 * soon) // failures of a TTL are not logged
		f.resolveAll(50)

		for _, r := range f.rooms {
			_ = r.Close()
		}
		seen := make(map[string]map[string]any) // message → fields of all its lines
		for lines := json.NewDecoder(&log); ; {
			var line map[string]any
			if err := lines.Decode(&line); err != nil {
				break
			}
			message := line["msg"].(string)
			if seen[message] == nil {
				seen[message] = line
			}
			maps.Copy(seen[message], line)
		}
		for message, fields := range map[string]string{
			"nodes added; pinned rooms stay":          "joined hosted_here",
			"pin names a dead node, resolving again":  "room from",
			"room moved":                              "room from to epoch reason pin_ttl",
			"rooms failed over":                       "rooms took_ms pin_ttl",
			"rooms of dead nodes not found, retrying": "err",
		} {
			for field := range strings.FieldsSeq(fields) {
				if _, ok := seen[message][field]; !ok {
					t.Errorf("no line %q with %q, it has %v", message, field, seen[message])
				}
			}
		}
	})
}

// If some nodes use the same store but gossip does not reach them, each node logs one line, and another line when
// gossip reaches them again. A node that vanishes causes no line.
func TestCutOffIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a", "b", "c", "d")
		for _, room := range names(50) {
			f.host("a", room, 2)
		}
		f.rooms["d"].Kill()
		delete(f.rooms, "d")
		f.Vanish("d") // its heartbeat in the store outlives its lease
		for range int(2 * soon / time.Second) {
			time.Sleep(time.Second)
			f.resolveAll(50)
		}
		f.Split([]string{"a"}, []string{"b", "c"})
		for range 60 {
			time.Sleep(time.Second)
			for _, room := range names(50) {
				f.resolve("a", room, 2)
			}
		}
		store.fails.Store(true) // an outage, after which all heartbeats are gone, ends no split
		time.Sleep(time.Minute)
		store.fails.Store(false)
		time.Sleep(time.Minute)
		f.Heal()
		time.Sleep(2 * time.Minute)
		for _, r := range f.rooms {
			_ = r.Close()
		}
		for _, node := range []string{"a", "b", "c"} {
			for _, line := range []string{
				`level=WARN msg="nodes of this store not reached by gossip" node=`,
				`level=INFO msg="all nodes of this store reached again" node=`,
			} {
				if n := strings.Count(log.String(), line+node); n != 1 {
					t.Errorf("%d lines with %s, want one:\n%s", n, line+node, log.String())
				}
			}
		}
		if strings.Contains(log.String(), "first=[d]") {
			t.Errorf("a node that vanished is named:\n%s", log.String())
		}
	})
}

// An outage of the store causes one log line, even if several sweeps fail before a heartbeat does.
func TestOutageIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &faulty{Store: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a")
		for i := range 10 {
			time.Sleep(time.Minute + time.Duration(i)*130*time.Millisecond) // at any time between two heartbeats
			store.fails.Store(true)
			for p := range placement.Partition(4) {
				f.rooms["a"].SweepSoon(p)
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			store.fails.Store(false)
		}
		_ = f.rooms["a"].Close()
		if lines := strings.Count(log.String(), `msg="store does not answer`); lines != 10 || strings.Contains(log.String(), "dead nodes") {
			t.Errorf("%d lines for 10 outages:\n%s", lines, log.String())
		}
	})
}

// blockedHandler is a log handler that waits for its channel.
type blockedHandler struct{ released chan struct{} }

func (b blockedHandler) Enabled(context.Context, slog.Level) bool { return true }
func (b blockedHandler) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b blockedHandler) WithGroup(string) slog.Handler            { return b }
func (b blockedHandler) Handle(context.Context, slog.Record) error {
	<-b.released
	return nil
}

// If a log handler blocks, hosted rooms still stay on their nodes, rooms of dead nodes still move, and joins still get
// answers.
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
