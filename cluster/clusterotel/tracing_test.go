package clusterotel_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/affinitytest"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/clusterotel"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func (h *roomCluster) wantTree(t *testing.T, want string) {
	t.Helper()
	synctest.Wait() // the span of a server ends after its answer has arrived
	if diff := cmp.Diff(strings.TrimLeft(want, "\n"), h.tree()); diff != "" {
		t.Errorf("traced (-want +got):\n%s", diff)
	}
}

// A join is one trace, from the client to the store.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		client := h.client(t, "a")
		here, there := h.roomOn(t, "a"), h.roomOn(t, "b")

		if got, err := client.ResolveRoom(t.Context(), here, affinity.Demand{Size: 4}); err != nil || !got.Hosted {
			t.Fatalf("got %+v, %v", got, err)
		}
		synctest.Wait()
		spans := h.spans.GetSpans()
		h.wantTree(t, `
POST /v1/rooms/{room}/resolve
  POST /v1/rooms/{room}/resolve
    roost.resolve
      roost.store.swap
    roost.host
`)
		server := attributes(t, spans, oteltrace.SpanKindServer, "POST /v1/rooms/{room}/resolve")
		for name, want := range map[string]string{
			"http.request.method": "POST", "http.route": "/v1/rooms/{room}/resolve",
			"url.path": "/v1/rooms/{room}/resolve", "http.response.status_code": "200",
		} {
			if server[name] != want {
				t.Errorf("server: %s is %q, want %q", name, server[name], want)
			}
		}
		sent := attributes(t, spans, oteltrace.SpanKindClient, "POST /v1/rooms/{room}/resolve")
		if got := sent["url.full"]; got != "http://agent.test:8401/v1/rooms/{room}/resolve" {
			t.Errorf("client: url.full is %q", got)
		}
		partition := strconv.Itoa(int(placement.Of(here, 64)))
		resolve := attributes(t, spans, oteltrace.SpanKindInternal, "roost.resolve")
		if resolve["roost.epoch"] == "" || resolve["roost.epoch"] == "0" {
			t.Errorf("the epoch is %q", resolve["roost.epoch"])
		}
		delete(resolve, "roost.epoch")
		if diff := cmp.Diff(map[string]string{
			"roost.partition": partition, "roost.source": "hash", "roost.node": "a",
			"roost.reason": "owns the room's partition",
		}, resolve); diff != "" {
			t.Errorf("resolve (-want +got):\n%s", diff)
		}
		if got := attributes(t, spans, oteltrace.SpanKindInternal, "roost.host")["roost.hosted"]; got != "true" {
			t.Errorf("hosted is %q", got)
		}
		if _, err := client.ResolveRoom(t.Context(), here, affinity.Demand{Size: 4}); err != nil { // cached by now
			t.Fatal(err)
		}
		if got := attributes(t, h.spans.GetSpans(), oteltrace.SpanKindInternal, "roost.resolve")["roost.source"]; got != "cached" {
			t.Errorf("the source is %q", got)
		}
		h.wantTree(t, `
POST /v1/rooms/{room}/resolve
  POST /v1/rooms/{room}/resolve
    roost.resolve
    roost.host
`)
		if _, err := client.ResolveRoom(t.Context(), there, affinity.Demand{Size: 4}); err != nil {
			t.Fatal(err)
		}
		swap := attributes(t, h.spans.GetSpans(), oteltrace.SpanKindInternal, "roost.store.swap")
		if diff := cmp.Diff(map[string]string{"roost.ops": "1"}, swap); diff != "" {
			t.Errorf("swap (-want +got):\n%s", diff)
		}
		h.wantTree(t, `
POST /v1/rooms/{room}/resolve
  POST /v1/rooms/{room}/resolve
    roost.resolve
      roost.store.swap
`)
	})
}

// A trace shows how a failing store affects a join, and that later calls skip the store.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		resolve := func(room string) {
			t.Helper()
			ctx, span := h.provider.Tracer("test").Start(t.Context(), "join")
			defer span.End()
			if a, err := h.rooms["a"].Resolve(ctx, room, affinity.Demand{}); err != nil || a.Source != affinity.Degraded {
				t.Errorf("got %v, %v", a, err)
			}
		}
		h.store.refuses.Store(true)
		resolve("r")
		if got := attributes(t, h.spans.GetSpans(), oteltrace.SpanKindInternal, "roost.resolve")["roost.source"]; got != "degraded" {
			t.Errorf("the source is %q", got)
		}
		h.wantTree(t, `
join
  roost.resolve
    roost.store.swap error="affinity: the store does not answer: connection refused"
`)
		h.store.refuses.Store(false)
		h.store.hangs.Store(true)
		for range 3 {
			resolve("r")
			h.wantTree(t, `
join
  roost.resolve
    roost.store.swap error="affinity: the store does not answer: context deadline exceeded"
`)
		}
		resolve("r")
		h.wantTree(t, `
join
  roost.resolve event="store not asked"
`)
	})
}

