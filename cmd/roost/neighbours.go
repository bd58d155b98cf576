package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// members tells whether there is anybody to own, and to take over.
func (e examination) members() []check {
	is := make(map[string][]string)
	for _, m := range e.after.members.Members {
		role := m.State.String()
		if m.State == lease.Active && m.Weight == 0 {
			role = "weightless"
		}
		is[role] = append(is[role], string(m.ID))
	}
	owners, zero, draining, settling := len(is["active"]), is["weightless"], is["draining"], is["settling"]
	total := len(e.after.members.Members)
	var found []check
	if len(zero) > 0 {
		found = append(found, check{
			"members", warned, "of weight 0: " + few(zero), "they are active and own nothing",
			"roost weight 100 --addr AGENT, at their own agents; to take one out for a while, roost drain says so more clearly",
		})
	}
	switch {
	case owners == 0 && len(settling) > 0:
		found = append(found, check{
			"members", warned, "nobody owns anything yet; settling: " + few(settling), "look-ups fail until then; it is so for a moment when all start together",
			"ask again in ten seconds; if it stays so, their logs say why",
		})
	case owners == 0:
		found = append(found, check{
			"members", failed, fmt.Sprintf("none of %s may own anything; draining: %s", plural(total, "member"), orDash(few(draining))),
			"every look-up fails", "roost undrain, or roost weight 100, at one of them",
		})
	case total == 1:
		found = append(found, check{
			"members", warned, "this node is alone", "if it goes, nobody takes over", "start others with --join " + e.after.stats.Settings.Addr,
		})
	case len(found) == 0:
		found = []check{{Name: "members", Finding: fmt.Sprintf("%d of %d own; draining: %s", owners, total, orDash(few(draining)))}}
	}
	return found
}

// seeds looks for those that are no members. What a name stands for is not asked:
// this machine may not be the agent's.
func (e examination) seeds() check {
	present, missing, names := e.sortSeeds()
	alone, none := len(e.after.members.Members) < 2, len(present)+len(missing)+len(names) == 0
	const itself = "it forms a cluster of its own, and believes that it owns every key"
	switch {
	case alone && len(missing) > 0:
		return check{
			"seeds", failed, "alone, although it was told to join " + few(append(missing, names...)), itself,
			"see whether they run, are reached by UDP and TCP, and have the same --cluster, --key-file and settings; its log says what they answer. It tries again by itself",
		}
	case alone && len(names) > 0:
		return check{
			"seeds", warned, "alone, and told to join " + few(names), itself,
			"nothing if no other node stands behind these names, which were not looked up; else see its log for what they answer",
		}
	case len(missing) > 0:
		return check{
			"seeds", warned, "no live member at " + few(missing), "one way less into the cluster, and out of a long split",
			"start them, or put others into --join",
		}
	case none && !alone:
		return check{
			"seeds", warned, "it has none but itself", "after a split of more than a minute it does not look for the others, and a restart begins a cluster of its own",
			"start it with --join, with two or three addresses that are likely to be up",
		}
	case none:
		return check{Name: "seeds", Finding: "none are given, and there is nobody to find"}
	case len(names) > 0:
		return check{Name: "seeds", Finding: fmt.Sprintf("it knows others; names were not looked up: %s", few(names))}
	}
	return check{Name: "seeds", Finding: "all of them are members: " + few(present)}
}

// sortSeeds tells seeds that are members from others. All nodes may be given the
// same list: the agent itself is left out.
func (e examination) sortSeeds() (present, missing, names []string) {
	s := e.after.stats.Settings
	for _, seed := range s.Join {
		addr, err := netip.ParseAddrPort(seed)
		switch {
		case err != nil:
			names = append(names, printable(seed))
		case same(s.Addr, addr):
		case slices.ContainsFunc(e.after.members.Members, func(m clusterhttp.Member) bool { return same(m.Addr, addr) }):
			present = append(present, seed)
		default:
			missing = append(missing, seed)
		}
	}
	return present, missing, names
}

func same(addr string, as netip.AddrPort) bool {
	a, err := netip.ParseAddrPort(addr)
	return err == nil && a.Addr().Unmap() == as.Addr().Unmap() && a.Port() == as.Port()
}
