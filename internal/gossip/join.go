package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// Reasons why a reachable node rejects a join.
var (
	ErrKey     = errors.New("the gossip keys differ")
	ErrCluster = errors.New("the cluster names differ")
)

// ErrUnfinished means that a process is listening but is stuck. Its host accepted the connection, but the
// exchange did not finish in time.
var ErrUnfinished = errors.New("it accepted the connection, but did not answer in time")

// Join exchanges the full state with the node at an ip:port, unless meet returns an error for the node that
// answers. If Join returns nil, the state of the other node has been merged.
//
// If one of the nodes rejects the exchange, the error is from meet or Config.Accept, or wraps ErrKey or
// ErrCluster. ErrUnfinished means that the other node is stuck. ErrHungUp means that the other node is
// stopping, or that a proxy closed the connection. ErrNoNode means that something other than a node answered.
// Any other error means that the node is unreachable. Joins may run concurrently. Close aborts them.
func (n *Node) Join(addr string, meet func(Peer) error) error {
	name := fmt.Sprintf("~%d", n.joins.Add(1)) // no node has such a name
	j := &joining{addr: addr, meet: meet}
	n.greeter.joins.Store(name, j)
	defer n.greeter.joins.Delete(name)
	_, err := n.list.Load().Join([]string{name + "/" + withoutZone(addr)})
	switch {
	case err == nil:
		return nil
	case j.err != nil:
		return fmt.Errorf("gossip: join %s: %w", addr, j.err)
	}
	// Concurrent joins, including incoming ones, also store their rejections here. memberlist quotes the text
	// of the error that ended this join, but does not wrap the error.
	if rejected := n.rejected.Load(); rejected != nil && strings.Contains(err.Error(), (*rejected).Error()) {
		return fmt.Errorf("gossip: join %s: %w", addr, *rejected)
	}
	return translate(addr, err)
}

// translate turns memberlist's error texts, which do not wrap errors, into advice.
func translate(addr string, err error) error {
	has := func(s string) bool { return strings.Contains(err.Error(), s) }
	switch {
	case has("EOF"), has("connection reset"):
		return fmt.Errorf("gossip: join %s: %w", addr, ErrHungUp)
	case has("i/o timeout") && !has("dial "), has(firewall.ErrBusy.Error()), has(firewall.ErrEvicted.Error()):
		return fmt.Errorf("gossip: join %s: %w", addr, ErrUnfinished)
	}
	if all, ok := errors.AsType[interface {
		error
		WrappedErrors() []error
	}](err); ok && len(all.WrappedErrors()) == 1 {
		err = all.WrappedErrors()[0] // only the error of the one address
	}
	return fmt.Errorf("gossip: join %s: %w", addr, err)
}

// Resolve returns the ip:port addresses of a seed: "host:port", or the name of an SRV
// record ("_roost._udp.example.org").
func Resolve(ctx context.Context, seed string) ([]string, error) {
	if strings.HasPrefix(seed, "_") {
		return resolveSRV(ctx, seed)
	}
	host, port, err := splitHostPort(seed)
	if err != nil {
		return nil, fmt.Errorf("gossip: seed %q: %w", seed, err)
	}
	if ip, err := netip.ParseAddr(host); err == nil { // LookupNetIP would drop its zone
		return []string{netip.AddrPortFrom(ip.Unmap(), port).String()}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("gossip: seed %q: %w", seed, err)
	}
	addrs := make([]string, 0, len(ips))
	for _, ip := range ips {
		addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), port).String())
	}
	return addrs, nil
}

func resolveSRV(ctx context.Context, name string) ([]string, error) {
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
	if err != nil {
		return nil, fmt.Errorf("gossip: seed %q: %w", name, err)
	}
	seeds := make([]string, len(records))
	for i, r := range records {
		seeds[i] = net.JoinHostPort(r.Target, strconv.Itoa(int(r.Port)))
	}
	return ResolveAll(ctx, seeds)
}

// ResolveAll resolves several seeds concurrently, because a name server may not answer for one of them until
// ctx is done. It fails if it finds no address.
func ResolveAll(ctx context.Context, seeds []string) ([]string, error) {
	found, errs := make([][]string, len(seeds)), make([]error, len(seeds))
	var wait sync.WaitGroup
	atOnce := make(chan struct{}, 64)
	for i, seed := range seeds {
		atOnce <- struct{}{}
		wait.Go(func() {
			found[i], errs[i] = Resolve(ctx, seed)
			<-atOnce
		})
	}
	wait.Wait()
	if addrs := slices.Concat(found...); len(addrs) > 0 {
		return addrs, nil
	}
	return nil, errors.Join(errs...)
}

// resolveOne resolves an address of this node itself.
func resolveOne(ctx context.Context, what, hostPort string) (netip.AddrPort, error) {
	host, port, err := splitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: %s %q: %w", what, hostPort, err)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), port), nil
	}
	if ip, err := netip.ParseAddr(host); err == nil { // LookupNetIP would drop its zone
		return netip.AddrPortFrom(ip.Unmap(), port), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: %s %q: %w", what, hostPort, err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), port), nil
}

func splitHostPort(s string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", p)
	}
	return host, uint16(n), nil
}
