package clusterhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/internal/sse"
)

// Events returns the agent's changes as a sequence. Each range over the sequence opens its own stream. The
// first batch is full: it contains everything that the node owns at that moment. The first batch arrives as
// soon as the node has a table. Changes that occur while the loop body runs are merged into one batch.
//
// When ctx ends, the sequence ends without an error. Otherwise the sequence ends with an error. The error
// wraps io.EOF if the agent or its server ended the stream. If the stream did not start or broke, the error
// is like the errors of other methods. A stream is also considered broken after 50 s without an event or a
// comment. To continue, range again and replace all state with the first batch.
func (c *Client) Events(ctx context.Context) iter.Seq2[events.Batch, error] {
	return sequence[events.Batch](ctx, c, c.scoped("/v1/events", url.Values{}), "batch")
}

// MovedRooms returns a sequence of the rooms that move from now on. The sequence includes only moves that the
// agent learns about. Each range over the sequence opens its own stream. The sequence ends like the sequence
// of Events. After a new range, resolve all rooms again, because some may have moved between the two streams.
// An agent without a store sends nothing.
func (c *Client) MovedRooms(ctx context.Context) iter.Seq2[affinity.MovedBatch, error] {
	return sequence[affinity.MovedBatch](ctx, c, "/v1/events", "moved")
}

func sequence[T any](ctx context.Context, c *Client, target, kind string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := c.follow(ctx, target, kind, func(data []byte) (more bool, _ error) {
			var event T
			if err := json.Unmarshal(data, &event); err != nil {
				return false, fmt.Errorf("clusterhttp: unexpected event from %s: is it a roost agent? %w", c.where(), err)
			}
			return yield(event, nil), nil
		})
		if err != nil && ctx.Err() == nil {
			var none T
			yield(none, err)
		}
	}
}

// follow passes the data of events to take until take returns false or an error. follow returns nil only if
// take returned false.
func (c *Client) follow(ctx context.Context, target, kind string, take func(data []byte) (more bool, _ error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(maxIdle, func() { cancel(errSilent) })
	defer idle.Stop()
	err := c.read(ctx, idle, target, kind, take)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return fmt.Errorf("clusterhttp: the agent at %s: %w", c.where(), errSilent)
	}
	return err
}

// read opens the stream and passes its events to take, like follow. The timer idle must cancel ctx when it
// fires.
func (c *Client) read(ctx context.Context, idle *time.Timer, target, kind string, take func(data []byte) (more bool, _ error)) error {
	resp, err := c.send(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "text/event-stream" {
		return fmt.Errorf("clusterhttp: unexpected response from %s to %s, of type %q: is it a roost agent?", c.where(), target, t)
	}
	in := sse.NewReader(&idleReader{resp.Body, idle}, kind, maxAnswer)
	for {
		data, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("clusterhttp: the agent at %s has closed the stream of events: %w", c.where(), err)
		case err != nil:
			return c.failed(ctx, err)
		}
		if more, err := take(data); err != nil || !more {
			return err
		}
	}
}

// maxIdle is the time without an event or a comment after which a stream is considered broken. With the
// default of [Options].KeepAlive, three comments are then missing.
const maxIdle = 50 * time.Second

var errSilent = fmt.Errorf("no event and no keep-alive for %v: its process is paused, or the network is cut", maxIdle)

// idleReader runs its timer only during Read, so the time that the caller spends on an event is not counted
// as idle.
type idleReader struct {
	io.Reader
	timer *time.Timer
}

func (r *idleReader) Read(b []byte) (int, error) {
	r.timer.Reset(maxIdle)
	defer r.timer.Stop()
	return r.Reader.Read(b)
}
