package auditor

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// checkFleet checks what holds some time after the last fault.
func (a *Auditor) checkFleet(o *Observation) {
	changed := max(o.Disturbed, a.shifted)
	if changed != a.judged {
		a.judged, a.resting = changed, nil
	}
	for _, t := range a.resting {
		for _, b := range t.now.News {
			if len(b.Released)+len(b.Acquired)+len(b.Left)+len(b.Joined) > 0 {
				a.object("rest", "%s: %+v, %v after the last fault", t.now.ID, b, a.at-changed)
			}
		}
	}
	if a.resting != nil || a.at-changed < a.Settle {
		return
	}
	a.resting = []*track{}
	for _, group := range a.groups(o) {
		a.judge(group)
		a.resting = append(a.resting, group...)
	}
}

// groups returns the groups of nodes that all reach each other and no others. It returns none if some nodes are in no such
// group, or have a fault. A group without a seed may not know how to meet.
func (a *Auditor) groups(o *Observation) (groups [][]*track) {
	cut := make(map[Cut]bool, len(o.Cuts))
	for _, c := range o.Cuts {
		cut[c] = true
	}
	nodes := a.faultless(o)
	for _, t := range nodes {
		i := slices.IndexFunc(groups, func(g []*track) bool { return !cut[Cut{t.now.ID, g[0].now.ID}] })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	for _, g := range groups {
		for _, x := range nodes {
			apart := !slices.Contains(g, x)
			for _, y := range g {
				if cut[Cut{x.now.ID, y.now.ID}] != apart || cut[Cut{y.now.ID, x.now.ID}] != apart {
					return nil
				}
			}
		}
	}
	return slices.DeleteFunc(groups, func(g []*track) bool {
		return !slices.ContainsFunc(g, func(t *track) bool { return t.now.Seed })
	})
}

// faultless returns the nodes that are not stopped. It returns none if one of these has a fault, or if nodes that join wait
// for a seed that is stopped.
func (a *Auditor) faultless(o *Observation) (nodes []*track) {
	if o.Loss > mostLoss {
		return nil
	}
	for _, t := range a.running {
		switch {
		case t.stopped > 0 && t.now.Seed, t.twin != nil:
			return nil
		case t.stopped > 0:
		case t.disturbed(), t.answer == nil:
			return nil
		default:
			nodes = append(nodes, t)
		}
	}
	return nodes
}

// judge checks a group of nodes after a quiet time.
func (a *Auditor) judge(group []*track) {
	var ids []string
	for _, t := range group {
		ids = append(ids, t.now.ID)
	}
	slices.Sort(ids)
	first := group[0]
	for _, t := range group {
		var members []string
		for _, m := range t.answer.Members {
			members = append(members, m.ID)
		}
		id := t.now.ID
		a.agree(slices.Equal(members, ids), "%s has members %v, and %v run", id, members, ids)
		a.agree(slices.Equal(t.always.ids(), ids), "the batches of %s add up to members %v, and %v run", id, t.always.ids(), ids)
		a.agree(slices.Equal(slices.Sorted(maps.Keys(t.cordons)), slices.Sorted(maps.Keys(first.cordons))),
			"%s knows cordons %v, %s knows %v", id, t.cordons, first.now.ID, first.cordons)
		a.agree(a.Handoff == 0 || slices.Equal(t.now.Runs, t.answer.Owned), "%s runs %v, and owns %v", id, t.now.Runs, t.answer.Owned)
		few := len(group) < a.MinMembers
		a.agree(few == (t.answer.State == "isolated"), "%s is %s in a group of %d", id, t.answer.State, len(group))
		a.agree(few || !t.entering(), "%s is still %s", id, t.answer.State)
	}
	if len(group) >= a.MinMembers {
		a.judgeTables(group)
	}
}

func (a *Auditor) agree(holds bool, format string, args ...any) {
	if !holds {
		a.object("agree", format, args...)
	}
}

// judgeTables checks that the nodes have the table of those nodes that may own partitions, and own what it says.
func (a *Auditor) judgeTables(group []*track) {
	want, flapping, weighted := candidates(group)
	a.agree(flapping == 0 || 2*len(want) >= weighted, "%d of %d nodes are flapping, and %d may own partitions", flapping, weighted, len(want))
	first := group[0].answer.Table
	owns := make(map[string]set)
	for _, t := range group {
		table := t.answer.Table
		if table == nil || first == nil {
			a.agree(false, "%s or %s has no table", t.now.ID, group[0].now.ID)
			return
		}
		a.agree(slices.Equal(table.Owners, first.Owners), "%s and %s have different tables", t.now.ID, group[0].now.ID)
		a.agree(slices.Equal(table.Nodes, want), "%s: the candidates are %v, and should be %v", t.now.ID, table.Nodes, want)
		owns[t.now.ID] = t.mine
	}
	counts := make(map[string]int)
	for p, owner := range first.Owners {
		counts[owner]++
		for _, t := range group {
			a.agree(owns[t.now.ID][p] == (t.now.ID == owner), "partition %d belongs to %q, and %s owns %v", p, owner, t.now.ID, t.answer.Owned)
		}
	}
	if len(want) > 0 {
		a.agree(counts[""] == 0, "%d partitions have no owner", counts[""])
		a.judgeShares(want, counts)
	}
}

// candidates returns the nodes that may own partitions, how many nodes are flapping, and how many have a weight. If all
// candidates are cordoned, cordons have no effect.
func candidates(group []*track) (all []Node, flapping, weighted int) {
	var cordoned []Node
	for _, t := range group {
		p := t.now
		if t.flapping {
			flapping++
		}
		if p.Weight > 0 {
			weighted++
		}
		if p.Draining || p.Unhealthy || t.flapping || p.Weight == 0 {
			continue
		}
		if _, is := group[0].cordons[p.ID]; is {
			cordoned = append(cordoned, Node{p.ID, p.Weight})
		} else {
			all = append(all, Node{p.ID, p.Weight})
		}
	}
	if len(all) == 0 {
		all = cordoned
	}
	slices.SortFunc(all, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return all, flapping, weighted
}

// judgeShares checks that the nodes own partitions in proportion to their weights. By rendezvous, the number of a node's
// partitions varies like the number of heads of a coin, so the rule objects only to numbers that have a chance of less
// than one in a million.
func (a *Auditor) judgeShares(nodes []Node, counts map[string]int) {
	total := 0.0
	for _, n := range nodes {
		total += float64(n.Weight)
	}
	for _, n := range nodes {
		share := float64(n.Weight) / total
		fair := share * float64(a.Partitions)
		wrong := unlikely(float64(counts[n.ID])/float64(a.Partitions), share, a.Partitions)
		if a.Even {
			wrong = math.Abs(float64(counts[n.ID])-fair) > 1+1e-6
		}
		if wrong {
			a.object("shares", "%s owns %d partitions, and its fair share is %.1f", n.ID, counts[n.ID], fair)
		}
	}
}

// unlikely reports whether a coin that shows heads with the probability p shows a share of heads as far from p as this
// in less than one of a million times n throws, by the Chernoff bound.
func unlikely(share, p float64, n int) bool {
	part := func(share, p float64) float64 {
		if share == 0 {
			return 0
		}
		return share * math.Log(share/p)
	}
	return float64(n)*(part(share, p)+part(1-share, 1-p)) > math.Log(1e6)
}
