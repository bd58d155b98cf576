package affinity_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
)

// twice is a Cost that no other node uses.
func twice(d affinity.Demand) int64 { return 2 * d.Streams() }

// incomparable is a store that refuses to compare settings.
type incomparable struct{ pinstore.Store }

func (incomparable) Agree(context.Context, lease.Incarnation, time.Duration, pinstore.Settings) (pinstore.Agreed, error) {
	return pinstore.Agreed{}, errDown
}

// loner starts a node with the given number of partitions in a separate gossip cluster, and returns its agent.
func loner(t *testing.T, id string, partitions int) *cluster.Agent {
	t.Helper()
	c := clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) { c.Capacity, c.Partitions = capacity, partitions }})
	c.Start(id)
	time.Sleep(5 * time.Second)
	return c.Agent(id)
}

// refused fails the test unless err is an ErrSettings that contains these texts.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, affinity.ErrSettings) {
		t.Fatalf("%v; want an ErrSettings", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%v; it does not say %q", err, text)
		}
	}
}

// A node whose settings differ from the settings of the running nodes is refused at its start, with the name of the
// setting. The running nodes must not be affected.
func TestSettingsRefused(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		h, at := f.host("a", "room", 2), f.resolve("b", "room", 2)
		quiet := slog.New(slog.DiscardHandler)
		other := loner(t, "x", 128)
		for range 10 { // like the retries of a supervisor; the error names a or b
			_, err := affinity.Start(other, f.store, affinity.Config{Log: quiet})
			refused(t, err, `partitions is 128 here and 64 on `, `cluster "roost"`, "for up to 6s")
			time.Sleep(time.Second)
		}
		own := loner(t, "y", 64)
		for _, c := range []struct {
			cfg  affinity.Config
			text string
		}{
			{affinity.Config{Cost: twice}, `cost of 2 participants is 4 here and 2 on `},
			{affinity.Config{MinCost: 3}, `cost of 0 participants is 3 here and 1 on `},
			{affinity.Config{Cost: func(d affinity.Demand) int64 {
				if d.Publishers > 0 && d.Subscribers == 100 {
					return 7
				}
				return d.Streams()
			}}, `cost of 1 publishers and 100 subscribers is 7 here and 100 on `},
		} {
			c.cfg.Log = quiet
			_, err := affinity.Start(own, f.store, c.cfg)
			refused(t, err, c.text)
		}
		if a := f.resolve("b", "room", 2); a.Incarnation != at.Incarnation || lost(h) {
			t.Errorf("the room is at %v, lost %v", a, lost(h))
		}
		for id, r := range f.rooms {
			if s := r.Stats(); s.Refused != "" || s.StoreErrors != 0 {
				t.Errorf("%s: %+v", id, s)
			}
		}
		f.resolve("a", "new", 2)
		again, err := affinity.Start(own, f.store, affinity.Config{Log: quiet, Cost: func(d affinity.Demand) int64 { return d.Streams() }})
		if err != nil {
			t.Fatalf("another function with the same results is refused: %v", err)
		}
		_ = again.Close()
	})
}

// Nodes that restart one after another with the same settings are accepted. Other settings are accepted after all nodes
// have ended, immediately after Close and within a lease after crashes.
func TestSettingsOfNextFleet(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		for range 3 {
			for _, id := range []string{"a", "b"} {
				_ = f.rooms[id].Close()
				f.Leave(id)
				f.start(id)
			}
		}
		other := loner(t, "x", 128)
		begin := func() (*affinity.Resolver, error) {
			return affinity.Start(other, f.store, affinity.Config{Log: f.cfg.Log})
		}
		_, err := begin()
		refused(t, err)
		_ = f.rooms["a"].Close()
		time.Sleep(soon)
		_, err = begin()
		refused(t, err, "on b;")
		_ = f.rooms["b"].Close()
		r, err := begin()
		if err != nil {
			t.Fatalf("after the last node has ended: %v", err)
		}
		r.Kill()
		_, err = affinity.Start(f.Agent("a"), f.store, f.cfg)
		refused(t, err)
		time.Sleep(ttl + 1)
		f.resolver("a")
	})
}

