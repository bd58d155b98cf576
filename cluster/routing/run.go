package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/agenturl"
	"github.com/roost-cluster/roost/internal/tablewire"
)

const (
	// firstPause is the maximum random wait before a Client tries another agent. The wait is random because
	// many routing clients lose an agent at the same time.
	firstPause = 100 * time.Millisecond

	// After every agent has failed once, the pause is up to leastPause. The pause doubles with each such
	// round, up to longestPause.
	leastPause   = 200 * time.Millisecond
	longestPause = 3 * time.Second

	// someBytes is more than the size of the comments that arrive in two IdleTimeouts.
	someBytes = 512
)

// Start follows the agents until ctx ends or Close is called. Start does not wait for the first table. Wait
// for [Client.Ready], and check [Client.Status] if no agent answers. Start only fails if cfg is invalid.
func Start(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{started: time.Now(), ready: make(chan struct{})}
	c.cfg, c.own = cfg.withDefaults()
	c.empty = cfg.errEmpty()
	c.now.Store(&view{State: &tablewire.State{}, why: ErrNotReady})
	ctx, c.stop = context.WithCancel(ctx)
	r := &runner{client: c, reports: make(chan report), agents: slices.Clone(c.cfg.Agents)}
	rand.Shuffle(len(r.agents), func(i, j int) { r.agents[i], r.agents[j] = r.agents[j], r.agents[i] })
	c.wait.Go(func() { r.run(ctx) })
	return c, nil
}

// runner decides which agent the Client follows. Only one goroutine uses it.
type runner struct {
	client  *Client
	reports chan report

	cluster string   // cluster of the first table that was not stale; "" if unknown
	agents  []string // the agent to try next comes first
	current *stream  // the stream that the Client follows; nil means none
	other   *stream  // a stream that may have a better table; nil means none
	asked   time.Time
	next    time.Time        // earliest time to try another agent
	failed  int              // failed attempts in a row
	errs    map[string]error // latest error of each agent
}

func (r *runner) run(ctx context.Context) {
	defer r.client.feed.Close()
	defer r.client.current.Store(nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case report := <-r.reports:
			r.take(report)
		case <-timer.C:
		case <-ctx.Done():
			return // the streams end with ctx
		}
		timer.Reset(max(time.Millisecond, time.Until(r.look(ctx, time.Now()))))
	}
}

// take handles a report of a stream.
func (r *runner) take(n report) {
	switch {
	case n.from != r.current && n.from != r.other: // the Client has dropped the stream
	case n.err != nil:
		r.fail(n.from, n.err)
	case r.cluster != "" && n.state.Cluster != "" && n.state.Cluster != r.cluster:
		r.fail(n.from, fmt.Errorf("routing: the agent at %s belongs to cluster %q, not to %q", n.from.name, n.state.Cluster, r.cluster))
	case n.from == r.current:
		r.show(n.state)
	case n.state.Stale && (r.current != nil || r.better()):
		r.fail(n.from, fmt.Errorf("routing: the agent at %s has no newer table: %w", n.from.name, errStale))
	default:
		r.drop(&r.current)
		r.current, r.other = n.from, nil
		r.client.current.Store(r.current)
		r.current.said(0)
		r.show(n.state)
		r.client.cfg.Log.Info("following an agent", "agent", r.current.name, "cluster", n.state.Cluster)
	}
}

func (r *runner) show(s *tablewire.State) {
	if !s.Stale { // an isolated agent may belong to another cluster that reuses the address
		r.cluster = cmp.Or(r.cluster, s.Cluster)
	}
	r.client.show(s)
}

// better reports whether to keep the last table instead of a stale table. Another agent that the Client has not tried
// yet may have the current table.
func (r *runner) better() bool {
	last := r.client.now.Load()
	return last.Table != nil && !last.Stale && r.failed < len(r.agents)
}

