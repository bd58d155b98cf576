package presence_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/placement"
)

var (
	errCut = fmt.Errorf("%w: it is down", presence.ErrStore)
	quiet  = presence.Config{Log: slog.New(slog.DiscardHandler)}
)

const stale = 65 * time.Second // Interval of 60 s and Grace of 5 s

// wire is a node's connection to the store. Tests can cut the connection and delay calls.
type wire struct {
	presence.Store
	poison string // a room for which the store fails

	mu         sync.Mutex
	down       bool
	heartbeats [][]presence.Participant
	leaves     [][]presence.Participant

	heartbeatGate, leaveGate chan struct{} // if a gate is set, a call waits until it receives from the gate
}

func (w *wire) cut(down bool) { w.set(func() { w.down = down }) }

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// pass records a call. It returns the store, or an error if the connection is cut.
func (w *wire) pass(
	ctx context.Context,
	gate *chan struct{},
	log *[][]presence.Participant,
	participants []presence.Participant,
) (presence.Store, error) {
	w.mu.Lock()
	*log = append(*log, slices.Clone(participants))
	down, store, open := w.down, w.Store, *gate
	w.mu.Unlock()
	if down {
		return nil, errCut
	}
	if open == nil {
		return store, nil
	}
	select {
	case <-open:
		return store, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", presence.ErrStore, ctx.Err())
	}
}

func (w *wire) Heartbeat(ctx context.Context, stale time.Duration, participants ...presence.Participant) error {
	store, err := w.pass(ctx, &w.heartbeatGate, &w.heartbeats, participants)
	if err != nil {
		return err
	}
	well := slices.DeleteFunc(slices.Clone(participants), func(s presence.Participant) bool { return s.Room.Name == w.poison })
	if err := store.Heartbeat(ctx, stale, well...); err != nil {
		return err
	}
	if len(well) < len(participants) {
		return fmt.Errorf("%w: wrong type", presence.ErrStore)
	}
	return nil
}

func (w *wire) Leave(ctx context.Context, participants ...presence.Participant) error {
	store, err := w.pass(ctx, &w.leaveGate, &w.leaves, participants)
	if err != nil {
		return err
	}
	return store.Leave(ctx, participants...)
}

// take returns the heartbeats since the previous call of take.
func (w *wire) take() [][]presence.Participant {
	w.mu.Lock()
	defer w.mu.Unlock()
	heartbeats := w.heartbeats
	w.heartbeats = nil
	return heartbeats
}

func start(tb testing.TB, store presence.Store, cfg presence.Config) *presence.Tracker {
	tb.Helper()
	p, err := presence.Start(store, placement.DefaultPartitions, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

func join(tb testing.TB, p *presence.Tracker, room string, names ...string) {
	tb.Helper()
	for _, name := range names {
		if err := p.Join(tb.Context(), room, name); err != nil {
			tb.Fatal(err)
		}
	}
}

func wantMembers(tb testing.TB, p *presence.Tracker, room string, names ...string) {
	tb.Helper()
	members, err := p.Members(tb.Context(), room)
	if err != nil {
		tb.Fatal(err)
	}
	var got []string
	for _, m := range members {
		got = append(got, m.Name)
	}
	if !slices.Equal(got, names) {
		tb.Errorf("members of %s are %q, want %q", room, got, names)
	}
	if n, err := p.Count(tb.Context(), room); err != nil || n != len(names) {
		tb.Errorf("count of %s is %d, %v; want %d", room, n, err, len(names))
	}
}

// After a crash, the node's participants remain present for exactly Interval plus Grace. A participant that joins again
// on another node is counted once.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := presence.NewMemory()
		w := &wire{Store: m}
		a, b := start(t, w, quiet), start(t, m, quiet)
		join(t, a, "r", "ada/1", "cy/1")
		join(t, b, "r", "bob/1")
		w.cut(true)
		time.Sleep(30 * time.Second)
		join(t, b, "r", "cy/1")
		wantMembers(t, b, "r", "ada/1", "bob/1", "cy/1")
		time.Sleep(35*time.Second - time.Nanosecond)
		wantMembers(t, b, "r", "ada/1", "bob/1", "cy/1")
		time.Sleep(time.Nanosecond)
		wantMembers(t, b, "r", "bob/1", "cy/1")
		time.Sleep(time.Hour)
		wantMembers(t, b, "r", "bob/1", "cy/1")
	})
}

func TestUser(t *testing.T) {
	for name, want := range map[string]string{"ada/phone": "ada", "org/cy/1": "org/cy", "bob": "bob", "/1": "/1"} {
		if got := (presence.Member{Name: name}).User(); got != want {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
}

func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, presence.NewMemory(), quiet)
		join(t, p, "big", "ada/phone", "ada/laptop", "cy/1")
		join(t, p, "small", "ada/1")
		if counts, err := p.Counts(t.Context(), []string{"small", "empty", "big"}); err != nil || !slices.Equal(counts, []int{1, 0, 3}) {
			t.Errorf("counts are %v, %v", counts, err)
		}
		if counts, err := p.Counts(t.Context(), nil); err != nil || len(counts) > 0 {
			t.Errorf("counts of no rooms are %v, %v", counts, err)
		}
	})
}

