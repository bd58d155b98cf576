package routinggrpc

import (
	"context"

	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/events"
)

// Table maps keys to the addresses of their owners: see [FromClient] and [TableOf].
type Table struct {
	place     func(key string) (addr string, err error)
	owners    func(key string, n int) []string // the first is the owner in the table
	addrs     func() []string                  // addresses of all members
	subscribe func(context.Context) <-chan events.Batch
}

// Lookups is the interface that *routing.Client and *cluster.Agent have in common.
type Lookups[Member any] interface {
	Place(key string) (Member, error)
	Owners(key string, n int) []Member
	Members() []Member
	Subscribe(ctx context.Context) <-chan events.Batch
}

// FromClient returns the table of a routing client, with the api_addr of each member.
func FromClient(c *routing.Client) Table {
	return TableOf(c, func(m *routing.Member) string { return m.APIAddr })
}

// TableOf returns the table of an agent or of a routing client. addr returns the host:port of a member's gRPC
// server, or "" if the member has no gRPC server:
//
//	routinggrpc.TableOf(agent, func(m *cluster.Member) string { return m.APIAddr })
func TableOf[Member any](t Lookups[Member], addr func(Member) string) Table {
	addrs := func(members []Member) []string {
		all := make([]string, len(members))
		for i, m := range members {
			all[i] = addr(m)
		}
		return all
	}
	return Table{
		place: func(key string) (string, error) {
			m, err := t.Place(key)
			if err != nil {
				return "", err
			}
			return addr(m), nil
		},
		owners:    func(key string, n int) []string { return addrs(t.Owners(key, n)) },
		addrs:     func() []string { return addrs(t.Members()) },
		subscribe: t.Subscribe,
	}
}
