package gossip

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// maxHeadTimeout bounds how long a connection may take to send its hello, and then the head of its message. Agents send
// both at once.
const maxHeadTimeout = time.Second

// greeter has the protocols of roost on a stream before memberlist reads or writes one: hello, and the watch streams of
// others. It proves and verifies that both sides have a key.
type greeter struct {
	label       string
	ring        *firewall.Ring
	strict      bool // memberlist refuses plain text, since the start
	headTimeout time.Duration
	self        func() Peer
	meet        func(Peer) error // decides about who answers where memberlist dials a member

	joins       sync.Map // of *joining, by name
	credentials atomic.Pointer[credentials]
	changing    sync.Mutex // of the keys
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

// setKeys replaces all keys. Each step leaves a node that understands messages that are under way.
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

// incoming answers the hello of an incoming stream, and takes the stream if a watcher opened it. It reads nothing of a
// stream that begins otherwise.
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

// joining is a call of Join. memberlist hands its name to the greeter, and returns no error that can be inspected.
type joining struct {
	addr string
	meet func(Peer) error
	err  error
}

// outgoing returns where a stream of memberlist goes, and what says hello there.
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

// greet says hello, and asks meet about who answers.
func (g *greeter) greet(s *firewall.Stream, meet func(Peer) error, until time.Time) error {
	p, err := g.hello(s, until)
	if err != nil || meet == nil {
		return err
	}
	return meet(p)
}