// A node that starts while the store is away learns only later that it is refused. From then on, it takes no new rooms,
// but the room that it hosts stays. When the other nodes have ended, the node is accepted.
func TestSettingsRefusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pinstore.NewMemory()
		f := newFleet(t, data, affinity.Config{}, "a")
		f.host("a", "first", 2)
		store := &faulty{Store: data}
		store.fails.Store(true)
		var log bytes.Buffer
		x, err := affinity.Start(loner(t, "x", 128), store, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatalf("the store is away: %v", err)
		}
		h, err := x.Host(t.Context(), "early", affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		store.fails.Store(false)
		time.Sleep(soon)
		_, err = x.Resolve(t.Context(), "new", affinity.Demand{Size: 2})
		refused(t, err, `partitions is 128 here and 64 on a;`)
		_, err = x.Host(t.Context(), "new", affinity.Demand{Size: 2})
		refused(t, err)
		_, err = x.Move(t.Context(), "first", "x")
		refused(t, err)
		if why := x.Stats().Refused; why != err.Error() {
			t.Errorf("the counters say %q", why)
		}
		if _, err := x.Host(t.Context(), "early", affinity.Demand{Size: 3}); err != nil || lost(h) {
			t.Errorf("the room that ran: %v, lost %v", err, lost(h))
		}
		if s := f.rooms["a"].Stats(); s.Refused != "" {
			t.Errorf("the first node: %+v", s)
		}
		time.Sleep(time.Minute)
		if lost(h) {
			t.Error("the room that ran is lost")
		}
		_ = f.rooms["a"].Close()
		time.Sleep(soon)
		if _, err := x.Resolve(t.Context(), "new", affinity.Demand{Size: 2}); err != nil {
			t.Errorf("after the others have ended: %v", err)
		}
		_ = x.Close()
		if n := strings.Count(log.String(), "placing no rooms"); n != 1 {
			t.Errorf("the problem is in the log %d times:\n%s", n, &log)
		}
		if n := strings.Count(log.String(), "settings agree between nodes again"); n != 1 {
			t.Errorf("the end of the problem is in the log %d times:\n%s", n, &log)
		}
	})
}

// A refused node does not fail over the rooms of dead nodes, even if no other node does, because it could not host
// them. Once the node is accepted, it fails them over.
func TestSettingsRefusedSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pinstore.NewMemory()
		slow, store := &faulty{Store: data}, &faulty{Store: data}
		f := newFleet(t, slow, affinity.Config{}, "a", "b")
		f.resolveAll(20)
		store.fails.Store(true)
		x, err := affinity.Start(loner(t, "x", 128), store, affinity.Config{Log: f.cfg.Log})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(soon)
		store.fails.Store(false)
		time.Sleep(soon)
		slow.blind.Store(true)
		f.crash("a")
		time.Sleep(time.Minute)
		if s := x.Stats(); s.Refused == "" || s.FailedOver > 0 {
			t.Errorf("refused %q, and %d rooms failed over", s.Refused, s.FailedOver)
		}
		if is := pins(t, data); hasNode(is, "x") || !hasNode(is, "a") {
			t.Errorf("pins: %v", is)
		}
		f.crash("b")
		time.Sleep(2 * soon)
		if s := x.Stats(); s.Refused != "" || s.FailedOver != 20 {
			t.Errorf("after the others have ended: refused %q, and %d rooms failed over, want 20", s.Refused, s.FailedOver)
		}
		_ = x.Close()
	})
}