// The tracker renews each participant once per interval and each room in a single batch. The batches are about equally
// large.
func TestHeartbeatsAreBatchedAndSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		const rooms, each = 1000, 10
		for r := range rooms {
			for i := range each {
				join(t, p, fmt.Sprint("room-", r), fmt.Sprint(i))
			}
		}
		w.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		batches := w.take()
		seen := map[presence.Participant]int{}
		in := map[string]int{} // room → batch
		for i, batch := range batches {
			if most := 3 * rooms * each / len(batches); len(batch) > most {
				t.Errorf("%d of %d participants are in one batch, more than %d", len(batch), rooms*each, most)
			}
			for _, p := range batch {
				seen[p]++
				if j, ok := in[p.Room.Name]; ok && j != i {
					t.Fatalf("%v is in batches %d and %d", p.Room, i, j)
				}
				in[p.Room.Name] = i
			}
		}
		if len(batches) < 16 || len(batches) > 24 {
			t.Errorf("%d batches an interval", len(batches))
		}
		for p, n := range seen {
			if n != 1 {
				t.Fatalf("%v was renewed %d times in an interval", p, n)
			}
		}
		if len(seen) != rooms*each {
			t.Errorf("%d of %d were renewed", len(seen), rooms*each)
		}
	})
}

// When participants leave, their heartbeats stop immediately.
func TestHeartbeatsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		join(t, p, "r", "ada", "bob")
		time.Sleep(91 * time.Second) // between two slots
		if err := errors.Join(p.Leave(t.Context(), "r", "ada"), p.Leave(t.Context(), "r", "bob")); err != nil {
			t.Fatal(err)
		}
		w.take()
		time.Sleep(time.Hour)
		if n := len(w.take()); n > 0 {
			t.Errorf("%d batches for an empty room", n)
		}
		if s := p.Stats(); s.Here != 0 || s.Owed != 0 || (s.Heartbeats != 2+2 && s.Heartbeats != 2+4) {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestHostileNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: presence.NewMemory()}
		p := start(t, w, quiet)
		for _, bad := range []string{"", strings.Repeat("x", 10<<10), "a\nb", "a\x00", "}{", "{17}", "*", "\xff"} {
			_, members := p.Members(t.Context(), bad)
			_, count := p.Count(t.Context(), bad)
			_, counts := p.Counts(t.Context(), []string{"r", bad})
			for what, err := range map[string]error{
				"Join room": p.Join(t.Context(), bad, "ada"), "Join as": p.Join(t.Context(), "r", bad),
				"Leave room": p.Leave(t.Context(), bad, "ada"), "Leave as": p.Leave(t.Context(), "r", bad),
				"Members": members, "Count": count, "Counts": counts,
			} {
				switch {
				case !errors.Is(err, presence.ErrName):
					t.Errorf("%s %.20q: %v, want an ErrName", what, bad, err)
				case len(err.Error()) > 1000:
					t.Errorf("%s %.20q: an error of %d bytes", what, bad, len(err.Error()))
				}
			}
		}
		time.Sleep(time.Hour)
		if len(w.heartbeats)+len(w.leaves) > 0 {
			t.Errorf("written: %v, %v", w.heartbeats, w.leaves)
		}
	})
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  presence.Config
		want []string // parts of the error; none if the configuration is valid
	}{
		{presence.Config{}, nil},
		{presence.SFU(), nil},
		{presence.Config{Interval: 10 * time.Millisecond, Grace: 10 * time.Millisecond}, nil},
		{presence.Config{Interval: 24 * time.Hour, Grace: 10 * time.Millisecond}, nil},
		{presence.Config{Interval: -1, Grace: time.Millisecond}, []string{"Interval is -1ns", "Grace is 1ms"}},
		{presence.Config{Interval: 25 * time.Hour}, []string{"Interval is 25h"}},
		{presence.Config{Grace: time.Second + 1}, []string{"whole milliseconds"}},
	} {
		p, err := presence.Start(presence.NewMemory(), 1, c.cfg)
		if err == nil {
			_ = p.Close()
		}
		if (err != nil) != (len(c.want) > 0) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
		for _, part := range c.want {
			if err != nil && !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: %q does not say %q", c.cfg, err, part)
			}
		}
	}
	for _, partitions := range []int{-1, 0, placement.MaxPartitions + 1} {
		if _, err := presence.Start(presence.NewMemory(), partitions, quiet); err == nil {
			t.Errorf("%d partitions are taken", partitions)
		}
	}
	if c := (presence.Config{}).WithDefaults(); c.Interval+c.Grace != stale {
		t.Errorf("defaults are %+v", c)
	}
}
