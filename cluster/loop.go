package cluster

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/placement"
)

// loop is the shell around the core of an agent. The single goroutine of the loop passes incoming messages
// and calls to the core, and carries out what the core decides.
type loop struct {
	agent    *Agent
	core     *node.Node
	log      *slog.Logger
	endLog   func()       // writes the remaining log lines and waits for the handler
	refusals <-chan error // of nodes that have other settings
	refused  time.Time    // when the latest node was refused
	refusal  string       // why
	sent     struct{ packets, bytes, errors uint64 }
	err      error // why the loop stopped by itself

	history history

	stopped []placement.Partition // partitions whose canceled runs the core waits for
}

// call is a function that runs in the loop.
type call struct {
	f    func(now time.Time, n *node.Node)
	done chan struct{} // closed when the effects of the call are carried out
}

func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.agent.turned.Store(int64(time.Since(l.agent.started)))
		var packet []byte
		var c call
		select {
		case packet = <-l.agent.packets:
		case c = <-l.agent.calls:
		case err := <-l.refusals:
			l.refused, l.refusal = time.Now(), err.Error()
			c.f = func(now time.Time, n *node.Node) { n.Refused(now, err) }
		case <-timer.C:
		case <-l.agent.feed.Returned():
		case <-ctx.Done():
			now := l.agent.now()
			l.core.End(now)
			l.carryOut(ctx, l.core.Ready(now))
			return
		}
		l.agent.env.Gate()
		now := l.agent.now()
		l.core.SetLoad(l.agent.load.Load())
		switch {
		case packet != nil:
			l.core.Receive(now, packet)
		case c.f != nil:
			c.f(now, l.core)
		}
		l.returned(now)
		r := l.core.Ready(now)
		l.carryOut(ctx, r)
		if c.done != nil {
			close(c.done)
		}
		if l.err != nil {
			return
		}
		sampleDue := l.history.sample(time.Now(), l.agent.snap.Load(), l.agent.load.Load())
		timer.Reset(min(pause(now, r), time.Until(sampleDue)))
	}
}

// pause returns how long the loop may sleep. If the core has just canceled runs, pause returns 0, because the
// runs may have returned already.
func pause(now time.Time, r node.Ready) time.Duration {
	if len(r.Stop) > 0 {
		return 0
	}
	return max(0, r.Next.Sub(now))
}

// carryOut carries out what the core decided. The loop changes what this node owns before it notifies other
// nodes.
func (l *loop) carryOut(ctx context.Context, r node.Ready) {
	if r.Show {
		l.show()
	}
	if r.State != nil {
		l.agent.feed.Publish(r.State)
		select {
		case <-l.agent.ready:
		default:
			close(l.agent.ready)
		}
	}
	l.stopped = append(l.stopped, r.Stop...)
	if r.Cluster != nil {
		l.agent.cluster.Store(&r.Cluster)
		l.agent.gossip.Announce()
	}
	for _, p := range r.Packets {
		l.send(p)
	}
	if r.Watch != nil {
		l.watch(r.Watch)
	}
	l.reachOut(ctx, r)
	for _, e := range r.Log {
		l.log.Log(context.Background(), slog.Level(e.Level), e.Message, e.Attrs...)
	}
	if r.Hopeless != nil {
		l.err = r.Hopeless
	}
	if r.Duplicate != nil {
		l.err = &DuplicateIDError{ID: l.agent.self, Addr: l.agent.Addr(), Other: r.Duplicate.Addr}
		l.log.Error("agent stopped", "err", l.err)
	}
}

// reachOut starts the exchanges and lookups that the node needs to find other nodes and to be found by them.
func (l *loop) reachOut(ctx context.Context, r node.Ready) {
	if r.Locate != nil {
		l.agent.locate(r.Locate)
	}
	for _, x := range r.Exchanges {
		l.agent.exchange(x)
	}
	for _, name := range r.Lookups {
		l.agent.lookUp(ctx, name)
	}
}

// returned tells the core which of the canceled runs have returned.
func (l *loop) returned(now time.Time) {
	l.stopped = slices.DeleteFunc(l.stopped, func(p placement.Partition) bool {
		if l.agent.feed.Runs(p) {
			return false
		}
		l.core.Returned(now, p)
		return true
	})
}

func (l *loop) send(p node.Packet) {
	if err := l.agent.gossip.Send(p.To, p.Bytes); err != nil {
		l.sent.errors++
		l.log.Debug("send failed", "addr", p.To, "err", err)
		return
	}
	l.sent.packets++
	l.sent.bytes += uint64(len(p.Bytes))
	l.core.Sent(l.agent.now(), p)
}

func (l *loop) watch(nodes []node.Watch) {
	targets := make([]gossip.Target, len(nodes))
	for i, n := range nodes {
		targets[i] = gossip.Target{Handle: n.Node, Addr: n.Addr}
	}
	l.agent.gossip.Watch(targets)
}

// command is like do, but for calls of the application, so it does not wait forever if the loop is blocked.
func (a *Agent) command(f func(now time.Time, n *node.Node)) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), a.cfg.LeaseTTL, ErrStalled)
	defer cancel()
	return a.do(ctx, f)
}

// do runs f in the loop. do returns when the effects of f are carried out, or when ctx ends. If ctx ends
// after the loop has received f, f may still run later.
func (a *Agent) do(ctx context.Context, f func(now time.Time, n *node.Node)) error {
	c := call{f, make(chan struct{})}
	select {
	case a.calls <- c:
	case <-a.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-c.done:
		return nil
	case <-a.ended:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
