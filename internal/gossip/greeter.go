package gossip

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// maxHeadTimeout limits how long a connection may take to send its hello, and then the head of its message.
// Agents send both immediately.
const maxHeadTimeout = time.Second

// greeter implements the protocols that roost runs on a stream before memberlist uses it: the hello, and incoming watch
// streams. It proves that this node has a key, and verifies that the other side has a key.
type greeter struct {
	label       string
	ring        *firewall.Ring
	strict      bool // whether memberlist has rejected plain text since the start
	headTimeout time.Duration
	self        func() Peer
	meet        func(Peer) error // decides whether memberlist may talk to the node that answers when it dials a member

	joins       sync.Map // of *joining, by name
	credentials atomic.Pointer[credentials]
	changing    sync.Mutex // held while the keys change
	watched     watched
}

func newGreeter(cfg *Config, c *credentials, ring *firewall.Ring) *greeter {
	g := &greeter{
		label: cfg.Cluster, ring: ring, strict: !c.TakesPlain,
		headTimeout: min(cfg.StreamTimeout, maxHeadTimeout), self: cfg.Self, meet: cfg.Meet,
	}
	g.credentials.Store(c)
	return g
}

// setKeys replaces all keys. After each step, the node understands messages that are still in transit.
func (g *greeter) setKeys(key []byte, old [][]byte) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	was, next := g.credentials.Load(), newCredentials(g.label, key, old)
	for _, k := range next.Secrets {
		if err := memberlist.ValidateKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	switch {
	case was.SendsPlain && !next.TakesPlain:
		return ErrPlain
	case next.SendsPlain && !was.SendsPlain, next.TakesPlain && !was.TakesPlain && g.strict:
		return ErrSealed
	}
	if err := g.ring.Widen(next.Keys); err != nil {
		return err
	}
	g.credentials.Store(next)
	g.ring.Narrow(next.Keys)
	return nil
}

// incoming answers the hello of an incoming stream, and takes over the stream if it is a watch stream. It
// does not read anything from other streams.
func (g *greeter) incoming(s *firewall.Stream) (taken bool, err error) {
	label, kind, err := s.Head()
	if err == nil && kind == typeHello {
		if err = g.answerHello(s, label); err != nil {
			return false, err
		}
		label, kind, err = s.Head()
	}
	if err != nil || kind != typeWatch || label != g.label {
		return false, err
	}
	s.Skip()
	return true, g.serveWatcher(s)
}

// joining is a running call of Join. memberlist passes its name to the greeter, but returns no error that can
// be inspected, so the greeter stores the error here.
type joining struct {
	addr string
	meet func(Peer) error
	err  error
}

// outgoing returns the address to which a memberlist stream goes, and the function that sends the hello on
// that stream.
func (g *greeter) outgoing(to memberlist.Address) (memberlist.Address, func(*firewall.Stream, time.Time) error) {
	join := &joining{meet: g.meet}
	if j, ok := g.joins.Load(to.Name); ok {
		join = j.(*joining)
		to = memberlist.Address{Addr: join.addr} // memberlist drops the zone of a link-local address
	}
	return to, func(s *firewall.Stream, until time.Time) error {
		join.err = g.greet(s, join.meet, until)
		return join.err
	}
}

// greet sends a hello, and asks meet whether to continue with the node that answers.
func (g *greeter) greet(s *firewall.Stream, meet func(Peer) error, until time.Time) error {
	p, err := g.hello(s, until)
	if err != nil || meet == nil {
		return err
	}
	return meet(p)
}