// The store loses its data, and a refused node reaches it before the nodes that ran first. These nodes must still be
// accepted, and the refused node must be refused again.
func TestSettingsAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := newReplaced()
		gate := &faulty{Store: data}
		f := newFleet(t, gate, affinity.Config{}, "a", "b")
		down := &faulty{Store: data}
		down.fails.Store(true)
		x, err := affinity.Start(loner(t, "x", 128), down, affinity.Config{Log: f.cfg.Log})
		if err != nil {
			t.Fatal(err)
		}
		down.fails.Store(false)
		time.Sleep(soon)
		if x.Stats().Refused == "" {
			t.Fatal("not refused")
		}
		gate.fails.Store(true) // x reaches the store first
		data.empty()
		time.Sleep(soon)
		if x.Stats().Refused != "" {
			t.Errorf("no other node states settings, and %s", x.Stats().Refused)
		}
		gate.fails.Store(false)
		time.Sleep(soon)
		for _, id := range []string{"a", "b"} {
			if s := f.rooms[id].Stats(); s.Refused != "" {
				t.Errorf("%s: %s", id, s.Refused)
			}
		}
		if x.Stats().Refused == "" {
			t.Error("the node that came later is no longer refused")
		}
		_ = x.Close()
	})
}

// While a node is paused, another node with different settings starts. After the pause, the new node must not be
// refused.
func TestSettingsAfterPause(t *testing.T) {
	inFleet(t, "a", func(t *testing.T, f *fleet) {
		f.Pause("a")
		time.Sleep(5 * ttl)
		x, err := affinity.Start(loner(t, "x", 128), f.store, affinity.Config{Log: f.cfg.Log})
		if err != nil {
			t.Fatal(err)
		}
		f.Resume("a")
		time.Sleep(soon)
		if x.Stats().Refused != "" {
			t.Error(x.Stats().Refused)
		}
		_ = x.Close()
	})
}

// With AnyCost, a rolling restart can change Cost without any refusal. After a restart without AnyCost, the new Cost is
// compared.
func TestCostChanges(t *testing.T) {
	inFleet(t, "a b", func(t *testing.T, f *fleet) {
		was := f.cfg
		restart := func(id string, cfg affinity.Config) {
			t.Helper()
			_ = f.rooms[id].Close()
			f.cfg = cfg
			f.resolver(id)
			time.Sleep(soon)
			for id, r := range f.rooms {
				if why := r.Stats().Refused; why != "" {
					t.Fatalf("%s: %s", id, why)
				}
			}
		}
		next := was
		next.Cost, next.AnyCost = twice, true
		restart("a", next)
		restart("b", next)
		next.AnyCost = false
		restart("a", next)
		restart("b", next)
		_ = f.rooms["b"].Close()
		_, err := affinity.Start(f.Agent("b"), f.store, was)
		refused(t, err, "cost of ")
	})
}

// If a store cannot compare settings, for example because of its access list, the log says so once after a TTL, and
// rooms continue to work. If the store is only late twice, nothing is logged.
func TestSettingsNotCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := newFleet(t, incomparable{pinstore.NewMemory()}, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a")
		f.host("a", "room", 2)
		time.Sleep(time.Minute)
		_ = f.rooms["a"].Close()
		if n := strings.Count(log.String(), "settings not compared with those of other nodes"); n != 1 {
			t.Errorf("%d times in the log:\n%s", n, &log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &lateStore{Memory: pinstore.NewMemory()}
		f := newFleet(t, store, affinity.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, "a")
		for range 2 {
			store.late.Store(true)
			time.Sleep(3 * time.Second)
			store.late.Store(false)
			time.Sleep(3 * time.Second)
		}
		_ = f.rooms["a"].Close()
		if strings.Contains(log.String(), "settings not compared") {
			t.Errorf("%s", &log)
		}
	})
}

// lateStore is a store that cannot compare settings while late is set.
type lateStore struct {
	*pinstore.Memory
	late atomic.Bool
}

func (s *lateStore) Agree(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	stated pinstore.Settings,
) (pinstore.Agreed, error) {
	if s.late.Load() {
		return pinstore.Agreed{}, fmt.Errorf("%w: %w", pinstore.ErrStore, context.DeadlineExceeded)
	}
	return s.Memory.Agree(ctx, self, ttl, stated)
}
