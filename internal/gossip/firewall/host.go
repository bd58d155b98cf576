package firewall

import "net/netip"

// HostOf returns what counts as one host: an address of IPv4, or a network of IPv6, since a
// host has as many addresses of its network as it wants.
func HostOf(ip netip.Addr) netip.Addr {
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip
	}
	network, _ := ip.Prefix(64) // fails for no address of IPv6
	return network.Addr()
}
