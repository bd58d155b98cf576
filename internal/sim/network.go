package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/roost-cluster/roost/internal/node"
)

// Errors of full exchanges and lookups.
var (
	errRefused = errors.New("sim: connection refused")
	errTimeout = errors.New("sim: connection timed out")
	errStuck   = errors.New("sim: no answer on an open connection")
	errReset   = errors.New("sim: connection reset")
	errNoDNS   = errors.New("sim: the name servers do not answer")
)

// streamTimeout is how long a full exchange may take.
const streamTimeout = 2500 * time.Millisecond

// link is one direction between two addresses.
type link struct{ from, to string }

// network is the network between the processes.
type network struct {
	delay, jitter time.Duration
	loss          float64
	rng           *rand.Rand
	lossOf        map[string]loss // additional loss of an address
	byAddr        map[string]*Process
	cuts          map[link]bool
	resets        map[link]bool   // cuts at which streams are reset
	streams       []*stream       // full exchanges in progress
	streamRng     *rand.Rand      // of watch streams
	refuses       map[string]bool // addresses that refuse watch streams
	gone          map[string]bool // addresses of hosts that have vanished
}

// loss is the share of packets that are lost on the way out of a host, and on the way in.
type loss struct{ out, in float64 }

// latency returns the transit time of the next packet, and its fate in [0, 1). Each packet draws two numbers,
// whatever the settings are. So an additional fault in a run does not change the fate of other packets until
// a core sends more or fewer packets.
func (n *network) latency() (d time.Duration, fate float64) {
	jitter, fate := n.rng.Float64(), n.rng.Float64()
	return n.delay + time.Duration(jitter*float64(n.jitter)), fate
}

// loses reports whether a packet with this fate is lost.
func (n *network) loses(l link, fate float64) bool {
	return fate < 1-(1-n.loss)*(1-n.lossOf[l.from].out)*(1-n.lossOf[l.to].in)
}

// send sends a packet. Like UDP, it does not report losses.
func (c *Cluster) send(from *Process, addr string, packet []byte) {
	delay, fate := c.net.latency()
	from.sent.Packets++
	from.sent.Bytes += len(packet)
	c.opts.Tap(packet)
	to, way := c.net.byAddr[addr], link{from.Addr, addr}
	if c.net.loses(way, fate) || to == nil || c.net.cuts[way] {
		return
	}
	c.queue.push(event{at: c.now.Add(delay), to: to, from: from, packet: packet})
}

// Inject sends a message to a node from the address of an outsider, who may have recorded or made it.
func (c *Cluster) Inject(id string, message []byte) {
	delay, _ := c.net.latency()
	c.queue.push(event{at: c.now.Add(delay), to: c.Node(id), from: &c.outsider, packet: message})
}

// stream is a full exchange in progress.
type stream struct {
	link
	done func(node.Reason, error) // runs once
}

// close ends a stream, unless it has ended.
func (n *network) close(s *stream, reason node.Reason, err error) {
	if i := slices.Index(n.streams, s); i >= 0 {
		n.streams = slices.Delete(n.streams, i, i+1)
		s.done(reason, err)
	}
}

