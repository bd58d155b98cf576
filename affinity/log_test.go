package affinity_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/affinity"
)

// logged records the log: message → names of its fields, of all its lines.
type logged struct {
	mu   sync.Mutex
	seen map[string]map[string]bool
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fields := l.seen[r.Message]
	if fields == nil {
		fields = make(map[string]bool)
		l.seen[r.Message] = fields
	}
	r.Attrs(func(a slog.Attr) bool {
		fields[a.Key] = true
		return true
	})
	return nil
}

func TestLogEvents(t *testing.T) { // S0.13
	synctest.Test(t, func(t *testing.T) {
		log := &logged{seen: make(map[string]map[string]bool)}
		store := &faulty{Store: affinity.NewMemory()}
		f := newFleet(t, store, affinity.Config{Log: slog.New(log)}, "a", "b", "c")
		for _, room := range names(50) {
			f.host("a", room, 2)
		}
		f.start("d")
		f.crash("c")
		time.Sleep(soon)

		store.blind.Store(true) // so that joins come before rooms are moved
		f.crash("b")
		time.Sleep(soon)
		f.resolveAll(50)

		log.mu.Lock()
		defer log.mu.Unlock()
		for message, fields := range map[string]string{
			"distribution of partitions":              "nodes mean max_mean cv",
			"node added; pinned rooms stay":           "peer remapped_partitions share hosted_here",
			"node is down or has left":                "peer hosted_here",
			"pin names a dead node, resolving again":  "room from",
			"room moved":                              "room from to epoch reason pin_ttl",
			"rooms re-homed":                          "rooms took_ms pin_ttl",
			"rooms of dead nodes not found, retrying": "err",
		} {
			for field := range strings.FieldsSeq(fields) {
				if !log.seen[message][field] {
					t.Errorf("no line %q with %q, it has %v", message, field, log.seen[message])
				}
			}
		}
	})
}