// look drops streams that take too long, and tries another agent if it is time. look returns when it must be
// called again.
func (r *runner) look(ctx context.Context, now time.Time) time.Time {
	doubt := r.doubt(now)
	if doubt == nil {
		r.drop(&r.other)
		if r.failed >= len(r.agents) {
			r.client.cfg.Log.Info("the table is current again", "agent", r.current.name)
		}
		r.failed, r.errs = 0, nil
		r.client.trouble.Store(nil)
		return r.current.last().Add(r.client.cfg.IdleTimeout + time.Millisecond)
	}
	if r.current != nil {
		r.note(r.current.name, doubt)
	}
	if r.other != nil && now.After(r.until()) {
		r.fail(r.other, fmt.Errorf("routing: the agent at %s sends no table: is it ready?", r.other.name))
	}
	if r.other == nil && !now.Before(r.next) {
		r.ask(ctx, now)
	}
	if r.other != nil {
		return r.until().Add(time.Millisecond)
	}
	return r.next
}

// until returns the time at which the Client stops waiting for the agent that it is trying. A large table can
// take longer to arrive. If only a few bytes have arrived, they are comments of an agent without a table.
func (r *runner) until() time.Time {
	began := r.asked
	if r.other.bytes.Load() > someBytes && r.other.last().After(began) {
		began = r.other.last()
	}
	return began.Add(2 * r.client.cfg.IdleTimeout)
}

var errStale = errors.New("its own table may be out of date, because it is isolated or rejoining")

// doubt returns why the Client needs another agent, or nil if it does not need one.
func (r *runner) doubt(now time.Time) error {
	switch {
	case r.current == nil:
		return errors.New("routing: no agent is followed")
	case now.Sub(r.current.last()) > r.client.cfg.IdleTimeout:
		return fmt.Errorf("routing: the agent at %s is silent: its process is paused, or the network is cut", r.current.name)
	case r.client.now.Load().Stale:
		return fmt.Errorf("routing: the agent at %s: %w", r.current.name, errStale)
	}
	return nil
}

// ask opens a stream to the next agent.
func (r *runner) ask(ctx context.Context, now time.Time) {
	ctx, stop := context.WithCancel(ctx)
	r.other, r.asked = &stream{agent: r.agents[0], name: agenturl.Shown(r.agents[0]), client: r.client, ctx: ctx, stop: stop}, now
	r.agents = append(r.agents[1:], r.agents[0])
	other := r.other
	r.client.wait.Go(func() {
		defer stop()
		other.follow(r.reports)
	})
}

// fail ends a stream, and schedules an attempt at the next agent after a pause.
func (r *runner) fail(s *stream, err error) {
	if s == r.current {
		r.client.cfg.Log.Warn("agent lost; asking another one", "agent", s.name, "err", err)
		r.client.current.Store(nil)
		r.drop(&r.current)
	} else {
		r.client.cfg.Log.Debug("no table from an agent", "agent", s.name, "err", err)
		r.drop(&r.other)
	}
	r.note(s.name, err)
	r.failed++
	pause := firstPause
	if r.failed%len(r.agents) == 0 {
		pause = min(leastPause<<min(r.failed/len(r.agents)-1, 8), longestPause)
	}
	r.next = time.Now().Add(rand.N(pause))
	if r.failed == len(r.agents) {
		r.client.cfg.Log.Warn("no agent has a current table; retrying",
			"err", *r.client.trouble.Load())
	}
}

// note stores the latest error of an agent for Status.
func (r *runner) note(agent string, err error) {
	if r.errs == nil {
		r.errs = make(map[string]error)
	}
	if old := r.errs[agent]; old != nil && old.Error() == err.Error() {
		return
	}
	r.errs[agent] = err
	var all []error
	for _, a := range slices.Sorted(maps.Keys(r.errs)) {
		all = append(all, r.errs[a])
	}
	joined := errors.Join(all...)
	r.client.trouble.Store(&joined)
}

func (r *runner) drop(s **stream) {
	if *s != nil {
		(*s).stop()
		*s = nil
	}
}

// last returns when the agent last sent something.
func (s *stream) last() time.Time { return s.client.started.Add(time.Duration(s.heard.Load())) }

// show makes a state of the agent visible to lookups.
func (c *Client) show(s *tablewire.State) {
	v := c.now.Load().after(s, c.empty)
	c.now.Store(v)
	c.feed.Publish(v.state)
	select {
	case <-c.ready:
	default:
		close(c.ready)
	}
}
