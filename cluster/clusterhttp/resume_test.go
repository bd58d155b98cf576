package clusterhttp

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// A client whose stream broke receives each later change once. A client with an unknown id starts from the beginning.
func TestStreamResumes(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		a, open := h.agent, resuming(t, h)
		owned := a.Owned()
		first := open("")
		if b := first.batch(); !b.Full || len(b.Acquired) != len(owned) {
			t.Fatalf("the first batch: %+v", b)
		}
		_ = first.conn.Close()

		same := open(first.id)
		if got := same.next(); len(got) != 1 || got[0] != ": keep-alive" {
			t.Errorf("nothing has changed: %q", got)
		}
		_ = same.conn.Close()

		change(t, a.Drain)
		change(t, a.Undrain) // released and acquired while disconnected
		c.Crash("c")
		c.WaitAgreed(time.Minute)
		back := open(first.id)
		b := back.batch()
		if b.Full || cmp.Diff(owned, partitions(b.Released)) != "" || len(b.Acquired) <= len(owned) || len(b.Left) != 1 || len(b.Joined) > 0 {
			t.Errorf("what changed while the client was away: %+v", b)
		}
		again := open(back.id)
		if got := again.next(); len(got) != 1 {
			t.Errorf("sent twice: %q", got)
		}
		run, _, _ := strings.Cut(back.id, "-")
		for _, id := range []string{"7", run, run + "-", run + "-99999", "x" + back.id, strings.Repeat("9", 4000)} {
			l := open(id)
			if b := l.batch(); !b.Full || len(b.Acquired) <= len(owned) {
				t.Errorf("%.50q: %+v", id, b)
			}
			_ = l.conn.Close()
		}
	})
}

// The journal is bounded, so a client that was away for too long starts from the beginning.
func TestStreamForgets(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		a, open := h.agent, resuming(t, h)
		stays, leaves := open(""), open("")
		stays.batch()
		leaves.batch()
		_ = leaves.conn.Close()
		batches := make(chan struct{}, 100)
		go func() {
			for stays.next() != nil {
				batches <- struct{}{}
			}
		}()
		for told := 0; told < journaled-2; told = len(batches) {
			change(t, a.Drain)
			change(t, a.Undrain)
		}
		known := open(leaves.id)
		if b := known.batch(); b.Full {
			t.Errorf("dropped after %d events: %+v", len(batches), b)
		}
		for range 2 {
			change(t, a.Drain)
			change(t, a.Undrain)
		}
		if b := open(leaves.id).batch(); !b.Full {
			t.Errorf("still there after %d events", len(batches))
		}
	})
}

// An id from another agent, or from before a restart, is unknown, even if the versions are
// equal.
func TestStreamOfAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		var ids []string
		for _, a := range []*cluster.Agent{c.Agent("a"), c.Agent("b")} {
			open := resuming(t, Handler(a, Options{Log: quiet}))
			for _, id := range append([]string{""}, ids...) {
				l := open(id)
				if b := l.batch(); !b.Full {
					t.Errorf("%s resumes from %q", a.Config().ID, id)
				}
				ids = append(ids, l.id)
			}
		}
	})
}

// The journal does not contain moves of rooms, so a client that reconnects receives a resync.
func TestResumedStreamResyncsRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, pinstore.NewMemory(), Options{})
		p := serve(t, NewServer(Handler(h.Agent("a"), Options{Log: quiet, Rooms: h.rooms["a"]})))
		first := p.listen(t)
		first.batch()
		for _, id := range []string{first.id, "of another run"} {
			l := p.listen(t, "Last-Event-ID: "+id)
			want := []string{"event: moved", `data: {"moved":[],"resync":true}`}
			if diff := cmp.Diff(want, l.next()); diff != "" {
				t.Errorf("%q: -want +got\n%s", id, diff)
			}
		}
	})
}

// resuming serves h. It returns a function that opens a stream which resumes after an event.
func resuming(t *testing.T, h http.Handler) (open func(id string) *listener) {
	t.Helper()
	p := serve(t, NewServer(h))
	return func(id string) *listener { return p.listen(t, "Last-Event-ID: "+id) }
}

// change drains or undrains and waits until the cluster agrees.
func change(t *testing.T, f func(context.Context) error) {
	t.Helper()
	if err := f(t.Context()); err != nil {
		t.Fatal(err)
	}
}
