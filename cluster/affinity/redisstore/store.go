package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
)

// Store keeps pins in Redis. Open returns one. Its methods are safe for concurrent use.
type Store struct {
	opt   Options
	where string // for people
	keys  keys

	swap, apart, clean, heartbeat, reserve, agree script

	link    atomic.Pointer[link]
	changed atomic.Pointer[[]*user]

	mu     sync.Mutex // guards closed, so that no call begins after Close has begun to wait
	closed bool
	quit   context.CancelFunc // called by Close
	calls  sync.WaitGroup
}

var _ pinstore.Store = (*Store)(nil)

// link is the connection to Redis, or the reason for not having one.
type link struct {
	pins  rueidis.Client // with tracking: the server notifies it of changes of keys that it has read
	plain rueidis.Client // without tracking, for all other commands
	err   error

	// one says that all keys are on one server, so that a script may use keys of several partitions. The pins
	// connection then only tracks what it is told to. Otherwise it would track all keys that a script
	// declares, as before Redis 7.2.
	one   bool
	conns []*connections // of a single server
	split atomic.Bool    // such a script was refused, because a proxy divides the keys
}

// tracked reports whether the pins connection is notified of changes.
func (l *link) tracked() bool { return l.pins != l.plain }

var (
	errClosed = errors.New("redisstore: the store is closed")
	errEarly  = errors.New("still connecting")
)

// Open returns a store in the Redis of opt. It only fails if the options are invalid. It waits for the first
// attempt to connect, but at most until ctx ends. While Redis is down, the store reconnects in the
// background, at least every 2 s, and all calls fail at once. After each failed attempt it looks for up to a second at
// what is at the address, for example a port with TLS, a sentinel or a proxy without scripts, and the errors of calls
// say so. The caller must close the store.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.Prefix = cmp.Or(opt.Prefix, DefaultPrefix)
	where, err := opt.validate()
	if err != nil {
		return nil, err
	}
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		opt:       opt,
		where:     where,
		keys:      keys(opt.Prefix),
		swap:      newScript(swapSource),
		apart:     newScript(apartSource),
		clean:     newScript(cleanSource),
		heartbeat: newScript(heartbeatSource),
		reserve:   newScript(reserveSource),
		agree:     newScript(agreeSource),
		quit:      quit,
	}
	s.link.Store(&link{err: errEarly})
	tried := make(chan struct{})
	s.calls.Go(func() { s.connect(life, tried) })
	select {
	case <-tried:
	case <-ctx.Done():
	}
	return s, nil
}

// String returns the addresses and the number of the database, without a user and passwords.
func (s *Store) String() string { return s.where }

// Close closes the store. Calls in progress fail, and Close waits for them. That takes a second or two if
// Redis hangs.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.quit()
		if l := s.link.Swap(&link{err: errClosed}); l.err == nil {
			s.calls.Go(l.close)
		}
	}
	s.mu.Unlock()
	s.calls.Wait()
	return nil
}

func (l *link) close() {
	if l.tracked() {
		l.plain.Close()
	}
	l.pins.Close()
}

// connect tries until it has a link, which then recovers by itself.
func (s *Store) connect(life context.Context, tried chan<- struct{}) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		l := s.examine(life, s.dial(life))
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.link.Store(l)
		}
		s.mu.Unlock()
		if tried != nil {
			close(tried)
			tried = nil
		}
		switch {
		case closed && l.err == nil:
			l.close()
			return
		case closed || l.err == nil:
			return
		}
		// Add jitter, so that the nodes of a fleet do not reconnect at the same time.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-life.Done():
			timer.Stop()
			return
		}
	}
}

