// Package goredisconn connects the stores of package redisstore to Redis with a go-redis client that your
// program already has. The stores use the client's settings for TLS, Sentinel and credentials.
//
//	store, err := redisstore.New(goredisconn.New(client), redisstore.Options{Prefix: "calls:"})
//
// Call New before the first command of the client. Connections to nodes that a ClusterClient already knows are not
// watched for losses. Set MaxRetries to -1 in the options of the client, and MaxRedirects to 1 for a ClusterClient,
// because resolvers have their own budget and circuit breaker. If the client sends a command twice, no room is harmed,
// but the units of a new room can be counted twice.
package goredisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
)

// Conn is a connection that uses a go-redis client. Its methods are safe for concurrent use.
type Conn struct {
	client    redis.UniversalClient
	clustered bool
	lost      atomic.Pointer[func()]
	losses    atomic.Uint64          // announced so far
	server    atomic.Pointer[string] // address of the latest connection, unless clustered

	mu     sync.Mutex // guards closed, so that no call begins after Close has begun to wait
	closed bool
	calls  sync.WaitGroup
}

var _ redisconn.Conn = (*Conn)(nil)

// New returns a connection that uses a [redis.Client], with or without Sentinel, or a [redis.ClusterClient].
// Closing the connection does not close the client. Close the client after the connection.
func New(client redis.UniversalClient) *Conn {
	c := &Conn{client: client}
	switch client := client.(type) {
	case *redis.ClusterClient:
		c.clustered = true
		client.OnNewNode(func(node *redis.Client) { node.AddHook(hook{c}) })
	case *redis.Client:
		client.AddHook(hook{c})
	}
	return c
}

// OnLoss implements redisconn.Conn.
func (c *Conn) OnLoss(lost func()) { c.lost.Store(&lost) }

// String returns the address of Redis.
func (c *Conn) String() string {
	switch client := c.client.(type) {
	case *redis.Client:
		return fmt.Sprintf("%s/%d", client.Options().Addr, client.Options().DB)
	case *redis.ClusterClient:
		return strings.Join(client.Options().Addrs, ",")
	}
	return "Redis"
}

// Close waits for commands in progress, but no longer than the timeouts of the client.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.lost.Store(nil) // the hook remains registered
	c.calls.Wait()
	return nil
}

// begin begins a call, or reports that the connection is closed. The caller must call calls.Done at the end.
func (c *Conn) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.calls.Add(1)
	}
	return !c.closed
}

// Clustered implements redisconn.Conn.
func (c *Conn) Clustered() (bool, error) {
	switch c.client.(type) {
	case *redis.Client, *redis.ClusterClient:
		return c.clustered, nil
	}
	return false, fmt.Errorf("goredisconn: a %T is neither a redis.Client nor a redis.ClusterClient", c.client)
}

// Do implements redisconn.Conn. Do does not pass ctx to the client. Otherwise, the client would use ctx to
// dial and could never reach a server whose connection takes longer than the budget of a call. Instead, the
// commands run on their own goroutine until the client's timeouts.
func (c *Conn) Do(ctx context.Context, commands ...redisconn.Command) []redisconn.Reply {
	if err := ctx.Err(); err != nil {
		return redisconn.Failed(len(commands), err)
	}
	if !c.begin() {
		return redisconn.Failed(len(commands), redisconn.ErrClosed)
	}
	answer := make(chan []redisconn.Reply, 1)
	go func() {
		defer c.calls.Done()
		answer <- c.do(context.WithoutCancel(ctx), commands)
	}()
	select {
	case replies := <-answer:
		return replies
	case <-ctx.Done():
		return redisconn.Failed(len(commands), ctx.Err())
	}
}

func (c *Conn) do(ctx context.Context, commands []redisconn.Command) []redisconn.Reply {
	cmds := make([]*redis.Cmd, len(commands))
	for i, command := range commands {
		words := command.Words()
		args := make([]any, len(words))
		for j, word := range words {
			args[j] = word
		}
		cmds[i] = redis.NewCmd(ctx, args...)
		if len(command.Keys) > 0 {
			cmds[i].SetFirstKeyPos(int8(len(command.Head)))
		}
	}
	if len(cmds) == 1 {
		_ = c.client.Process(ctx, cmds[0]) // the error is in the command
	} else {
		pipe := c.client.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, _ = pipe.Exec(ctx)
	}
	replies := make([]redisconn.Reply, len(cmds))
	for i, cmd := range cmds {
		value, err := cmd.Result()
		replies[i] = redisconn.Reply{Value: value, Err: errorOf(err)}
	}
	return replies
}

func errorOf(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if errors.Is(err, redis.ErrClosed) {
		return redisconn.ErrClosed
	}
	if _, ok := errors.AsType[redis.Error](err); ok {
		return redisconn.Error(err.Error())
	}
	return err
}

// Subscribe implements redisconn.Conn.
func (c *Conn) Subscribe(ctx context.Context, channel string, message func(payload string)) error {
	if !c.begin() {
		return redisconn.ErrClosed
	}
	defer c.calls.Done()
	subscription := c.client.Subscribe(ctx, channel)
	closed := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // ends ReceiveMessage, which ctx does not
	defer func() {
		if closed() {
			_ = subscription.Close()
		}
	}()
	for {
		m, err := subscription.ReceiveMessage(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			return fmt.Errorf("receive messages: %w", errorOf(err))
		}
		message(m.Payload)
	}
}

// hook monitors the connections of a client.
type hook struct{ *Conn }

func (h hook) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if at := conn.RemoteAddr().String(); !h.clustered {
			// If sentinels or a host name now lead to another master, that master may lack the latest changes.
			if former := h.server.Swap(&at); former != nil && *former != at {
				h.announce(h.losses.Load())
			}
		}
		w := &watched{Conn: conn, of: h.Conn}
		w.used.Store(h.losses.Load())
		if raw, ok := conn.(syscall.Conn); ok { // the client uses this to check whether an idle connection is dead
			return struct {
				*watched
				syscall.Conn
			}{w, raw}, nil
		}
		return w, nil
	}
}

// announce announces a loss, unless the counter of losses is no longer at before: then another loss has been announced.
func (c *Conn) announce(before uint64) {
	if lost := c.lost.Load(); lost != nil && c.losses.CompareAndSwap(before, before+1) {
		(*lost)()
	}
}

func (hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// watched is a connection that reports its loss before the client learns of the loss. A connection that the
// client itself closes is not considered lost. A connection that the server refused before any answer is also
// not considered lost, because the client dials such a server repeatedly. If a server restarts, all connections
// break, and only one of them reports the loss.
type watched struct {
	net.Conn
	of       *Conn
	used     atomic.Uint64 // number of losses when the connection was opened or last answered
	answered atomic.Bool
	closed   atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.answered.Store(true)
		w.used.Store(w.of.losses.Load())
	}
	if err != nil && !w.closed.Load() && w.answered.Load() {
		w.of.announce(w.used.Load())
	}
	return n, err
}

func (w *watched) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}