// If a room is pinned to a dead node, a join calls the store three times. Each call has a span.
func TestVoidPin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		h.store.Swap(t.Context(), pinstore.Op{
			Partition: placement.Of("r", 64), Room: "r", TTL: time.Minute,
			Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: "long-gone", Number: 1}},
		})
		ctx, span := h.provider.Tracer("test").Start(t.Context(), "join")
		if a, err := h.rooms["a"].Resolve(ctx, "r", affinity.Demand{}); err != nil || a.Source != affinity.Hash {
			t.Errorf("got %v, %v", a, err)
		}
		span.End()
		h.wantTree(t, `
join
  roost.resolve
    roost.store.swap
    roost.store.heartbeat
    roost.store.swap
`)
	})
}

// Calls other than resolve and host have no span of their own, but their calls to the store have one.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		here, err := presence.Start(h.tracing.PresenceStore(presence.NewMemory()), 64, presence.Config{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		ctx, span := h.provider.Tracer("test").Start(t.Context(), "call")
		for what, call := range map[string]func() error{
			"rooms":   func() error { _, err := h.rooms["a"].Rooms(ctx, "", 10); return err },
			"join":    func() error { return here.Join(ctx, "r", "jane") },
			"members": func() error { _, err := here.Members(ctx, "r"); return err },
			"count":   func() error { _, err := here.Count(ctx, "r"); return err },
			"leave":   func() error { return here.Leave(ctx, "r", "jane") },
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		span.End()
		names := strings.Fields(h.tree())
		slices.Sort(names)
		want := []string{
			"call", "roost.presence.count", "roost.presence.heartbeat", "roost.presence.leave", "roost.presence.members", "roost.store.index",
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("traced (-want +got):\n%s", diff)
		}
	})
}

// If a room is on another node, the span has no error. If a call fails, it has the error.
func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		room := h.roomOn(t, "b")
		ctx, span := h.provider.Tracer("test").Start(t.Context(), "join")
		if _, err := h.rooms["a"].Host(ctx, room, affinity.Demand{}); !errors.Is(err, affinity.ErrNotOwner) {
			t.Error(err)
		}
		span.End()
		got := attributes(t, h.spans.GetSpans(), oteltrace.SpanKindInternal, "roost.host")
		if got["roost.hosted"] != "false" || got["roost.node"] != "b" {
			t.Errorf("got %v", got)
		}
		h.wantTree(t, `
join
  roost.host
    roost.store.swap
`)
		ctx, span = h.provider.Tracer("test").Start(t.Context(), "join")
		if _, err := h.rooms["a"].Host(ctx, "{}", affinity.Demand{}); !errors.Is(err, affinity.ErrName) {
			t.Error(err)
		}
		span.End()
		h.wantTree(t, `
join
  roost.host error="affinity: invalid name"
`)
	})
}

// Concurrent callers for one room share a call to the store. The call belongs to one caller's trace, even if that
// caller stops waiting.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		h.store.hangs.Store(true)
		var joins sync.WaitGroup
		join := func(name string, timeout time.Duration) {
			joins.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				ctx, span := h.provider.Tracer("test").Start(ctx, name)
				defer span.End()
				_, _ = h.rooms["a"].Resolve(ctx, "r", affinity.Demand{})
			})
			time.Sleep(time.Millisecond)
		}
		join("first", 10*time.Millisecond)
		join("second", time.Minute)
		joins.Wait()
		h.wantTree(t, `
first
  roost.resolve error="context deadline exceeded"
    roost.store.swap error="affinity: the store does not answer: context deadline exceeded"
second
  roost.resolve
`)
	})
}

// A traced store behaves like the store.
func TestStores(t *testing.T) {
	tracing := clusterotel.New(clusterotel.Options{})
	affinitytest.Store(t, func(*testing.T) func() pinstore.Store {
		memory := pinstore.NewMemory()
		return func() pinstore.Store { return tracing.Store(memory) }
	})
	affinitytest.Presence(t, func(*testing.T) (a, b presence.Store) {
		memory := tracing.PresenceStore(presence.NewMemory())
		return memory, memory
	})

	memory, told := pinstore.NewMemory(), ""
	tracing.Store(memory).Notify(func(room string) { told = room })
	memory.Swap(t.Context(), pinstore.Op{
		Room: "r", Set: pinstore.Pin{Incarnation: lease.Incarnation{Node: "a", Number: 1}}, TTL: time.Minute,
	})
	if told != "r" {
		t.Errorf("Notify reported %q", told)
	}
}

// Without a recorded span, tracing allocates nothing.
func TestFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRoomCluster(t, clusterotel.Options{})
		unsampled := oteltrace.ContextWithSpanContext(t.Context(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{1},
		}))
		for range 3 { // claimed, read, cached
			if _, err := h.rooms["a"].Resolve(t.Context(), "r", affinity.Demand{}); err != nil {
				t.Fatal(err)
			}
		}
		for name, ctx := range map[string]context.Context{"no span": t.Context(), "unsampled": unsampled} {
			if n := testing.AllocsPerRun(100, func() {
				if a, err := h.rooms["a"].Resolve(ctx, "r", affinity.Demand{}); err != nil || a.Source != affinity.Cached {
					t.Error(a, err)
				}
			}); n != 0 {
				t.Errorf("%s: %v allocations", name, n)
			}
		}
	})
}
