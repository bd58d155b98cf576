package presence_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
)

// slot is the default time until a failed write is repeated.
const slot = 2500 * time.Millisecond

// If the store is down, the tracker repeats failed joins and departures once the store is back.
func TestStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := presence.NewMemory()
		w := &wire{Store: m}
		p, other := start(t, w, quiet), start(t, m, quiet)
		join(t, p, "r", "ada")
		w.cut(true)
		if err := p.Join(t.Context(), "r", "bob"); !errors.Is(err, presence.ErrStore) {
			t.Errorf("Join: %v, want an ErrStore", err)
		}
		if err := p.Leave(t.Context(), "r", "ada"); !errors.Is(err, presence.ErrStore) {
			t.Errorf("Leave: %v, want an ErrStore", err)
		}
		if s := p.Stats(); s.Here != 1 || s.Owed != 2 || s.Failed != 1 {
			t.Errorf("stats are %+v", s)
		}
		wantMembers(t, other, "r", "ada")
		time.Sleep(20 * time.Second)
		w.cut(false)
		time.Sleep(slot)
		synctest.Wait()
		wantMembers(t, other, "r", "bob")
		if s := p.Stats(); s.Here != 1 || s.Owed != 0 {
			t.Errorf("stats are %+v", s)
		}
	})
}

// The tracker forgets departures after the stale time, because the store has no record of these participants by then.
func TestForgetsDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		join(t, p, "r", "ada")
		w.cut(true)
		for i := range 1000 {
			_ = p.Join(t.Context(), "r", fmt.Sprint(i))
			_ = p.Leave(t.Context(), "r", fmt.Sprint(i))
		}
		time.Sleep(stale + 2*slot)
		if s := p.Stats(); s.Owed != 1 || s.Here != 1 {
			t.Errorf("stats are %+v, want ada alone", s)
		}
	})
}

// If the store loses its data, all participants are in the store again after an interval.
func TestStoreEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		join(t, p, "r", "ada", "bob")
		join(t, p, "s", "cy")
		time.Sleep(100 * time.Second)
		synctest.Wait()
		w.set(func() { w.Store = presence.NewMemory() })
		wantMembers(t, p, "r")
		time.Sleep(time.Minute)
		synctest.Wait()
		wantMembers(t, p, "r", "ada", "bob")
		wantMembers(t, p, "s", "cy")
	})
}

// If a heartbeat is lost, the tracker repeats it before the grace ends, so the participant remains present.
func TestLostHeartbeat(t *testing.T) {
	for _, cfg := range []presence.Config{
		quiet, presence.SFU(), {Interval: time.Minute, Grace: time.Second}, {Interval: time.Second, Grace: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := presence.NewMemory()
			w := &wire{Store: m}
			cfg.Log = quiet.Log
			p := start(t, w, cfg)
			join(t, p, "r", "ada")
			w.take()
			for len(w.take()) == 0 {
				time.Sleep(time.Millisecond)
			}
			start := time.Now() // start of the interval
			w.cut(true)
			for time.Since(start) < cfg.WithDefaults().Interval+time.Millisecond {
				time.Sleep(time.Millisecond)
			}
			if len(w.take()) == 0 {
				t.Error("no heartbeat was lost")
			}
			w.cut(false)
			for range 200 {
				time.Sleep(cfg.WithDefaults().Grace / 200)
				wantMembers(t, p, "r", "ada")
			}
		})
	}
}

// If a participant leaves while a heartbeat is in progress, the heartbeat does not restore the participant. If a
// participant comes back while a departure is in progress, the participant remains present.
func TestCrossedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		join(t, p, "r", "ada", "bob")

		w.set(func() { w.heartbeatGate = make(chan struct{}) })
		w.take()
		for len(w.take()) == 0 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if err := p.Leave(t.Context(), "r", "ada"); err != nil {
			t.Fatal(err)
		}
		wantMembers(t, p, "r", "bob")
		close(w.heartbeatGate) // the heartbeat reaches the store after the departure
		time.Sleep(slot)
		synctest.Wait()
		wantMembers(t, p, "r", "bob")

		w.set(func() { w.leaveGate = make(chan struct{}) })
		go func() { _ = p.Leave(t.Context(), "r", "bob") }()
		synctest.Wait()
		join(t, p, "r", "bob")
		close(w.leaveGate) // the departure reaches the store after the new join
		synctest.Wait()
		wantMembers(t, p, "r")
		time.Sleep(slot)
		synctest.Wait()
		wantMembers(t, p, "r", "bob")
	})
}

