package sim

import (
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// watching is the state of a watch stream from a process to another.
type watching struct {
	node.Watch
	from  *Process
	open  bool
	pause time.Duration // pause before the next attempt
}

const (
	dialTimeout = 500 * time.Millisecond
	firstPause  = time.Second
	longPause   = 30 * time.Second

	// A kernel considers a stream dead if two probes in a row get no answer within a second. The probe before
	// these two was answered, because the host had not vanished yet.
	leastIdleTimeout = 2 * time.Second
	mostIdleTimeout  = 3 * time.Second
)

// watch keeps streams to exactly these nodes from now on.
func (p *Process) watch(nodes []node.Watch) {
	p.watches = slices.DeleteFunc(p.watches, func(w *watching) bool { return !slices.Contains(nodes, w.Watch) })
	for _, n := range nodes {
		if !slices.ContainsFunc(p.watches, func(w *watching) bool { return w.Watch == n }) {
			w := &watching{Watch: n, from: p, pause: firstPause}
			p.watches = append(p.watches, w)
			p.c.dial(w, false)
		}
	}
}

// streamTime returns how long a packet of a stream takes. It has its own random numbers, so that streams
// don't change the fate of packets.
func (c *Cluster) streamTime() time.Duration {
	return c.net.delay + time.Duration(c.net.streamRng.Float64()*float64(c.net.jitter))
}

// dial opens a watch stream. If again is set, the new stream replaces a stream that has ended, and a failure
// counts as evidence.
func (c *Cluster) dial(w *watching, again bool) {
	c.watched(w, 4*c.streamTime(), func() {
		if c.net.resets[link{w.from.Addr, w.Addr}] {
			c.failed(w, again, lease.Refused)
			return
		}
		if c.unreachable(w.from.Addr, w.Addr) {
			c.watched(w, dialTimeout, func() { c.failed(w, again && c.unreachable(w.from.Addr, w.Addr), lease.Silent) })
			return
		}
		switch to := c.net.byAddr[w.Addr]; {
		case to == nil || to.status == crashed || c.net.refuses[w.Addr]:
			c.failed(w, again, lease.Refused)
		case to.status == paused:
			c.failed(w, false, 0) // the node accepts the connection but does not answer
		case to.core.Handle() != w.Node:
			c.failed(w, again, lease.Refused)
		default:
			w.open, w.pause = true, firstPause
		}
	})
}

// failed plans the next attempt, and reports evidence if there is any.
func (c *Cluster) failed(w *watching, report bool, e lease.Evidence) {
	pause := w.pause
	w.pause = min(2*pause, longPause)
	c.watched(w, pause+time.Duration(c.net.streamRng.Int64N(int64(pause))), func() { c.dial(w, false) })
	if report {
		w.from.core.StreamEnded(w.from.Now(), w.Node, e)
	}
}

// watched runs do after d, if the process still watches the node by then.
func (c *Cluster) watched(w *watching, d time.Duration, do func()) {
	c.after(w.from, d, func() {
		if slices.Contains(w.from.watches, w) {
			do()
		}
	})
}

// end ends an open watch stream after the time d.
func (c *Cluster) end(w *watching, d time.Duration) {
	w.open = false
	c.watched(w, d, func() { c.dial(w, true) })
}

// endStreams ends the open watch streams to and from an address, like the kernel of a host when a process
// ends, or a firewall that resets them.
func (c *Cluster) endStreams(addr string) {
	for _, p := range c.all() {
		for _, w := range p.watches {
			if w.open && (w.Addr == addr || p.Addr == addr) {
				c.end(w, c.streamTime())
			}
		}
	}
}

// exit ends a process. Its host ends the streams.
func (c *Cluster) exit(p *Process) {
	if p.status != crashed {
		p.status = crashed
		p.watches = nil
		p.endRuns()
		c.endStreams(p.Addr)
	}
}

// unreachable reports whether no packet gets from one address to the other and back.
func (c *Cluster) unreachable(a, b string) bool {
	return c.net.dead(link{a, b}) || c.net.dead(link{b, a})
}

// dead reports whether a link drops everything. Random loss does not affect streams, because they resend lost
// packets.
func (n *network) dead(l link) bool { return n.cuts[l] || n.gone[l.from] || n.gone[l.to] }

// probe lets the keep-alives of streams detect hosts that no longer answer, after the time that keep-alives
// need.
func (c *Cluster) probe() {
	if c.probing {
		return
	}
	c.probing = true
	c.queue.push(event{at: c.now, do: func() { // after everything else at this moment
		c.probing = false
		for _, p := range c.all() {
			for _, w := range p.watches {
				switch {
				case w.open && c.net.resets[link{p.Addr, w.Addr}]: // the next probe is reset
					c.end(w, time.Duration(c.net.streamRng.Int64N(int64(mostIdleTimeout-leastIdleTimeout))))
				case w.open && c.unreachable(p.Addr, w.Addr):
					c.timeOut(w)
				}
			}
		}
	}})
}

// timeOut ends an open watch stream if its probes are not answered.
func (c *Cluster) timeOut(w *watching) {
	wait := leastIdleTimeout + time.Duration(c.net.streamRng.Int64N(int64(mostIdleTimeout-leastIdleTimeout)))
	c.watched(w, wait, func() {
		if w.open && c.unreachable(w.from.Addr, w.Addr) {
			w.open = false
			c.dial(w, true)
		}
	})
}

// Vanish ends nodes with their hosts, so no kernel is left that could end a stream.
func (c *Cluster) Vanish(ids ...string) {
	for _, id := range ids {
		p := c.Node(id)
		p.status, p.watches = crashed, nil
		p.endRuns()
		c.net.gone[p.Addr] = true
		delete(c.nodes, id)
		c.probe()
	}
}

// RefuseStreams makes the host of a node refuse or accept new watch streams, like a firewall that rejects
// TCP. Open streams stay.
func (c *Cluster) RefuseStreams(id string, refuse bool) { c.net.refuses[c.Node(id).Addr] = refuse }
