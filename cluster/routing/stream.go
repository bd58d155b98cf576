package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/internal/agenturl"
	"github.com/roost-cluster/roost/internal/sse"
	"github.com/roost-cluster/roost/internal/tablewire"
)

// maxEvent is the maximum size of an event in bytes. A table of 65,536 partitions with long node IDs takes 4
// MB, and each member with many labels takes 2 kB.
const maxEvent = 32 << 20

// stream is a connection to one agent from which the Client reads the table.
type stream struct {
	agent  string // address of the agent, as configured
	name   string // address of the agent without a password, for people
	client *Client
	ctx    context.Context //nolint:containedctx // context of the stream; canceled when the Client drops the agent
	stop   context.CancelFunc
	heard  atomic.Int64 // when the agent last sent something, in ns since the start of the Client
	bytes  atomic.Int64 // number of bytes that the agent has sent
}

// report is a message from a stream: a new state, or the error that ended the stream.
type report struct {
	from  *stream
	state *tablewire.State
	err   error
}

// follow reads the stream of an agent until the stream ends, and reports its states.
func (s *stream) follow(to chan<- report) {
	ctx := s.ctx
	var state *tablewire.State
	query := url.Values{"keep_alive": {(s.client.cfg.IdleTimeout / 3).String()}}
	if scope := s.client.cfg.Scope; scope != "" {
		query.Set("scope", scope)
	}
	err := s.client.events(ctx, s.agent, "/v1/table?"+query.Encode(), "update", s.said, func(data []byte) error {
		var u tablewire.Update
		err := json.Unmarshal(data, &u)
		if err == nil {
			state, err = u.Apply(state)
		}
		if err != nil {
			return fmt.Errorf("routing: unexpected update from %s: %w", s.name, err)
		}
		return send(ctx, to, report{from: s, state: state})
	})
	_ = send(ctx, to, report{from: s, err: err})
}

func send(ctx context.Context, to chan<- report, r report) error {
	select {
	case to <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// said records that the agent has sent bytes, or the headers of the stream.
func (s *stream) said(bytes int) {
	s.bytes.Add(int64(bytes))
	now := time.Since(s.client.started)
	s.heard.Store(int64(now))
	if s.client.current.Load() == s {
		s.client.heard.Store(int64(now))
	}
}

// saying is a response body that records when bytes arrive.
type saying struct {
	io.Reader
	said func(bytes int)
}

func (r *saying) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.said(n)
	}
	return n, err
}

// events passes the data of each event of one kind to take, until the stream ends, ctx ends or take fails.
// events always returns an error.
func (c *Client) events(ctx context.Context, agent, path, kind string, said func(bytes int), take func(data []byte) error) error {
	resp, err := c.call(ctx, agent, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t != "text/event-stream" {
		return fmt.Errorf("routing: unexpected response from %s to %s, of type %q: is it a roost agent?", agenturl.Shown(agent), path, t)
	}
	agent = agenturl.Shown(agent)
	said(0)
	in := sse.NewReader(&saying{resp.Body, said}, kind, maxEvent)
	for {
		data, err := in.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("routing: the agent at %s has ended the stream", agent)
		}
		if err != nil {
			return fmt.Errorf("routing: the stream of %s broke: %w", agent, err)
		}
		if err := take(data); err != nil {
			return err
		}
	}
}

// AgentError is an error response of an agent.
type AgentError struct {
	Agent  string `json:"-"`     // address of the agent without a password
	Status int    `json:"-"`     // HTTP status of the response
	Code   string `json:"code"`  // error code: see package clusterhttp
	Text   string `json:"error"` // error text for people
}

// Error names the agent and the reason for the failure.
func (e *AgentError) Error() string {
	return fmt.Sprintf("routing: the agent at %s: %s", e.Agent, e.Text)
}

// call makes a request. call returns responses with status 2xx, and returns an *AgentError for any other
// status.
func (c *Client) call(ctx context.Context, agent, method, path string, body io.Reader) (*http.Response, error) {
	base, err := agenturl.Parse(agent)
	if err != nil {
		return nil, err // cannot happen, because validate has checked the address
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.cfg.HTTP.Do(r)
	if err != nil {
		if failure, ok := errors.AsType[*url.Error](err); ok {
			err = failure.Err // does not repeat the URL
		}
		return nil, fmt.Errorf("routing: no agent answers at %s: %w", agenturl.Shown(agent), err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	e := &AgentError{Agent: agenturl.Shown(agent), Status: resp.StatusCode}
	if b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err != nil || json.Unmarshal(b, e) != nil || e.Text == "" {
		e.Text = resp.Status + ": is it a roost agent whose release has /v1/table?"
	}
	return nil, e
}