func (s *Store) dial(life context.Context) *link {
	opt, tracking, err := s.opt.client(life)
	if err != nil {
		return &link{err: err}
	}
	// Only the connections of pins announce a loss, because only they have read pins.
	notified := newConnections(opt.DialCtxFn, func() { s.invalidated(nil) })
	move := &mover{all: []*connections{notified}}
	if opt.DialCtxFn = notified.open; tracking {
		others := newConnections(notified.dial, func() {})
		move.all = append(move.all, others) // closed after them, so that no answer comes before the announcement
		opt.DialCtxFn = others.open
	}
	plain, err := rueidis.NewClient(opt)
	if err != nil {
		return &link{err: fmt.Errorf("connect to %v: %w", opt.InitAddress, err)}
	}
	one, single := plain.Mode() != rueidis.ClientModeCluster, plain.Mode() == rueidis.ClientModeStandalone
	if single {
		plain = heeding{plain, move}
	} else {
		move.all = nil
	}
	if !tracking {
		return &link{pins: plain, plain: plain, one: one, conns: move.all}
	}
	opt.DisableCache = false
	opt.ClientTrackingOptions = []string{"NOLOOP"} // tracks all keys that a connection reads, without its own changes
	if one = one && mayChoose(plain); one {
		opt.ClientTrackingOptions = []string{"OPTIN", "NOLOOP"}
		// Load the script, so that the first join does not take two round trips. If this fails, the first
		// join sends the script.
		_ = plain.Do(context.Background(), plain.B().ScriptLoad().Script(s.swap.source).Build()).Error()
	}
	opt.OnInvalidations = s.invalidated
	opt.DialCtxFn = notified.open
	opt.CacheSizeEachConn = 1 << 10 // the cache of rueidis is not used
	pins, err := rueidis.NewClient(opt)
	if err != nil {
		plain.Close()
		return &link{err: fmt.Errorf("connect to %v: %w", opt.InitAddress, err)}
	}
	if single {
		pins = heeding{pins, move}
	}
	return &link{pins: pins, plain: plain, one: one, conns: move.all}
}

// mayChoose reports whether a connection may say what to track. An ACL user may not have the right to, and a
// proxy may not have the command. Because tracking is off on this connection, a server that allows the
// command refuses it with an error that names it.
func mayChoose(plain rueidis.Client) bool {
	err, ok := rueidis.IsRedisErr(plain.Do(context.Background(), plain.B().ClientCaching().Yes().Build()).Error())
	return ok && strings.HasPrefix(strings.TrimPrefix(err.Error(), "ERR "), "CLIENT CACHING can")
}

// do runs f on its own goroutine and returns its answer, or an error if ctx ends first. f then ends within
// seconds, because hanging connections are closed. f does not get ctx, because the client would dial with it,
// and would never reach a server that needs longer than the budget of a call.
func do[T any](ctx context.Context, s *Store, f func(context.Context, *link) T) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	s.mu.Lock()
	l := s.link.Load()
	if l.err != nil {
		s.mu.Unlock()
		return none, l.err
	}
	s.calls.Add(1)
	s.mu.Unlock()
	answer := make(chan T, 1)
	go func() { //nolint:gosec // a call outlives the context of the caller that began it
		defer s.calls.Done()
		answer <- f(context.Background(), l)
	}()
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		return none, l.late(ctx.Err())
	}
}

// late returns the error of a call without an answer in time. If there is no connection, the error also says
// why.
func (l *link) late(err error) error {
	for _, c := range l.conns {
		if why := c.unreachable(); why != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
	return err
}

// isAsk reports whether a server has named the one to which a slot moves: the client follows by itself if it may.
func isAsk(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	if !ok {
		return false
	}
	_, ask := e.IsAsk()
	return ask
}

// storeError makes err a pinstore.ErrStore that names the operation.
func storeError(what string, err error) error { return errorOf(pinstore.ErrStore, what, err) }

func errorOf(kind error, what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, rueidis.ErrNoCache):
		hint = " (for a server without CLIENT TRACKING add ?client_cache=0 to the URL)"
	case errors.Is(err, rueidis.ErrClosing):
		err = errClosed
	case isAsk(err):
		hint = " (a slot moves; if this lasts, the user of Redis lacks the right +asking)"
	}
	return fmt.Errorf("%w: redis: %s: %w%s", kind, what, err, hint)
}
