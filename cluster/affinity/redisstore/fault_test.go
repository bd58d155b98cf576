package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	budget     = 150 * time.Millisecond // for a call, even if the server does not answer
	answerTime = 5 * time.Second        // for a call that the server answers, even on a busy machine
)

// try performs one op within the budget.
func try(s *Store, op pinstore.Op) error {
	return within(budget, func(ctx context.Context) error { return s.Swap(ctx, op)[0].Err })
}

// storeCall is a call of a store. If the call fails, its error wraps kind.
type storeCall struct {
	kind error
	do   func(context.Context) error
}

// calls returns all kinds of calls that a store and its presence store support.
func calls(s *Store, room string) map[string]storeCall {
	p, in := s.Presence(), presence.Room{Partition: 17, Name: room}
	ada := presence.Participant{Room: in, Name: "ada"}
	errOf := func(_ any, err error) error { return err }
	return map[string]storeCall{
		"read":  {pinstore.ErrStore, func(ctx context.Context) error { return s.Swap(ctx, read(room))[0].Err }},
		"claim": {pinstore.ErrStore, func(ctx context.Context) error { return s.Swap(ctx, first(room, node("n", 1)))[0].Err }},
		"limited claim": {pinstore.ErrStore, func(ctx context.Context) error {
			op := first(room+" limited", node("n", 1))
			op.Limit, op.Units, op.Window = 1000, 1, time.Minute
			return errors.Join(s.Swap(ctx, op)[0].Err, s.count(ctx, op, "").err)
		}},
		"batch": {pinstore.ErrStore, func(ctx context.Context) error {
			elsewhere := first(room+" too", node("n", 1))
			elsewhere.Partition = 99
			results := s.Swap(ctx, first(room, node("n", 1)), elsewhere)
			return errors.Join(results[0].Err, results[1].Err)
		}},
		"index": {pinstore.ErrStore, func(ctx context.Context) error {
			return errOf(s.Index(ctx, []placement.Partition{17}, func(lease.Incarnation) bool { return true }, 10))
		}},
		"heartbeat": {
			pinstore.ErrStore,
			func(ctx context.Context) error { return errOf(s.Heartbeat(ctx, node("n", 1), time.Hour, nil)) },
		},
		"reserve": {pinstore.ErrStore, func(ctx context.Context) error {
			return s.Reserve(ctx, pinstore.Reservation{Room: room, Needs: "units=5", Until: time.Now().Add(time.Hour)})
		}},
		"reservations":       {pinstore.ErrStore, func(ctx context.Context) error { return errOf(s.Reservations(ctx)) }},
		"presence heartbeat": {presence.ErrStore, func(ctx context.Context) error { return p.Heartbeat(ctx, time.Hour, ada) }},
		"leave":              {presence.ErrStore, func(ctx context.Context) error { return p.Leave(ctx, ada) }},
		"members":            {presence.ErrStore, func(ctx context.Context) error { return errOf(p.Members(ctx, time.Hour, in)) }},
		"count":              {presence.ErrStore, func(ctx context.Context) error { return errOf(p.Count(ctx, time.Hour, in)) }},
	}
}

