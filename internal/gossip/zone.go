package gossip

import (
	"fmt"
	"net/netip"
)

// An IPv6 link-local address needs a zone, which is the name of an interface of this host, as in
// fe80::1%eth0. On another host, the same link has a different name. So nodes do not send zones to other
// nodes. A node that is bound to a link-local address reaches all other link-local addresses over its own
// link. The address of a seed can contain a different zone.

// linkLocal returns an error if an advertised address is link-local and other nodes could not use it.
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

// withoutZone returns an ip:port without its zone, because memberlist cannot parse zones.
func withoutZone(addr string) string {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr
	}
	return netip.AddrPortFrom(at.Addr().WithZone(""), at.Port()).String()
}
