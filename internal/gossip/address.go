package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Other nodes reach a node at its advertised address. This address is either configured or guessed. A node
// that listens on all addresses of its host advertises the address from which the host reaches the seeds.

// ErrLoopback means that this node advertises a loopback address, but its seeds are on other hosts.
var ErrLoopback = errors.New("it is a loopback address, at which other hosts do not reach this node")

const setAdvertise = "set Advertise (--advertise HOST:PORT) to the address at which other nodes reach this one"

// lookupTime is how long a starting node waits for the names of its seeds to resolve. A joining node looks up
// the names again.
const lookupTime = 2 * time.Second

// Usable reports whether ip is the address of a single host to which other hosts can send.
func Usable(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsGlobalUnicast() || ip.IsLoopback() || ip.IsLinkLocalUnicast()
}

// own is the advertised address.
type own struct {
	at      netip.AddrPort
	setting string // name of the setting with the address; "" = the address is guessed
	had     bool   // this host had the address at the start, which is not the case behind NAT
}

// ownAddress determines the address to advertise. If the result has port 0, the node advertises the port to
// which it is bound.
func (cfg *Config) ownAddress(ctx context.Context, bind netip.AddrPort, h host) (own, error) {
	o := own{at: bind, setting: "Bind (--bind)"}
	switch {
	case cfg.Advertise != "":
		at, err := resolveOne(ctx, "advertise", cfg.Advertise)
		if err != nil {
			return own{}, err
		}
		if !Usable(at.Addr()) {
			return own{}, fmt.Errorf("gossip: advertise %q: %s is not the address of one host: %s", cfg.Advertise, at.Addr(), setAdvertise)
		}
		if err := linkLocal(bind.Addr(), at.Addr()); err != nil {
			return own{}, err
		}
		o = own{at: at, setting: "Advertise (--advertise)"}
	case bind.Addr().IsUnspecified():
		ip, err := cfg.guess(ctx, h)
		if err != nil {
			return own{}, fmt.Errorf("gossip: bind %q: %w: %s", cfg.Bind, err, setAdvertise)
		}
		o = own{at: netip.AddrPortFrom(ip, 0)}
	}
	if o.at.Addr().IsLoopback() && o.setting != "" {
		if err := h.reachedBy(o.at, append(addrPorts(cfg.Seeds), cfg.lookUp(ctx)...)); err != nil {
			return own{}, err
		}
	}
	has, err := h.has(o.at.Addr())
	o.had = has && err == nil
	return o, nil
}

// guess returns the address to advertise. It resolves seed names only if the configured addresses of seeds
// are not enough, because a name server may not answer.
func (cfg *Config) guess(ctx context.Context, h host) (netip.Addr, error) {
	seeds := addrPorts(cfg.Seeds)
	if len(h.sources(seeds)) == 0 {
		seeds = append(seeds, cfg.lookUp(ctx)...)
	}
	return h.guess(seeds)
}

// lookUp returns the addresses of those seed names that resolve within lookupTime.
func (cfg *Config) lookUp(ctx context.Context) []netip.AddrPort {
	if cfg.LookUp == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return addrPorts(cfg.LookUp(ctx))
}

