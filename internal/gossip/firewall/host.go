package firewall

import (
	"net"
	"net/netip"
)

// hostOf returns what counts as one host: an address of IPv4, or a network of IPv6, since a
// host has as many addresses of its network as it wants.
func hostOf(ip netip.Addr) netip.Addr {
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip
	}
	network, _ := ip.Prefix(64) // fails for no address of IPv6
	return network.Addr()
}

// source returns the host of the other side of a connection.
func source(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return hostOf(at.Addr())
}
