package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/affinity"
)

// Store keeps pins on Redis. Make one by Open. Its methods may be called from any
// goroutine.
type Store struct {
	opt  Options
	keys keys

	swap, clean, heartbeat script

	link    atomic.Pointer[link]
	changed atomic.Pointer[[]func(room string)]

	mu     sync.Mutex // of closed, so that no call begins after Close has begun to wait
	closed bool
	quit   chan struct{} // closed by Close
	calls  sync.WaitGroup
}

var _ affinity.Store = (*Store)(nil)

// link is the connection to Redis, or why there is none.
type link struct {
	pins  rueidis.Client // its connections are told of changes of what they read
	plain rueidis.Client // for all else, or the server would have to track that, too
	err   error
}

var (
	errClosed = errors.New("redisstore: the store is closed")
	errEarly  = errors.New("still connecting")
)

// Open returns a store on the Redis that opt describes. It fails only for options
// that cannot be right. It waits for the first attempt to connect, until ctx ends;
// a Redis that is down is tried again in the background, every 2 s at the longest,
// and meanwhile all calls fail at once. The caller closes the store.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.Prefix = cmp.Or(opt.Prefix, DefaultPrefix)
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		opt:       opt,
		keys:      keys(opt.Prefix),
		swap:      newScript(swapSource),
		clean:     newScript(cleanSource),
		heartbeat: newScript(heartbeatSource),
		quit:      make(chan struct{}),
	}
	s.link.Store(&link{err: errEarly})
	tried := make(chan struct{})
	s.calls.Go(func() { s.connect(tried) })
	select {
	case <-tried:
	case <-ctx.Done():
	}
	return s, nil
}

// Close ends the store. It waits for the calls that run, which fail, for a second
// or two if Redis hangs.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.quit)
		if l := s.link.Swap(&link{err: errClosed}); l.err == nil {
			s.calls.Go(l.close)
		}
	}
	s.mu.Unlock()
	s.calls.Wait()
	return nil
}

func (l *link) close() {
	if l.plain != l.pins {
		l.plain.Close()
	}
	l.pins.Close()
}

// connect tries until it has a link, which then mends itself.
func (s *Store) connect(tried chan<- struct{}) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		l := s.dial()
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
		// Jittered, or a fleet would come back all at once.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-s.quit:
			timer.Stop()
			return
		}
	}
}

func (s *Store) dial() *link {
	opt, tracking, err := s.opt.client()
	if err != nil {
		return &link{err: err}
	}
	plain, err := rueidis.NewClient(opt)
	if err != nil {
		return &link{err: fmt.Errorf("connect to %v: %w", opt.InitAddress, err)}
	}
	if !tracking {
		return &link{pins: plain, plain: plain}
	}
	opt.DisableCache = false
	opt.ClientTrackingOptions = []string{"NOLOOP"} // all that a connection reads, but not its own changes
	opt.OnInvalidations = s.invalidated
	opt.CacheSizeEachConn = 1 << 10 // of rueidis, which is not used
	pins, err := rueidis.NewClient(opt)
	if err != nil {
		plain.Close()
		return &link{err: fmt.Errorf("connect to %v: %w", opt.InitAddress, err)}
	}
	return &link{pins: pins, plain: plain}
}

// do runs f on a goroutine of its own and returns its answer, or an error when ctx
// ends first. f then still comes to its end, within seconds, since connections
// that hang are closed. It does not get ctx: the client would dial with it, so
// that a server that takes longer to reach than one call may take would never be.
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
	go func() {
		defer s.calls.Done()
		answer <- f(context.Background(), l)
	}()
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// fault makes err an affinity.ErrStore that names the operation.
func fault(what string, err error) error { return faultOf(affinity.ErrStore, what, err) }

func faultOf(kind error, what string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, rueidis.ErrNoCache):
		hint = " (for a server without CLIENT TRACKING add ?client_cache=0 to the URL)"
	case errors.Is(err, rueidis.ErrClosing):
		err = errClosed
	}
	return fmt.Errorf("%w: redis: %s: %w%s", kind, what, err, hint)
}