// exchange opens a stream to an address. The other side identifies itself, and both sides send everything
// that they know. done runs once: after the answer has been merged, or with an error. A paused process
// accepts the connection but does not answer.
func (c *Cluster) exchange(from *Process, x node.Exchange, done func(node.Reason, error)) {
	addr := x.Addr
	there, _ := c.net.latency()
	back, _ := c.net.latency()
	s := &stream{link{from.Addr, addr}, done}
	c.net.streams = append(c.net.streams, s)
	to := c.net.byAddr[addr]
	switch {
	case c.net.resets[s.link]:
		c.after(from, there+back, func() { c.net.close(s, node.NoAnswer, errRefused) })
	case c.net.cuts[s.link] || c.net.cuts[link{addr, from.Addr}] || c.net.gone[addr]:
		c.after(from, streamTimeout, func() { c.net.close(s, node.NoAnswer, errTimeout) })
	case to == nil || (to.status == crashed && !c.net.gone[addr]):
		c.after(from, there+back, func() { c.net.close(s, node.NoAnswer, errRefused) })
	default:
		c.after(to, 2*there+back, func() { // the handshake, then the hello
			peer := to.core.Peer()
			c.after(from, back, func() {
				if !slices.Contains(c.net.streams, s) {
					return
				}
				if err := from.core.Met(from.Now(), x, peer); err != nil {
					c.net.close(s, reasonOf(err), err)
					return
				}
				state := from.core.Sync(from.Now())
				c.after(to, there, func() {
					if slices.Contains(c.net.streams, s) {
						c.reply(from, to, s, state, back)
					}
				})
			})
		})
		c.after(from, streamTimeout, func() { c.net.close(s, node.Unfinished, errStuck) })
	}
}

func reasonOf(err error) node.Reason {
	if errors.Is(err, node.ErrOtherCluster) {
		return node.OtherCluster
	}
	return node.NoAnswer
}

// reply merges the state of the other side, and sends its own state back.
func (c *Cluster) reply(from, to *Process, s *stream, state []byte, back time.Duration) {
	reply := to.core.Sync(to.Now())
	c.opts.Tap(state)
	c.opts.Tap(reply)
	to.core.Merge(to.Now(), state)
	c.after(from, back, func() {
		if slices.Contains(c.net.streams, s) {
			from.core.Merge(from.Now(), reply)
		}
		c.net.close(s, node.NoAnswer, nil)
	})
}

// Split cuts the network between groups of nodes.
func (c *Cluster) Split(groups ...[]string) { eachWay(groups, c.Cut) }

// SplitByResets cuts the network between groups of nodes with a firewall that drops packets and resets
// streams.
func (c *Cluster) SplitByResets(groups ...[]string) {
	eachWay(groups, func(from, to string) {
		c.net.resets[link{c.Node(from).Addr, c.Node(to).Addr}] = true
		c.Cut(from, to)
	})
}

// eachWay calls cut for each pair of nodes in different groups, in both directions.
func eachWay(groups [][]string, cut func(from, to string)) {
	for i, group := range groups {
		for _, other := range slices.Concat(groups[i+1:]...) {
			for _, id := range group {
				cut(id, other)
				cut(other, id)
			}
		}
	}
}

// Cut drops all packets from one node to another. Streams between the two time out.
func (c *Cluster) Cut(from, to string) {
	c.net.cuts[link{c.Node(from).Addr, c.Node(to).Addr}] = true
	c.probe()
}

// Reaches reports whether no cut drops the packets from one node to another.
func (c *Cluster) Reaches(from, to string) bool {
	return !c.net.cuts[link{c.Node(from).Addr, c.Node(to).Addr}]
}

// Heal ends all cuts.
func (c *Cluster) Heal() {
	clear(c.net.cuts)
	clear(c.net.resets)
}

// Loss returns the share of packets that are lost.
func (c *Cluster) Loss() float64 { return c.net.loss }

// SetLoss changes the share of packets that are lost.
func (c *Cluster) SetLoss(share float64) { c.net.loss = share }

// SetLossOf changes the share of packets that are additionally lost on the way out of a node's host and on
// the way in. Streams resend lost packets.
func (c *Cluster) SetLossOf(id string, out, in float64) {
	c.net.lossOf[c.Node(id).Addr] = loss{out, in}
}

// ResetStreams ends all streams to and from a node, like a restarted firewall.
func (c *Cluster) ResetStreams(id string) {
	addr := c.Node(id).Addr
	for _, s := range slices.Clone(c.net.streams) {
		if s.from == addr || s.to == addr {
			c.after(c.net.byAddr[s.from], c.net.delay, func() { c.net.close(s, node.HungUp, errReset) })
		}
	}
	c.endStreams(addr)
}
