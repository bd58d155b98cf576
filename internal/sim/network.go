package sim

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// What a full exchange or a lookup can fail with.
var (
	errRefused = errors.New("sim: connection refused")
	errTimeout = errors.New("sim: connection timed out")
	errStuck   = errors.New("sim: no answer on an open connection")
	errNoDNS   = errors.New("sim: the name servers do not answer")
)

// link is the way from one address to another.
type link struct{ from, to string }

// network is what lies between the processes.
type network struct {
	delay, jitter time.Duration
	loss          float64
	rng           *rand.Rand
	byAddr        map[string]*Process
	cuts          map[link]bool
}

// latency returns the transit time of the next packet, and whether it is lost. Each
// packet draws two numbers under any settings, so that an additional fault in a run does
// not change the fate of other packets until a kernel sends more or fewer of them.
func (n *network) latency() (d time.Duration, lost bool) {
	jitter, fate := n.rng.Float64(), n.rng.Float64()
	return n.delay + time.Duration(jitter*float64(n.jitter)), fate < n.loss
}

// send puts a packet on its way. It reports no loss, as UDP does not.
func (c *Cluster) send(from *Process, addr string, packet []byte) {
	delay, lost := c.net.latency()
	from.sent.Packets++
	from.sent.Bytes += len(packet)
	c.opts.Tap(packet)
	to := c.net.byAddr[addr]
	if lost || to == nil || c.net.cuts[link{from.Addr, addr}] {
		return
	}
	c.queue.push(event{at: c.now.Add(delay), to: to, from: from, packet: packet})
}

// Inject sends a message to a node from the address of a stranger, who may have recorded
// or written it.
func (c *Cluster) Inject(id string, message []byte) {
	delay, _ := c.net.latency()
	c.queue.push(event{at: c.now.Add(delay), to: c.Node(id), from: &c.stranger, packet: message})
}

// exchange opens a stream to an address, on which both sides hand over all that they
// know. done runs once: when the answer has been merged, or with an error. A paused
// process accepts the connection and does not answer.
func (c *Cluster) exchange(from *Process, addr string, done func(node.Reason, error)) {
	there, _ := c.net.latency()
	back, _ := c.net.latency()
	ended := false
	end := func(reason node.Reason, err error) {
		if !ended {
			ended = true
			done(reason, err)
		}
	}
	to := c.net.byAddr[addr]
	switch {
	case c.net.cuts[link{from.Addr, addr}] || c.net.cuts[link{addr, from.Addr}]:
		c.after(from, c.opts.StreamTimeout, func() { end(node.NoAnswer, errTimeout) })
	case to == nil || to.status == crashed:
		c.after(from, there+back, func() { end(node.NoAnswer, errRefused) })
	default:
		state := from.kernel.Sync(from.Now())
		c.after(to, 2*there+back, func() { // the handshake, then the state
			reply := to.kernel.Sync(to.Now())
			c.opts.Tap(state)
			c.opts.Tap(reply)
			to.kernel.Receive(to.Now(), state)
			c.after(from, back, func() {
				if !ended {
					from.kernel.Receive(from.Now(), reply)
				}
				end(node.NoAnswer, nil)
			})
		})
		c.after(from, c.opts.StreamTimeout, func() { end(node.Unfinished, errStuck) })
	}
}
