// Package rueidisconn connects the stores of package redisstore to Redis with rueidis.
//
//	redis, err := rueidisconn.Open(ctx, rueidisconn.Options{URL: "redis://localhost:6379"})
//	…
//	store, err := redisstore.New(redis, redisstore.Options{Prefix: "calls:"})
//	…
//	defer store.Close() // and the connection
//
// It works with a single server, a Redis Cluster and Sentinel, over TLS, and with an ACL user. It has one
// connection to each server, for commands and messages.
//
// Commands are not sent again after a failure, but connections recover by themselves. If a single server has become
// a replica (READONLY, MASTERDOWN), its connection is closed, so that the next one goes where its name
// or a load balancer then leads. No error contains a password.
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

// Conn is a connection to Redis. Open returns one. Its methods are safe for concurrent use.
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

// link is a client, or the reason for not having one.
type link struct {
	client rueidis.Client
	conns  *connections // of a single server; else nil
	err    error
}

var errEarly = errors.New("still connecting")

// Open connects to the Redis of opt. It only fails if the options are invalid. It waits for the first attempt
// to connect, but at most until ctx ends. While Redis is down, it reconnects in the background, at least
// every 2 s, and all commands fail at once. After each failed attempt, it looks for up to a second at what is at the
// address, for example a port with TLS, a sentinel or a proxy without scripts, and the errors of commands say so. The
// caller must close the connection, or give it to a store.
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

// String returns the addresses and the number of the database, without a user and passwords.
func (c *Conn) String() string { return c.where }

// Close closes the connection. Commands in progress fail, and Close waits for them. That takes a second or two
// if Redis hangs.
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

// connect tries until it has a link, which then recovers by itself.
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

// OnLoss implements redisconn.Conn. If sentinels have made another server the master, that server may have
// answered for a second before lost is called.
func (c *Conn) OnLoss(lost func()) { c.lost.Store(&lost) }

// Clustered implements redisconn.Conn.
func (c *Conn) Clustered() (bool, error) {
	l := c.link.Load()
	if l.err != nil {
		return false, l.err
	}
	return l.client.Mode() == rueidis.ClientModeCluster, nil
}

// Do implements redisconn.Conn. The client does not get ctx, because it would dial with it, and would never reach
// a server that needs longer than the budget of a call. So the commands run on their own goroutine, and
// end within seconds, because hanging connections are closed.
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

// begin returns the link for a call. If it returns no error, the caller must call calls.Done at the end.
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

// reply converts the result of a command.
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

// late returns the error of a call without an answer in time. If there is no connection, the error also says
// why.
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
