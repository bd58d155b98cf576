package firewall

import (
	"net"
	"net/netip"
)

// hostOf returns the address that identifies a host. This is an IPv4 address or an IPv6 /64 network, because
// an IPv6 host can use any number of addresses in its network.
func hostOf(ip netip.Addr) netip.Addr {
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip
	}
	network, _ := ip.Prefix(64) // cannot fail for an IPv6 address
	return network.Addr()
}

// source returns the host on the other side of a connection, as returned by hostOf.
func source(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return hostOf(at.Addr())
}
