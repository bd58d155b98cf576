package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
)

// awaitJoin waits until the node has joined or the core has stopped trying.
func (a *Agent) awaitJoin(ctx context.Context) error {
	err := a.await(ctx, func(s *Snapshot) bool { return s.Phase != PhaseJoining && s.Phase != PhaseOver })
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ErrClosed):
		if why := a.Snapshot().Waits; why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return fmt.Errorf("cluster: start %s: joining: %w", a.self, err)
	}
	<-a.done
	return fmt.Errorf("cluster: start %s: %w", a.self, a.err)
}

// exchange starts a full exchange with another node when the core requests it.
func (a *Agent) exchange(x node.Exchange) {
	a.wait.Go(func() {
		a.env.Gate()
		err := a.gossip.Join(x.Addr, func(p gossip.Peer) error { return a.met(x, p) })
		_ = a.do(context.Background(), func(now time.Time, n *node.Node) { n.Exchanged(now, x, reasonOf(err), err) })
	})
}

// met asks the core whether to exchange states with the node that answers at an address. If the identity of
// the cluster changes, met tells other nodes before that exchange.
func (a *Agent) met(x node.Exchange, p gossip.Peer) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), a.cfg.Network.timings().stream, errBusy)
	defer cancel()
	met := make(chan error, 1)
	if err := a.do(ctx, func(now time.Time, n *node.Node) { met <- n.Met(now, x, node.Peer(p)) }); err != nil {
		return err
	}
	return <-met
}

var errBusy = errors.New("cluster: this node is too busy to continue the exchange")

// reasonOf converts the error of a failed exchange to a reason for the core.
func reasonOf(err error) node.Reason {
	var settings *SettingsError
	switch {
	case errors.As(err, &settings), errors.Is(err, ErrKey), errors.Is(err, ErrCluster):
		return node.Refused
	case errors.Is(err, gossip.ErrHungUp):
		return node.HungUp
	case errors.Is(err, node.ErrOtherCluster), errors.Is(err, gossip.ErrNoNode):
		return node.OtherCluster
	case errors.Is(err, gossip.ErrUnfinished):
		return node.Unfinished
	}
	return node.NoAnswer
}

// lookUp resolves the name of a seed and passes the addresses to the core.
func (a *Agent) lookUp(ctx context.Context, l node.Lookup) {
	a.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, l.Timeout)
		defer cancel()
		addrs, err := a.seedsOf(ctx, l.Name)
		_ = a.do(context.Background(), func(now time.Time, n *node.Node) { n.Resolved(now, l, addrs, err) })
	})
}

// lookUpSeeds resolves the names of seeds before the core exists. If a name cannot be resolved, the core
// tries it again while the node joins.
func (a *Agent) lookUpSeeds(ctx context.Context) []string {
	_, names := a.cfg.seeds()
	found := make([][]string, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		wait.Go(func() { found[i], _ = a.seedsOf(ctx, name) })
	}
	wait.Wait()
	return slices.Concat(found...)
}

// locate finds the address at which other nodes reach this node, and passes it to the core.
func (a *Agent) locate(reach []string) {
	a.wait.Go(func() {
		addr, err := a.gossip.Locate(reach)
		final := errors.Is(err, gossip.ErrLoopback)
		if addr != a.gossip.Addr() {
			err = a.gossip.Advertise(fmt.Sprintf("%s#%d", a.self, a.now().UnixNano()), addr)
			addr = a.gossip.Addr()
		}
		_ = a.do(context.Background(), func(now time.Time, n *node.Node) {
			n.Located(now, node.Located{Addr: addr, HTTP: a.cfg.served(addr), Reason: err, Final: final})
		})
	})
}

// discovered is the name that represents Config.Discover in a list of seed names.
const discovered = node.Discovered

// mostDiscovered is the maximum number of seeds that the agent uses from Config.Discover.
const mostDiscovered = 1000

