//go:build !race

package affinity

import (
	"context"
	"fmt"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// modelOp is a call of a process that waits for the store.
type modelOp struct {
	what    string
	view    [modelPlaces]uint64 // when it began
	ended   [modelPlaces]uint64
	log     string // what the store has answered
	call    *modelCall
	fences  uint64         // when the store last did something for it
	ends    uint64         // of hostings here, when it began
	foreign uint64         // epoch of another home's pin that a refresh has read
	hosted  *Hosting       // when it began
	dead    bool           // a refresh has read the pin of a home that is dead, and nothing says that it lives
	did     func(*modelOp) // checks the result
}

// modelCall is a call of the store.
type modelCall struct {
	by      *modelProcess
	what    string
	acts    []*modelAct // a Swap
	do      func()      // an Index or a Heartbeat
	results []pinstore.Result
	said    string // the result of do
	err     error
	taken   bool // the store has done it; the answer is under way
	answer  chan struct{}
}

// modelAct is an op with the process that asked for it, and what that knew.
type modelAct struct {
	pinstore.Op
	by   *modelProcess
	of   *modelOp // its call, or nil
	view [modelPlaces]uint64
}

// wait hands a call to the world, and returns when the world answers.
func (c *modelCall) wait(ctx context.Context) {
	w := c.by.w
	switch {
	case c.by.gone || w.away || c.by.deaf:
		c.err = errModelFailed
	case ctx.Err() != nil:
		c.err = storeError(ctx.Err())
	case w.direct:
		c.take()
	default:
		c.answer = make(chan struct{})
		w.events <- c
		<-c.answer
	}
}

// take has the store do what was asked.
func (c *modelCall) take() {
	c.taken = true
	if op := c.by.op; op != nil {
		op.fences = c.by.fences
	}
	if c.do != nil {
		c.do()
	}
	for i, a := range c.acts {
		c.results[i] = c.by.w.swap(a)
	}
}

// Swap implements Store.
func (p *modelProcess) Swap(ctx context.Context, ops ...pinstore.Op) []pinstore.Result {
	c := &modelCall{by: p, what: "swap", results: make([]pinstore.Result, len(ops))}
	for _, op := range ops {
		c.acts = append(c.acts, &modelAct{op, p, p.op, p.knew()})
	}
	c.wait(ctx)
	for i := range c.results {
		if c.err != nil {
			c.results[i] = pinstore.Result{Err: c.err}
		}
	}
	return c.results
}

// Index implements Store.
func (p *modelProcess) Index(
	ctx context.Context,
	parts []placement.Partition,
	want func(lease.Incarnation) bool,
	limit int,
) (found []pinstore.Entry, _ error) {
	c := &modelCall{by: p, what: "index"}
	c.do = func() {
		found, c.err = p.w.store.index(parts, want, limit)
		p.w.redis.index(p.self, parts, want, limit, found)
		for _, e := range found {
			c.said += fmt.Sprint(e.Pin.Incarnation, p.w.rank(e.Pin.Epoch))
		}
	}
	c.wait(ctx)
	return found, c.err
}

// Heartbeat implements Store.
func (p *modelProcess) Heartbeat(
	ctx context.Context,
	self lease.Incarnation,
	ttl time.Duration,
	ask []lease.Incarnation,
) (alive []bool, _ error) {
	c := &modelCall{by: p, what: fmt.Sprint("heartbeat", ask)}
	c.do = func() {
		alive, c.err = p.w.store.Heartbeat(context.Background(), self, ttl, ask)
		p.w.redis.heartbeat(p.self, self, ttl, ask, alive)
		switch {
		case p.w.fault == gossipDecides:
			clear(alive)
		case p.w.fault == yieldsToDead && p.r.hosts.count() > 0:
			for i := range alive {
				alive[i] = true
			}
		}
		c.said = fmt.Sprint(alive)
	}
	c.wait(ctx)
	return alive, c.err
}

// Agree implements Store. All processes have the same settings.
func (p *modelProcess) Agree(context.Context, lease.Incarnation, time.Duration, pinstore.Settings) (pinstore.Agreed, error) {
	return pinstore.Agreed{Since: 1}, nil
}

// Notify implements Store. Notifications are lost.
func (p *modelProcess) Notify(func(string)) (stop func()) { return func() {} }

// knew is what p knew when its call began.
func (p *modelProcess) knew() [modelPlaces]uint64 {
	if p.op != nil {
		return p.op.view
	}
	return p.view
}