func addrPorts(texts []string) (all []netip.AddrPort) {
	for _, text := range texts {
		if at, err := netip.ParseAddrPort(text); err == nil {
			all = append(all, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		}
	}
	return all
}

// reachedBy returns an error if this node advertises a loopback address but all other nodes are on other hosts, so that
// they cannot reach this node. It ignores loopback addresses with the port of this node, because they probably lead to
// this node itself.
func (h host) reachedBy(at netip.AddrPort, others []netip.AddrPort) error {
	var elsewhere netip.AddrPort
	for _, other := range others {
		switch here, err := h.has(other.Addr()); {
		case !other.Addr().IsLoopback() && !here && err == nil:
			elsewhere = other
		case !other.Addr().IsLoopback() || other.Port() != at.Port():
			return nil
		}
	}
	if !elsewhere.IsValid() {
		return nil
	}
	return fmt.Errorf("gossip: own address %s: %w, but %s is on another host: set Bind (--bind) to 0.0.0.0:%d or to an address of this host, or %s",
		at, ErrLoopback, elsewhere, at.Port(), setAdvertise)
}

// Locate looks for a better address for a node that other nodes may not be able to reach. The caller passes
// the ip:port of nodes that do not answer. Locate returns the ip:port to advertise from now on. The returned
// address only differs from the current address if the current address is a guess. The error is the reason
// why other nodes cannot reach this node at the returned address, or nil if the reason is not known.
func (n *Node) Locate(reach []string) (addr string, err error) {
	if n.host.addrs == nil {
		return n.Addr(), nil // the network is simulated
	}
	return n.own.Load().locate(n.host, addrPorts(reach))
}

func (o *own) locate(h host, reach []netip.AddrPort) (addr string, err error) {
	has, err := h.has(o.at.Addr())
	if err != nil {
		has = true // it is not known
	}
	switch {
	case o.setting == "":
		at, err := o.guessAgain(h, reach, has)
		return at.String(), err
	case o.at.Addr().IsLoopback():
		return o.at.String(), h.reachedBy(o.at, reach)
	case o.had && !has:
		return o.at.String(),
			fmt.Errorf("this host no longer has %s, to which %s is set: set it to an address that the host has, and restart this node",
				o.at.Addr(), o.setting)
	}
	return o.at.String(), nil
}

// guessAgain keeps the current address if the host still has it and reaches some of the other nodes from it. The host
// must also reach some of the other nodes from a new address. Otherwise a host that briefly loses its regular address
// could switch to the address of a tunnel.
func (o *own) guessAgain(h host, reach []netip.AddrPort, has bool) (netip.AddrPort, error) {
	sources := h.sources(reach)
	if has && !h.bridges(o.at.Addr()) { // don't switch to a bridge because its containers are gone
		sources = slices.DeleteFunc(sources, h.bridges)
	}
	switch {
	case has && (len(sources) == 0 || slices.Contains(sources, o.at.Addr())):
		return o.at, nil
	case len(sources) > 0:
		return netip.AddrPortFrom(mostOf(sources), o.at.Port()), nil
	case len(reach) == 0:
		if found, err := h.outward(); err == nil {
			return netip.AddrPortFrom(found, o.at.Port()), nil
		}
	}
	return o.at, fmt.Errorf("this host no longer has %s, and no other address from which it reaches the other nodes", o.at.Addr())
}

// host provides what the operating system knows about the addresses of this host.
type host struct {
	source func(to netip.AddrPort) (netip.Addr, error) // returns the address from which the host sends to an address
	addrs  func() ([]hostAddr, error)
}

type hostAddr struct {
	ip     netip.Addr
	up     bool // its interface is up
	bridge bool // its interface is a bridge, such as docker0, which has the same address on many hosts
}

func thisHost() host { return host{source: sourceTo, addrs: hostAddrs} }

// has reports whether this host has the given address.
func (h host) has(ip netip.Addr) (bool, error) {
	all, err := h.addrs()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(a hostAddr) bool { return a.ip == ip.Unmap().WithZone("") }), nil
}

// sources returns the addresses from which this host sends to seeds on other hosts. If all seeds are on this
// host, it returns their addresses, except those of bridges.
func (h host) sources(seeds []netip.AddrPort) []netip.Addr {
	var others, itself []netip.Addr
	for _, seed := range seeds {
		ip, err := h.source(seed)
		switch {
		case err != nil, !ip.IsGlobalUnicast():
		case ip != seed.Addr():
			others = append(others, ip)
		case !h.bridges(ip):
			itself = append(itself, ip)
		}
	}
	if len(others) > 0 {
		return others
	}
	return itself
}