// seedsOf resolves the name of a seed to addresses.
func (a *Agent) seedsOf(ctx context.Context, name string) ([]string, error) {
	if name != discovered {
		return gossip.Resolve(ctx, name)
	}
	seeds, err := a.discover(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster: Config.Discover: %w", err)
	}
	addrs, names := a.cfg.splitSeeds(seeds[:min(len(seeds), mostDiscovered)])
	more, err := gossip.ResolveAll(ctx, names)
	if addrs = append(addrs, more...); len(addrs) > 0 {
		return addrs, nil
	}
	return nil, err
}

// discover calls Config.Discover, one call at a time. When ctx ends, discover returns even if
// the call is still running.
func (a *Agent) discover(ctx context.Context) ([]string, error) {
	select {
	case a.discovering <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("an earlier call has not returned: %w", ctx.Err())
	}
	returned := make(chan struct{})
	var seeds []string
	var err error
	go func() {
		seeds, err = a.cfg.Discover(ctx)
		<-a.discovering
		close(returned)
	}()
	select {
	case <-returned:
		return seeds, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// SetJoin replaces Config.Join while the node runs, and tries the new seeds immediately. SetJoin does not affect
// current members, because a node needs seeds only after a split, or if it has lost all other members. If a seed is
// invalid, the error names it, and nothing changes. Concurrent calls take effect one after another.
func (a *Agent) SetJoin(seeds ...string) error {
	cfg := a.cfg.clone()
	cfg.Join = slices.Clone(seeds)
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("cluster: set join: %w", err)
	}
	return a.command(func(now time.Time, n *node.Node) {
		a.join.Store(&cfg.Join)
		addrs, names := cfg.seeds()
		n.SetSeeds(now, addrs, names)
	})
}

// seeds returns the seeds in two lists: addresses, and names that must be resolved.
func (c Config) seeds() (addrs, names []string) {
	addrs, names = c.splitSeeds(c.Join)
	if c.Discover != nil {
		names = append(names, discovered)
	}
	return addrs, names
}

// splitSeeds separates addresses from names, because the node must resolve the names repeatedly. Members announce their
// link-local addresses without a zone. splitSeeds therefore removes Bind's zone from seeds, so that the addresses can
// be compared.
func (c Config) splitSeeds(seeds []string) (addrs, names []string) {
	bind, _ := netip.ParseAddrPort(c.Bind)
	for _, seed := range seeds {
		at, err := netip.ParseAddrPort(seed)
		if err != nil {
			names = append(names, seed)
			continue
		}
		ip := at.Addr().Unmap()
		if ip.Zone() == bind.Addr().Zone() {
			ip = ip.WithZone("")
		}
		addrs = append(addrs, netip.AddrPortFrom(ip, at.Port()).String())
	}
	return addrs, names
}

// validSeed reports whether s is host:port or the name of an SRV record. The host is an IP address or a name.
func validSeed(s string) bool {
	host := s
	if !strings.HasPrefix(s, "_") {
		if !hostPort(s) || strings.HasPrefix(s, ":") {
			return false
		}
		host, _, _ = net.SplitHostPort(s)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r < 0x80 && strings.ContainsRune("+/:@?#[]%,;\"'", r)
	})
}

func (c Config) checkAllowed(problem func(bad bool, format string, args ...any)) {
	i := slices.IndexFunc(c.GossipAllow, func(n netip.Prefix) bool { return !n.IsValid() || n.Addr().Is4In6() })
	problem(i >= 0, "GossipAllow has an entry that is not a network such as 10.0.0.0/8, at index %d", i)
	if len(c.GossipAllow) == 0 {
		return
	}
	for _, seed := range c.Join {
		at, err := netip.ParseAddrPort(seed)
		holds := func(n netip.Prefix) bool { return n.Contains(at.Addr().Unmap().WithZone("")) }
		problem(err == nil && !slices.ContainsFunc(c.GossipAllow, holds),
			"Join has %s, which is not in a network of GossipAllow, so this node would drop its answers", seed)
	}
}
