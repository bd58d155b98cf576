package clusterhttp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"

	"github.com/roost-cluster/roost/events"
)

// Events returns the agent's changes as a sequence; each range over it opens a
// stream of its own. Its first batch holds everything that the node owns at that
// moment, as soon as it has a table. While the loop body runs, changes merge, at
// the latest in the agent.
//
// The sequence ends in silence when ctx does. Otherwise it ends with one error:
// it wraps io.EOF if the agent or its server has ended the stream, and is as the
// other methods' errors if there was none or it broke. Whoever wants to go on
// ranges again, and treats the first batch as the new truth.
func (c *Client) Events(ctx context.Context) iter.Seq2[events.Batch, error] {
	return func(yield func(events.Batch, error) bool) {
		err := c.follow(ctx, func(b events.Batch) bool { return yield(b, nil) })
		if err != nil && ctx.Err() == nil {
			yield(events.Batch{}, err)
		}
	}
}

// follow hands on batches while take wants more. It returns nil only then.
func (c *Client) follow(ctx context.Context, take func(events.Batch) bool) error {
	resp, err := c.send(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "text/event-stream" {
		return fmt.Errorf("clusterhttp: what %s answers to /v1/events is not from an agent: it is %q", c.where(), t)
	}
	in := newEventReader(resp.Body)
	for {
		data, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("clusterhttp: the agent at %s has ended the stream of events: %w", c.where(), err)
		case err != nil:
			return c.failed(ctx, err)
		}
		var b events.Batch
		if err := json.Unmarshal(data, &b); err != nil {
			return fmt.Errorf("clusterhttp: an event of %s is not from an agent: %w", c.where(), err)
		}
		if !take(b) {
			return nil
		}
	}
}

// eventReader takes a text/event-stream apart.
type eventReader struct{ lines *bufio.Scanner }

func newEventReader(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxAnswer)
	return &eventReader{lines}
}

// next returns the data of the next batch, and passes over comments, events of
// other kinds, and fields that it does not know. Data may span several lines.
// An event that the stream breaks off in is none.
func (e *eventReader) next() ([]byte, error) {
	var kind, data []byte
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if string(kind) == "batch" && len(data) > 0 {
				return data, nil
			}
			kind, data = nil, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			kind = bytes.Clone(value)
		case "data":
			if len(data)+len(value) > maxAnswer {
				return nil, bufio.ErrTooLong
			}
			data = append(append(data, value...), '\n')
		}
	}
	if err := e.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