// attempt makes all calls at the same time, each within the budget, and returns what check
// returns for their errors.
func attempt(s *Store, budget time.Duration, check func(kind, err error) error) error {
	var wg errgroup.Group
	for name, call := range calls(s, "room") {
		wg.Go(func() error {
			if err := check(call.kind, within(budget, call.do)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return wg.Wait()
}

// fails checks that each call fails within the budget, and waits until the errors contain why.
func fails(t *testing.T, s *Store, why string) {
	t.Helper()
	redistest.Eventually(t, why, func() error {
		return attempt(s, budget, func(kind, err error) error {
			if !errors.Is(err, kind) || errors.Is(err, errLate) {
				t.Errorf("error %v; want an ErrStore in time", err)
				return nil
			}
			if !strings.Contains(err.Error(), why) {
				return fmt.Errorf("error %w; want the text %q", err, why)
			}
			return nil
		})
	})
}

func works(t *testing.T, s *Store) {
	t.Helper()
	redistest.Eventually(t, "all calls", func() error {
		return attempt(s, budget, func(_, err error) error { return err })
	})
}

// A node starts while Redis is down. Its calls fail immediately, and succeed once Redis runs.
func TestDownAtOpen(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	s := open(t, redisAt{URL: server.URL()})
	fails(t, s, "connection refused")
	start := time.Now()
	for range 100 {
		_ = try(s, read("room"))
	}
	if took := time.Since(start); took > 10*budget {
		t.Errorf("100 calls took %v; want each to fail at once", took)
	}
	server.Restart()
	works(t, s)
}

// Connecting takes longer than the budget of a call. The store must continue to connect between calls, instead of
// starting over with each call.
func TestSlowToReach(t *testing.T) {
	long(t)
	server := redistest.StartTLS(t)
	link := redistest.Proxy(t, server.Addr())
	s := ready(t, redisAt{URL: link.URL(server), TLS: server.TLSConfig()})
	works(t, s)
	link.Cut()
	fails(t, s, "")
	link.Heal()
	link.Delay(budget / 3) // a round trip fits into the budget, but a TLS handshake with HELLO does not
	redistest.Eventually(t, "call", func() error { return try(s, read("room")) })
}

// If the server hangs, each call ends when its budget is used up.
func TestHangs(t *testing.T) {
	long(t)
	server, s := started(t)
	notified := listen(s)
	works(t, s)
	server.Pause()
	fails(t, s, "deadline exceeded")
	const callers, each = 1200, 2 // more calls than fit into the client's queue
	var wg errgroup.Group
	for range callers {
		wg.Go(func() error {
			for range each {
				if err := try(s, first("room", node("n", 2))); !errors.Is(err, pinstore.ErrStore) || errors.Is(err, errLate) {
					return fmt.Errorf("error %v; want an ErrStore in time", err) //nolint:errorlint // err may be nil
				}
			}
			return nil
		})
	}
	if err := wg.Wait(); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, "notice of a hanging server", func() error { return notified.have("") })
	fails(t, s, "")
	server.Resume()
	works(t, s)
}

// Open and Close return soon, even if the server hangs.
func TestCloseWhileHanging(t *testing.T) {
	long(t)
	t.Parallel() // it mostly waits
	server, s := started(t)
	works(t, s)
	server.Pause()
	defer server.Resume()
	var late *Store
	if err := within(budget, func(ctx context.Context) error {
		late = openIn(ctx, t, redisAt{URL: server.URL()})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fails(t, s, "deadline exceeded")
	for _, s := range []*Store{s, late} {
		fails(t, s, "")
		if err := within(5*time.Second, func(context.Context) error { return s.Close() }); err != nil {
			t.Error(err)
		}
		fails(t, s, "closed")
		if err := s.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	}
}

// Close ends all calls and all attempts to connect, even if they are about to begin.
func TestCloseDuringCalls(t *testing.T) {
	long(t)
	server := redistest.Start(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that Open returns before it has connected
		s := openIn(ctx, t, redisAt{URL: server.URL()})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					if err := try(s, read("room")); err != nil && !errors.Is(err, pinstore.ErrStore) {
						t.Error(err)
					}
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestLoading(t *testing.T) {
	server, s := started(t)
	works(t, s)
	finish := server.RestartLoading()
	fails(t, s, "LOADING")
	late := open(t, redisAt{URL: server.URL()})
	fails(t, late, "LOADING")
	finish()
	works(t, s)
	works(t, late)
}

func TestReadOnly(t *testing.T) {
	server, s := started(t)
	pin := swap(t, s, first("room", node("n", 1))).Pin
	server.ReadOnly(true)
	for _, name := range []string{"claim", "batch", "heartbeat", "heartbeat", "leave"} {
		call := calls(s, "new")[name]
		err := within(answerTime, call.do)
		// When the server rejects a write, the store closes its connections, perhaps while this call uses one.
		for limit := time.Now().Add(answerTime); errors.Is(err, call.kind) &&
			strings.Contains(err.Error(), "closed") && time.Now().Before(limit); {
			err = within(answerTime, call.do)
		}
		if !errors.Is(err, call.kind) || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("%s: error %v; want READONLY", name, err)
		}
	}
	var err error
	for limit := time.Now().Add(answerTime); time.Now().Before(limit); { // until the store has connected again
		if err = within(answerTime, calls(s, "room")["index"].do); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("index: %v", err)
	}
	if r := swap(t, s, first("room", node("m", 1))); r.Pin != pin {
		t.Errorf("%v stands; want %v", r.Pin, pin)
	}
	server.ReadOnly(false)
	works(t, s)
}

func TestFull(t *testing.T) {
	server, s := started(t)
	pin := swap(t, s, first("room", node("n", 1))).Pin
	heartbeat := calls(s, "room")["presence heartbeat"].do
	if err := within(answerTime, heartbeat); err != nil {
		t.Fatal(err)
	}
	server.Full(true)
	if err := within(answerTime, heartbeat); err != nil { // if heartbeats failed, all rooms would look empty
		t.Errorf("heartbeat of a participant: %v", err)
	}
	if err := try(s, first("new", node("n", 1))); !errors.Is(err, pinstore.ErrStore) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("claim: error %v; want OOM", err)
	}
	moved := s.Swap(t.Context(), pinstore.Op{
		Partition: 17,
		Room:      "room",
		If:        pin,
		Set:       pinstore.Pin{Incarnation: node("m", 1)},
		TTL:       time.Hour,
	})[0]
	if moved.Err == nil || !strings.Contains(moved.Err.Error(), "OOM") {
		t.Errorf("replace: error %v; want OOM", moved.Err)
	}
	if r := swap(t, s, first("room", node("m", 1))); r.Pin != pin { // the pin is read, and the index does not change
		t.Errorf("%v stands; want %v", r.Pin, pin)
	}
	if r := swap(t, s, pinstore.Op{Partition: 17, Room: "room", If: pin}); !r.Done {
		t.Error("release: not done; it takes no memory")
	}
	server.Full(false)
	works(t, s)
	if found := server.Do("ZRANGE", names(s).rooms(17, "m|1"), "0", "-1"); found != "" {
		t.Errorf("rooms of the node that got none: %q", found)
	}
}

// After SCRIPT FLUSH, the store sends its scripts again.
func TestScriptsFlushed(t *testing.T) {
	server, s := started(t)
	for range 3 {
		for name, call := range calls(s, "room") {
			server.Do("SCRIPT", "FLUSH")
			if err := within(answerTime, call.do); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// After a lost connection, lost data or a restart, the store notifies its users. After that, answers are fresh again,
// and later changes are notified.
func TestNotifiesOfLoss(t *testing.T) {
	server := redistest.Start(t)
	s, other := ready(t, redisAt{URL: server.URL()}), ready(t, redisAt{URL: server.URL()})
	notified := listen(s)
	for name, lost := range map[string]func(){
		"connection killed": func() { server.Do("CLIENT", "KILL", "TYPE", "pubsub") },
		"data flushed": func() { // the next heartbeat detects the loss
			server.Do("FLUSHALL")
			_, _ = s.Heartbeat(t.Context(), node("n", 1), time.Hour, nil)
		},
		"restart": func() {
			server.Kill()
			redistest.Eventually(t, "notice while the server is down", func() error { return notified.have("") })
			server.Restart()
		},
	} {
		room := fmt.Sprint("room ", name)
		redistest.Eventually(t, "claim", func() error { return try(s, first(room, node("n", 1))) })
		redistest.Eventually(t, "heartbeat", func() error {
			_, err := s.Heartbeat(t.Context(), node("n", 1), time.Hour, nil)
			return err
		})
		notified.reset()
		lost()
		redistest.Eventually(t, name, func() error { return notified.have("") })
		redistest.Eventually(t, "claim", func() error { return try(other, first(room, node("n", 1))) })
		redistest.Eventually(t, "a fresh answer", func() error {
			if r := s.Swap(t.Context(), read(room))[0]; r.Fresh != maxFresh {
				return fmt.Errorf("it is fresh for %v (%w)", r.Fresh, errors.Join(r.Err, s.Notified()))
			}
			return nil
		})
		notified.reset()
		swap(t, other, pinstore.Op{
			Partition: 17,
			Room:      room,
			If:        pinstore.Pin{Incarnation: node("n", 1)},
			Set:       pinstore.Pin{Incarnation: node("m", 1)},
			TTL:       time.Hour,
		})
		redistest.Eventually(t, "change after "+name, func() error { return notified.have(room) })
	}
}

// Notifications do not depend on how many keys Redis tracks for its clients (tracking-table-max-keys).
func TestNotifiesOfManyRooms(t *testing.T) {
	const rooms, most = 3000, 1000
	server := redistest.Start(t, "--tracking-table-max-keys", strconv.Itoa(most))
	reader, mover := ready(t, redisAt{URL: server.URL()}), ready(t, redisAt{URL: server.URL()})
	notified := listen(reader)
	claims, moves := make([]pinstore.Op, rooms), make([]pinstore.Op, rooms)
	for i := range claims {
		claims[i] = first(fmt.Sprint("room ", i), node("n", 1))
		claims[i].Partition = placement.Partition(i % 50)
	}
	for i, r := range reader.Swap(t.Context(), claims...) {
		if r.Err != nil || r.Fresh != maxFresh {
			t.Fatal(r)
		}
		moves[i] = claims[i]
		moves[i].If, moves[i].Set = r.Pin, pinstore.Pin{Incarnation: node("m", 1)}
	}
	for _, r := range mover.Swap(t.Context(), moves...) {
		if r.Err != nil || !r.Done {
			t.Fatal(r)
		}
	}
	redistest.Eventually(t, "all moves", func() error {
		missing := make(map[string]bool)
		for _, op := range moves {
			missing[op.Room] = true
		}
		for _, room := range notified.all() {
			delete(missing, room)
		}
		if len(missing) > 0 {
			return fmt.Errorf("%d of %d rooms are missing", len(missing), rooms)
		}
		return nil
	})
}

// If the index of one op holds a value that roost did not write, only this op of the batch fails. The other ops are
// performed, and their changes are published.
func TestForeignIndexInABatch(t *testing.T) {
	server := redistest.Start(t)
	s, other := ready(t, redisAt{URL: server.URL()}), ready(t, redisAt{URL: server.URL()})
	notified := listen(other)
	server.Do("SET", names(s).rooms(17, "foreign|1"), "x")
	move := first("one", node("m", 1))
	move.If = swap(t, s, first("one", node("n", 1))).Pin
	results := s.Swap(t.Context(), move, first("two", node("foreign", 1)), first("three", node("n", 1)))
	if results[0].Err != nil || !results[0].Done || results[2].Err != nil || !results[2].Done {
		t.Errorf("the other ops: %+v, %+v", results[0], results[2])
	}
	if err := results[1].Err; err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || server.Do("EXISTS", names(s).pin(17, "two")) != "0" {
		t.Errorf("error %v; want WRONGTYPE, and no pin", err)
	}
	redistest.Eventually(t, "the move", func() error { return notified.have("one") })
}

// If several users share a store, a change by one user is notified to all, even if the change may have failed.
func TestUsersOfOneStore(t *testing.T) {
	server, s := started(t)
	notified := listen(s)
	listen(s)
	pin := swap(t, s, first("room", node("n", 1))).Pin
	if all := notified.all(); len(all) > 0 {
		t.Errorf("notified of %q; nobody keeps that a room has no pin", all)
	}
	renew := pinstore.Op{Partition: 17, Room: "room", If: pin, Set: pin, TTL: time.Hour}
	renew.Set.Epoch++
	swap(t, s, renew)
	if err := notified.have("room"); err != nil {
		t.Error(err)
	}
	notified.reset()
	server.Kill()
	renew.Room = "another"
	if r := s.Swap(t.Context(), renew)[0]; r.Err == nil {
		t.Error("no error of a server that has gone")
	}
	if err := notified.have("another"); err != nil {
		t.Error(err)
	}
	// If the failed op takes effect later, the store receives its own message, and notifies its users of the room.
	notified.reset()
	s.news.message(s.news.self + "\nanother\nroom")
	if err := notified.have("another"); err != nil || notified.have("room") == nil {
		t.Errorf("notified of %q, %v", notified.all(), err)
	}
}

// If a store has only one user, it does not notify the user of the user's own changes.
func TestNoEcho(t *testing.T) {
	server := redistest.Start(t)
	s, other := ready(t, redisAt{URL: server.URL()}), ready(t, redisAt{URL: server.URL()})
	notified := listen(s)
	for i := range 20 {
		room := fmt.Sprint("room ", i)
		pin := swap(t, s, first(room, node("n", 1)))
		if pin.Fresh != maxFresh {
			t.Fatalf("fresh for %v; want %v", pin.Fresh, maxFresh)
		}
		swap(t, s, pinstore.Op{Partition: 17, Room: room, If: pin.Pin, Set: pin.Pin, TTL: time.Hour})
		swap(t, s, pinstore.Op{Partition: 17, Room: room, If: pin.Pin, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour})
	}
	swap(t, other, pinstore.Op{Partition: 17, Room: "room 19", If: pinstore.Pin{Incarnation: node("m", 1)}})
	redistest.Eventually(t, "the other's change", func() error { return notified.have("room 19") })
	if all := notified.all(); len(all) != 1 {
		t.Errorf("notified of %q; want the room that the other changed", all)
	}
}

func TestFreshAsLongAsThePin(t *testing.T) {
	server := redistest.Start(t)
	for query, most := range map[string]time.Duration{"": maxFresh, " without messages": unnotifiedFresh} {
		s := ready(t, redisAt{URL: server.URL()})
		if query != "" {
			s.quit()
			s.tasks.Wait()
			s.news.lose(errLost)
		}
		op := first("brief"+query, node("n", 1))
		op.TTL = 500 * time.Millisecond
		for _, op := range []pinstore.Op{op, read(op.Room)} {
			if fresh := swap(t, s, op).Fresh; fresh <= 0 || fresh > op.TTL && op.TTL > 0 || fresh > 500*time.Millisecond {
				t.Errorf("%q: fresh for %v", query, fresh)
			}
		}
		if fresh := swap(t, s, first("long"+query, node("n", 1))).Fresh; fresh != most {
			t.Errorf("%q: fresh for %v; want %v", query, fresh, most)
		}
		if fresh := swap(t, s, read("nothing")).Fresh; fresh != 0 {
			t.Errorf("%q: nothing is fresh for %v", query, fresh)
		}
	}
}

// heard collects notifications.
type heard struct {
	mu    sync.Mutex
	rooms []string
}

func listen(s *Store) *heard {
	h := new(heard)
	s.Notify(func(room string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rooms = append(h.rooms, room)
	})
	return h
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.rooms...)
}

func (h *heard) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rooms = nil
}

func (h *heard) have(room string) error {
	if all := h.all(); !slices.Contains(all, room) {
		return fmt.Errorf("notified of %q; want %q", all, room)
	}
	return nil
}
