package gossip

import (
	"fmt"
	"net/netip"
)

// A link-local address of IPv6 needs a zone, which names an interface of this host: fe80::1%eth0. On another host the
// same link has another name. So no node tells its zone to others, and a node that is bound to a link-local
// address reaches all other such addresses over its own link. A seed can have a zone of its own.

// linkLocal returns the problem of an advertised address that is link-local, or nil.
func linkLocal(bind, adv netip.Addr) error {
	switch {
	case !adv.Is6() || !adv.IsLinkLocalUnicast():
		return nil
	case adv.Zone() != "":
		return fmt.Errorf("gossip: advertised address %v: %%%s is the name of an interface of this host, which means nothing to other nodes: leave it out",
			adv, adv.Zone())
	case bind.Zone() == "":
		return fmt.Errorf("gossip: advertised address %v: it is link-local, and nodes that are bound to %v do not reach one another by such addresses: bind to it, with its zone as in [%v%%eth0]:7946, or advertise another one",
			adv, bind, adv)
	}
	return nil
}

// withoutZone returns an ip:port without its zone, which memberlist cannot parse.
func withoutZone(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	return netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()).String()
}