// If the store rejects the heartbeats of one room, the other rooms are not affected, and there are few extra writes.
func TestPoisonedRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory(), poison: "room-7"}
		p := start(t, w, quiet)
		const rooms = 1000
		for r := range rooms {
			_ = p.Join(t.Context(), fmt.Sprint("room-", r), "ada")
		}
		w.take()
		for range 10 {
			time.Sleep(time.Minute)
			for r := range rooms {
				if r != 7 {
					wantMembers(t, p, fmt.Sprint("room-", r), "ada")
				}
			}
		}
		total := 0
		for _, batch := range w.take() {
			total += len(batch)
		}
		if most := 10 * rooms * 3; total > most {
			t.Errorf("%d heartbeats for %d rooms in 10 minutes, more than %d", total, rooms, most)
		}
	})
}

// A node is paused for half an interval. It then renews all participants immediately, and sends its heartbeats on time
// from then on.
func TestStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := presence.NewMemory()
		s := &stall{Store: m}
		p, other := start(t, s, quiet), start(t, m, quiet)
		const rooms = 100
		for r := range rooms {
			join(t, p, fmt.Sprint(r), "ada")
		}
		time.Sleep(100*time.Second + time.Millisecond)
		s.next.Store(int64(30 * time.Second))
		time.Sleep(30*time.Second + 2*slot)
		for range 120 {
			for r := range rooms {
				wantMembers(t, other, fmt.Sprint(r), "ada")
			}
			time.Sleep(time.Second)
		}
	})
}

type stall struct {
	presence.Store
	next atomic.Int64 // how long the next call is paused
}

func (s *stall) Heartbeat(ctx context.Context, stale time.Duration, participants ...presence.Participant) error {
	time.Sleep(time.Duration(s.next.Swap(0)))
	return s.Store.Heartbeat(context.WithoutCancel(ctx), stale, participants...)
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := presence.NewMemory()
		a, b := start(t, m, quiet), start(t, m, quiet)
		join(t, a, "r", "ada", "cy")
		join(t, b, "r", "bob")
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Fatal(err)
		}
		wantMembers(t, b, "r", "bob")
		wantMembers(t, a, "r", "bob") // reading still works after Close
		if err := a.Join(t.Context(), "r", "ada"); !errors.Is(err, presence.ErrClosed) {
			t.Errorf("Join after Close: %v", err)
		}
		if err := a.Leave(t.Context(), "r", "ada"); !errors.Is(err, presence.ErrClosed) {
			t.Errorf("Leave after Close: %v", err)
		}
		if s := a.Stats(); s.Here+s.Owed != 0 {
			t.Errorf("stats after Close are %+v", s)
		}
	})
}

// While the store hangs, Close returns within the grace. A Join in progress leaves no participant in the store.
func TestCloseWhileStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := presence.NewMemory()
		w := &wire{Store: m}
		p, other := start(t, w, quiet), start(t, m, quiet)
		join(t, p, "r", "ada")
		w.set(func() { w.heartbeatGate, w.leaveGate = make(chan struct{}), make(chan struct{}) })
		joined := make(chan error, 1)
		go func() { joined <- p.Join(context.Background(), "r", "bob") }()
		synctest.Wait()
		before := time.Now()
		if err := p.Close(); !errors.Is(err, presence.ErrStore) {
			t.Errorf("Close: %v, want an ErrStore", err)
		}
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if err := <-joined; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Join: %v", err)
		}

		w = &wire{Store: m, heartbeatGate: make(chan struct{}, 1)}
		p = start(t, w, quiet)
		go func() { joined <- p.Join(context.Background(), "s", "cy") }()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- p.Close() }()
		synctest.Wait()
		w.heartbeatGate <- struct{}{}
		if err := errors.Join(<-joined, <-closed); err != nil {
			t.Error(err)
		}
		wantMembers(t, other, "s")
	})
}

// Two goroutines serve all participants of a node and write the log. Close ends both goroutines. Otherwise, the bubble
// would fail.
func TestGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		p := start(t, presence.NewMemory(), quiet)
		for i := range 5000 {
			join(t, p, fmt.Sprint("room-", i%50), fmt.Sprint(i))
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 10 { // allows for goroutines of the runtime
			t.Errorf("%d goroutines for 5,000 participants", n)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
