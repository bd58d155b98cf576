package cluster

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/internal/release"
	"github.com/roost-cluster/roost/lease"
)

// record returns the record with which this node starts.
func (c Config) record(addr string, incarnation uint64) lease.Record {
	return lease.Record{
		Profile: lease.Profile{
			ID: lease.NodeID(c.ID), Incarnation: incarnation, Addr: addr, APIAddr: c.APIAddr, Zone: c.Zone,
			Weight: c.Weight, Capacity: c.Capacity, Labels: c.Labels, RoostVersion: release.Name(), AppVersion: c.AppVersion,
		},
		Version: 1, Keys: printsOf(c.keys()), HTTP: c.served(addr), Meta: c.Meta,
	}
}

// served returns the port and TLS flag of the HTTP API in the format of a record. served returns 0 if the API
// does not listen on the host of addr.
func (c Config) served(addr string) uint32 {
	advertised, err := netip.ParseAddrPort(addr)
	listens, err2 := netip.ParseAddrPort(c.HTTPAddr)
	if err != nil || err2 != nil || !listens.Addr().IsUnspecified() && listens.Addr().Unmap() != advertised.Addr().Unmap() {
		return 0
	}
	if c.HTTPTLS {
		return 2*uint32(listens.Port()) + 1
	}
	return 2 * uint32(listens.Port())
}

// HTTP returns the URL of the member's HTTP API. HTTP returns "" if the member has no API that other hosts
// can reach: see Config.HTTPAddr. A malicious member can announce any port, so be careful with secrets in
// requests to this URL.
func (m *Member) HTTP() string {
	host, _, err := net.SplitHostPort(m.Addr)
	if m.http < 2 || err != nil {
		return ""
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.FormatUint(uint64(m.http/2), 10))}
	if m.http%2 == 1 {
		u.Scheme = "https"
	}
	return u.String()
}

// core returns the configuration of the core.
func (c Config) core(g *gossip.Node, incarnation uint64) node.Config {
	addrs, names := c.seeds()
	var forget time.Duration
	if c.Split == SplitMajority {
		forget = c.SplitForget
	}
	return node.Config{
		Self:               c.record(g.Addr(), incarnation),
		Settings:           settingsOf(c).hash(),
		Partitions:         c.Partitions,
		Strategy:           c.Strategy,
		HeartbeatInterval:  c.HeartbeatInterval,
		LeaseTTL:           c.LeaseTTL,
		MaxSkew:            c.MaxSkew,
		Debounce:           c.Debounce,
		StartupGrace:       c.StartupGrace,
		RejoinInterval:     c.RejoinInterval,
		GossipInterval:     c.GossipInterval,
		GossipNodes:        c.GossipNodes,
		PacketBytes:        g.Budget(),
		Seeds:              addrs,
		SeedNames:          names,
		Bootstrap:          c.Bootstrap,
		SlowStart:          c.SlowStart,
		AutoWeight:         c.AutoWeight,
		StartDraining:      c.StartDraining,
		MinMembers:         c.MinMembers,
		SplitForget:        forget,
		DisableFlapDamping: c.DisableFlapDamping,
		Checked:            c.Health != nil,
		Handoff:            c.Handoff,
	}
}
