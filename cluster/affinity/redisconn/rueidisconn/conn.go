// Package rueidisconn connects the stores of package redisstore to Redis with the rueidis client.
//
//	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: "redis://localhost:6379"})
//	…
//	store, err := redisstore.New(redis, redisstore.Options{Prefix: "calls:"})
//	…
//	defer store.Close() // and the connection
//
// The package supports single servers, Redis Cluster and Sentinel, with TLS and ACL users. The package uses
// one connection to each server for commands and messages.
//
// Failed commands are not sent again, but connections recover automatically. If a single server has become a
// replica (READONLY, MASTERDOWN), its connection is closed. The next connection goes wherever the host name
// or load balancer then points. Errors never contain passwords.
package rueidisconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// Conn is a connection to Redis, opened by Open. Its methods are safe for concurrent use.
type Conn struct {
	opt   Options
	where string // for people
	lost  atomic.Pointer[func()]
	link  atomic.Pointer[link]

	mu     sync.Mutex // guards closed, so that no call begins after Close has begun to wait
	closed bool
	quit   context.CancelFunc // called by Close
	calls  sync.WaitGroup
}

var _ redisconn.Conn = (*Conn)(nil)

// link is a client, or the reason why there is no client.
type link struct {
	client rueidis.Client
	conns  *connections // of a single server; else nil
	err    error
}

var errEarly = errors.New("still connecting")

// Open connects to the Redis server that opt specifies. Open returns an error only if the options are
// invalid. Open waits for the first attempt to connect, but no longer than until ctx ends. The caller must
// close the connection or pass it to a store.
//
// While Redis is down, all commands fail immediately, and the connection retries in the background at least
// every 2 s. After each failed attempt, the connection spends up to a second to find out what is at the
// address, for example a TLS port, a sentinel, or a proxy without scripts. The errors of commands include the
// result.
func Open(ctx context.Context, opt Options) (*Conn, error) {
	where, err := opt.validate()
	if err != nil {
		return nil, err
	}
	life, quit := context.WithCancel(context.WithoutCancel(ctx))
	c := &Conn{opt: opt, where: where, quit: quit}
	c.link.Store(&link{err: errEarly})
	tried := make(chan struct{})
	c.calls.Go(func() { c.connect(life, tried) })
	select {
	case <-tried:
	case <-ctx.Done():
	}
	return c, nil
}

// String returns the addresses and the database number, without the user and passwords.
func (c *Conn) String() string { return c.where }

// Close closes the connection. Commands in progress fail, and Close waits for them. If Redis hangs, Close
// takes a second or two.
func (c *Conn) Close() error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.quit()
		if l := c.link.Swap(&link{err: redisconn.ErrClosed}); l.err == nil {
			c.calls.Go(l.client.Close)
		}
	}
	c.mu.Unlock()
	c.calls.Wait()
	return nil
}

// connect retries until it has a link. Afterward, the link recovers automatically.
func (c *Conn) connect(life context.Context, tried chan<- struct{}) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		l := c.examine(life, c.dial(life))
		c.mu.Lock()
		closed := c.closed
		if !closed {
			c.link.Store(l)
		}
		c.mu.Unlock()
		if tried != nil {
			close(tried)
			tried = nil
		}
		switch {
		case closed && l.err == nil:
			l.client.Close()
			return
		case closed || l.err == nil:
			return
		}
		// Add jitter, so that the nodes of a fleet do not all reconnect at the same time.
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-life.Done():
			timer.Stop()
			return
		}
	}
}

func (c *Conn) dial(life context.Context) *link {
	opt, err := c.opt.client(life)
	if err != nil {
		return &link{err: err}
	}
	conns := newConnections(opt.DialCtxFn, func() {
		if lost := c.lost.Load(); lost != nil {
			(*lost)()
		}
	})
	conns.several = opt.AlwaysRESP2
	opt.DialCtxFn = conns.open
	client, err := rueidis.NewClient(opt)
	if err != nil {
		return &link{err: fmt.Errorf("connect to %v: %w", opt.InitAddress, err)}
	}
	if client.Mode() != rueidis.ClientModeStandalone {
		conns = nil
	} else {
		client = heeding{client, &mover{conns: conns}}
	}
	return &link{client: client, conns: conns}
}

// OnLoss implements redisconn.Conn. If sentinels have promoted another server to master, that server may have
// answered commands for up to a second before lost is called.
func (c *Conn) OnLoss(lost func()) { c.lost.Store(&lost) }

// Clustered implements redisconn.Conn.
func (c *Conn) Clustered() (bool, error) {
	l := c.link.Load()
	if l.err != nil {
		return false, l.err
	}
	return l.client.Mode() == rueidis.ClientModeCluster, nil
}

// Do implements redisconn.Conn. Do does not pass ctx to the client. Otherwise, the client would use ctx to
// dial and could never reach a server whose connection takes longer than the budget of a call. Instead, the
// commands run on their own goroutine. The commands end within seconds, because the client closes connections
// that hang.
func (c *Conn) Do(ctx context.Context, commands ...redisconn.Command) []redisconn.Reply {
	if err := ctx.Err(); err != nil {
		return redisconn.Failed(len(commands), err)
	}
	l, err := c.begin()
	if err != nil {
		return redisconn.Failed(len(commands), err)
	}
	answer := make(chan []redisconn.Reply, 1)
	go func() { //nolint:gosec // the commands outlive the context of their caller
		defer c.calls.Done()
		answer <- l.do(context.Background(), commands)
	}()
	select {
	case replies := <-answer:
		return replies
	case <-ctx.Done():
		return redisconn.Failed(len(commands), l.late(ctx.Err()))
	}
}

// begin returns the link for a call. If err is nil, the caller must call calls.Done when the call has
// finished.
func (c *Conn) begin() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.link.Load()
	if l.err == nil {
		c.calls.Add(1)
	}
	return l, l.err
}

func (l *link) do(ctx context.Context, commands []redisconn.Command) []redisconn.Reply {
	if len(commands) == 1 {
		return []redisconn.Reply{reply(l.client.Do(ctx, l.build(commands[0])))}
	}
	built := make([]rueidis.Completed, len(commands))
	for i, command := range commands {
		built[i] = l.build(command)
	}
	replies := make([]redisconn.Reply, len(commands))
	for i, result := range l.client.DoMulti(ctx, built...) {
		replies[i] = reply(result)
	}
	return replies
}

func (l *link) build(c redisconn.Command) rueidis.Completed {
	return l.client.B().Arbitrary(c.Head...).Keys(c.Keys...).Args(c.Args...).Build()
}

// reply converts the result of a command to a Reply.
func reply(result rueidis.RedisResult) redisconn.Reply {
	value, err := result.ToAny()
	return redisconn.Reply{Value: value, Err: errorOf(err)}
}

func errorOf(err error) error {
	if rueidis.IsRedisNil(err) {
		return nil
	}
	if e, ok := rueidis.IsRedisErr(err); ok {
		return redisconn.Error(e.Error())
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return redisconn.ErrClosed
	}
	return err
}

// late returns the error of a call that received no answer in time. If there is no connection, the error
// includes the reason.
func (l *link) late(err error) error {
	if l.conns == nil {
		return err
	}
	if why := l.conns.unreachable(); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// Subscribe implements redisconn.Conn.
func (c *Conn) Subscribe(ctx context.Context, channel string, message func(payload string)) error {
	l, err := c.begin()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	return errorOf(l.client.Receive(ctx, l.client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
		message(m.Message)
	}))
}
