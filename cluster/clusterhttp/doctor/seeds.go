package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

// seeds warns about seeds that are not members. seeds does not resolve host names, because this machine may
// resolve them differently than the agent's machine.
func (e Examination) seeds() Check {
	f := e.findSeeds()
	alone := len(e.After.Members.Members) < 2
	itself, prevent := "it forms its own cluster, and assumes that it owns every key", ""
	switch {
	case e.After.Stats.Isolated():
		itself = "it cannot find the other nodes, and owns nothing without them"
	case e.After.Stats.Settings.MinMembers < 2:
		prevent = ". With --min-members 2, a node that finds no other node owns nothing"
	}
	switch {
	case alone && len(f.lost)+len(f.missing) > 0:
		return Check{
			"seeds", Fail, "alone, although it should join " + few(slices.Concat(f.lost, f.missing, f.names)), itself,
			"check that they run, are reachable over UDP and TCP, and have the same --cluster, --key-file and settings; its log has their answers. It keeps trying" + prevent,
		}
	case alone && len(f.names) > 0:
		return Check{
			"seeds", Warn, "alone, and its --join is " + few(f.names), itself,
			"nothing if these names, which doctor did not look up, mean only this node; if not, its log has the answers of the other nodes" + prevent,
		}
	case len(f.missing) > 0:
		return Check{
			"seeds", Warn, "no live member at " + few(f.missing), "the node has one seed less through which to join, and to merge after a long split",
			"start these nodes, or put other nodes into --join",
		}
	case f.none() && !alone:
		return e.seedless()
	case f.none():
		return Check{Name: "seeds", Finding: "it has none, and there is no other node"}
	}
	return Check{Name: "seeds", Finding: f.String()}
}

// isShared reports whether a process whose id another process has taken was at an address.
func (e Examination) isShared(addr string) bool {
	return slices.ContainsFunc(e.After.History.Events, func(v report.Event) bool {
		return v.OldAddr == addr && e.shared()[v.Member] != ""
	})
}

// seedless warns about an agent that has other members but no seeds. In a cluster of two nodes, an agent without seeds
// is fine, because the other node has this agent as its seed. Nodes on one machine also need no seeds, because such a
// cluster is only a test.
func (e Examination) seedless() Check {
	const restart = "after a restart, it forms its own cluster and owns every key, until another node tries this address again"
	addr, err := netip.ParseAddrPort(e.After.Stats.Settings.Addr)
	switch {
	case len(e.After.Members.Members) == 2:
		return Check{
			Name:    "seeds",
			Finding: "it has none; the other node may have this node as its seed. Once there is a third node, start all nodes with --join",
		}
	case err == nil && addr.Addr().IsLoopback():
		return Check{Name: "seeds", Finding: "it has none, so " + restart + ". If nodes run on other machines, start all nodes with --join"}
	}
	return Check{
		"seeds", Warn, "it has none except itself", restart,
		"give it a --join with two or three addresses that are usually up; if they are in its --config file, SIGHUP is enough",
	}
}

// foundSeeds has the seeds of an agent except the agent itself. The configured list can include the agent,
// because all nodes may have the same list.
type foundSeeds struct {
	present []string // seeds at the addresses of members
	lost    []string // seeds at the addresses of lost members, which the check members reports
	taken   []string // seeds at the addresses of processes whose ids others have taken, which another check reports
	missing []string
	names   []string
}

func (f foundSeeds) none() bool {
	return len(f.present)+len(f.lost)+len(f.taken)+len(f.missing)+len(f.names) == 0
}

// String describes the seeds. Call String only if no seed is missing.
func (f foundSeeds) String() string {
	var parts []string
	for _, p := range []struct {
		text  string
		seeds []string
	}{{"members: ", f.present}, {"lost members: ", f.lost}, {"another process took the node's id: ", f.taken}, {"names, not looked up: ", f.names}} {
		if len(p.seeds) > 0 {
			parts = append(parts, p.text+few(p.seeds))
		}
	}
	if len(parts) == 1 && len(f.present) > 0 {
		return "all of them are " + parts[0]
	}
	return strings.Join(parts, "; ")
}

func (e Examination) findSeeds() (f foundSeeds) {
	s, m := e.After.Stats.Settings, e.After.Members
	for _, seed := range s.Join {
		addr, err := netip.ParseAddrPort(seed)
		switch {
		case err != nil:
			f.names = append(f.names, seed)
		case same(s.Addr, addr):
		case slices.ContainsFunc(m.Members, func(m report.Member) bool { return same(m.Addr, addr) }):
			f.present = append(f.present, seed)
		case slices.ContainsFunc(m.Lost, func(l report.Lost) bool { return l.Reason != lease.Departed && same(l.Addr, addr) }):
			f.lost = append(f.lost, seed)
		case e.isShared(seed):
			f.taken = append(f.taken, seed)
		default:
			f.missing = append(f.missing, seed)
		}
	}
	return f
}

func same(addr string, as netip.AddrPort) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap() == as.Addr().Unmap() && a.Port() == as.Port()
}