func (h host) bridges(ip netip.Addr) bool {
	all, _ := h.addrs()
	return slices.ContainsFunc(all, func(a hostAddr) bool { return a.bridge && a.ip == ip })
}

// guess returns the address at which other nodes reach this host. It prefers the address from which this host
// sends to most seeds, then the address from which it sends to the default gateway, and then any other
// address except those of bridges. In case of a tie, it prefers IPv4.
func (h host) guess(seeds []netip.AddrPort) (netip.Addr, error) {
	if sources := h.sources(seeds); len(sources) > 0 {
		return mostOf(sources), nil
	}
	far := slices.DeleteFunc(slices.Clone(seeds), func(s netip.AddrPort) bool { return s.Addr().IsLoopback() })
	ip, err := h.outward()
	switch {
	case err != nil && len(far) == 0 && len(seeds) > 0:
		return h.source(seeds[0]) // all nodes are on this host, which has no network
	case err != nil:
		return netip.Addr{}, err
	case len(far) > 0 && !slices.ContainsFunc(far, func(s netip.AddrPort) bool { return s.Addr().Is4() == ip.Is4() }):
		return netip.Addr{}, fmt.Errorf("this host has no route to the seed %s, and its own address %s is of another family", far[0], ip)
	}
	return ip, nil
}

// mostOf returns the address from which this host sends to most seeds.
func mostOf(sources []netip.Addr) netip.Addr {
	return slices.MaxFunc(sources, func(a, b netip.Addr) int { return votes(sources, a) - votes(sources, b) })
}

// votes returns twice the number of seeds that this host reaches from an address. It adds one for an IPv4
// address, so that IPv4 wins a tie.
func votes(sources []netip.Addr, ip netip.Addr) (n int) {
	for _, s := range sources {
		if s == ip {
			n += 2
		}
	}
	if ip.Is4() {
		n++
	}
	return n
}

// outward returns the address from which this host sends to the default gateway. If there is no gateway, it
// returns any address except those of bridges.
func (h host) outward() (netip.Addr, error) {
	for _, anywhere := range []string{"192.0.2.1:7946", "[2001:db8::1]:7946"} { // addresses for documentation
		if ip, err := h.source(netip.MustParseAddrPort(anywhere)); err == nil && ip.IsGlobalUnicast() {
			return ip, nil
		}
	}
	all, err := h.addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("this host has no default gateway, and its addresses are not known: %w", err)
	}
	var bridges []string
	slices.SortStableFunc(all, func(a, b hostAddr) int { return a.ip.BitLen() - b.ip.BitLen() })
	for _, a := range all {
		switch {
		case !a.up, !a.ip.IsGlobalUnicast():
		case a.bridge:
			bridges = append(bridges, a.ip.String())
		default:
			return a.ip, nil
		}
	}
	if len(bridges) > 0 {
		return netip.Addr{},
			fmt.Errorf("this host has no default gateway, and no addresses but those of bridges (%s), at which other hosts do not reach it",
				strings.Join(bridges, ", "))
	}
	return netip.Addr{}, errors.New("this host has no address but loopback ones")
}

// sourceTo returns the address from which this host sends to another address. To find out, it connects a UDP
// socket, which does not send a packet.
func sourceTo(to netip.AddrPort) (netip.Addr, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = conn.Close() }()
	at, err := netip.ParseAddrPort(conn.LocalAddr().String())
	return at.Addr().Unmap(), err
}

func hostAddrs() (all []hostAddr, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just disappeared
		}
		for _, a := range addrs {
			if network, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(network.IP); ok {
					all = append(all, hostAddr{ip: ip.Unmap(), up: i.Flags&net.FlagUp != 0, bridge: bridge(i.Name)})
				}
			}
		}
	}
	return all, nil
}

// bridge reports whether a Linux network interface is a bridge.
func bridge(name string) bool {
	_, err := os.Stat("/sys/class/net/" + name + "/bridge")
	return err == nil
}
