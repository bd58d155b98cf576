package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

// members checks whether there are nodes that own partitions, and other nodes that could take over.
func (e Examination) members() (found []Check) {
	is := make(map[string][]string)
	for _, m := range e.After.Members.Members {
		is[roleOf(m)] = append(is[roleOf(m)], string(m.ID))
	}
	owners, draining, settling := len(is["active"]), is["draining"], is["settling"]
	total := len(e.After.Members.Members)
	found = e.idle(is["weightless"])
	switch {
	case e.After.Members.Stale:
		found = append(found, Check{Name: "members", Finding: fmt.Sprintf("not checked: these are only the last %d members that it knew", total)})
	case e.After.Stats.Isolated(): // other isolated nodes report that they are settling
		found = append(found, Check{
			Name: "members", Finding: fmt.Sprintf("it sees %s, but does not know the owners, because it is isolated", plural(total, "member")),
		})
	case owners == 0 && len(settling) > 0:
		found = append(found, Check{
			"members", Warn, "no node owns anything yet; settling: " + few(settling),
			"lookups fail until a node is active; this is normal for a moment when all nodes start together",
			"look again in ten seconds; if it persists, read the reason in the logs of these nodes",
		})
	case owners == 0:
		found = append(found, Check{
			"members", Fail, fmt.Sprintf("no node of %s may own anything; draining: %s", plural(total, "member"), cmp.Or(few(draining), "-")),
			"every lookup fails", "run roost undrain or roost weight 100 at the agent of one of them, or make the health check of one of them pass",
		})
	case total == 1 && len(found) == 0 && e.findSeeds().none(): // otherwise the check seeds reports which nodes are missing
		found = append(found, Check{
			"members", Warn, "this node is alone", "no other node can take over", "start other nodes with --join " + e.After.Stats.Settings.Addr,
		})
	case len(found) == 0:
		found = []Check{{Name: "members", Finding: fmt.Sprintf("%d of %d own partitions; draining: %s", owners, total, cmp.Or(few(draining), "none"))}}
	}
	return found
}

// roleOf returns the state of a member. If the member owns nothing for another reason, roleOf returns that
// reason.
func roleOf(m report.Member) string {
	if m.State == lease.Active && m.Weight == 0 {
		return "weightless"
	}
	return m.Condition()
}

// group is a list of nodes with the same problem.
type group struct {
	nodes           []string
	what, means, do string
}

// idle warns about nodes that own nothing or get no rooms, because their operator may have forgotten them.
func (e Examination) idle(weightless []string) (found []Check) {
	var cordoned, spared, flapping []string
	for _, v := range e.After.Members.Cordons {
		cordoned = append(cordoned, string(v.ID))
	}
	if e.After.Members.Spared {
		cordoned, spared = nil, cordoned
	}
	shared := e.shared()
	for _, m := range e.After.Members.Members {
		if m.FlappingMS > 0 && shared[m.ID] == "" {
			flapping = append(flapping, fmt.Sprintf("%s%s, for another %s", m.ID, e.crashes(m.ID), short(ms(m.FlappingMS).Round(time.Second))))
		}
	}
	lost, most := e.lost()
	for i, w := range append(lost, []group{
		{
			slices.Sorted(maps.Values(shared)), "two processes with one id: ",
			"the second one started while the first one was live, and stopped it; if a supervisor restarts the first one, they take turns",
			"give one of them another --id. If one of them has stopped, start it only with its new --id. If it is one node that has moved to the second address, do nothing: this ends after 10 minutes",
		},
		{
			e.comesAndGoes(shared), "comes and goes: ", "each time its partitions move away and back; roost history has the times",
			"see why its process ends or its network fails: its log, that of its supervisor, and its memory limit; until then roost drain, or roost cordon ID --for 1h, keeps it out",
		},
		{
			e.streamsAlone(), "heard only over TCP: ",
			"they try to join, but own nothing: UDP does not get through in both directions between them and this node",
			"check that other nodes can reach the address in their --advertise, and that firewalls let UDP through in both directions; then they join by themselves",
		},
		{
			e.settling(), "settling, and owning nothing: ",
			"this node hears them, but they do not take part: they are fenced, or no packets reach them; after a start, this takes a second",
			"run roost doctor at their own agents, or roost doctor --all here",
		},
		{
			e.unhealthy(), "unhealthy: ", "their applications fail their health checks, have not passed the first one yet, or have stopped reporting, so these nodes own nothing",
			"run roost doctor at their own agents, or roost doctor --all here: their check ready says why",
		},
		{spared, "cordoned without effect: ", "no other member could own anything", "start or undrain another node"},
		{
			cordoned, "cordoned: ", "they own nothing until the cordon ends: roost members shows when and why",
			"nothing, as long as the reason exists; to end the cordon, run roost uncordon ID",
		},
		{
			flapping, "flapping: ", fmt.Sprintf("they were lost and came back three times or more within %s (ten TTLs), and own nothing until they have stayed for a while",
				short(ms(10*e.After.Stats.Settings.TTLMS))),
			"find out why their processes stop or their network fails: roost history says whether they crashed or expired, and their logs and exit codes say why; once a node is fixed, roost leave and a new start end the wait",
		},
		{
			e.mute(), "a capacity, but no load: ", "they get rooms only as owners, and each agent counts only the rooms that it placed on them itself",
			"start their agents with --report-load, or post their load to /v1/load",
		},
		{
			weightless, "with weight 0: ", "they are active, but own nothing",
			"run roost weight 100 --addr AGENT for each of their agents; to take a node out of service for a while, prefer roost drain",
		},
	}...) {
		verdict := Warn
		if most && i < len(lost) {
			verdict = Fail
		}
		if len(w.nodes) > 0 {
			found = append(found, Check{"members", verdict, w.what + few(w.nodes), w.means, w.do})
		}
	}
	return found
}

// outnumbered reports whether most members are lost and nobody has replaced them. It is true if less than half is left
// of the largest cluster of the last half hour. The number of lost members is not enough, because it also counts nodes
// that were killed one after another and replaced each time.
func (e Examination) outnumbered(lost int) bool {
	live, most := len(e.After.Members.Members), 0
	for _, s := range e.After.History.Samples {
		most = max(most, s.Members)
	}
	return lost > live && most > 2*live
}

// streamsAlone returns the nodes that try to join but reach this node only over TCP, with their addresses.
func (e Examination) streamsAlone() (found []string) {
	alone := e.After.Members.StreamsAlone
	for _, id := range slices.Sorted(maps.Keys(alone)) {
		found = append(found, fmt.Sprintf("%s at %s", id, alone[id]))
	}
	return found
}

// settling returns the nodes that were settling at both looks while other nodes owned partitions, if the reason is
// unknown. If no member is active, for example because the nodes are isolated, settling returns nothing.
func (e Examination) settling() (ids []string) {
	before := make(map[lease.NodeID]bool)
	for _, m := range e.Before.Members.Members {
		before[m.ID] = m.State == lease.Settling
	}
	owned := false
	for _, m := range e.After.Members.Members {
		owned = owned || roleOf(m) == "active"
		if _, known := e.After.Members.StreamsAlone[m.ID]; m.State == lease.Settling && before[m.ID] && m.ID != e.After.Members.Self && !known {
			ids = append(ids, string(m.ID))
		}
	}
	if !owned {
		return nil
	}
	return ids
}

// unhealthy returns the other nodes whose applications are unhealthy. The check ready reports this node.
func (e Examination) unhealthy() (ids []string) {
	for _, m := range e.After.Members.Members {
		if m.Unhealthy && m.ID != e.After.Members.Self {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}

// restartWindow is how far back the checks shared and comesAndGoes look for restarts.
const restartWindow = 10 * time.Minute

// shared finds ids that two processes at different addresses use, and returns the addresses. Either two processes take
// turns, or a node moved without stopping first. In both cases, a process started while the other process was live.
func (e Examination) shared() map[lease.NodeID]string {
	found := make(map[lease.NodeID]string)
	h := e.After.History
	for _, v := range h.Events {
		if v.Kind == cluster.EventReturned && v.OldAddr != "" && h.Now.Sub(v.At) <= restartWindow {
			found[v.Member] = fmt.Sprintf("%s at %s and at %s", v.Member, v.OldAddr, v.Addr)
		}
	}
	return found
}

// comesAndGoes returns the nodes that stopped at least three times within restartWindow without leaving.
// comesAndGoes omits flapping nodes and the ids in shared, because other checks report those.
func (e Examination) comesAndGoes(shared map[lease.NodeID]string) (found []string) {
	const window, least = restartWindow, 3
	h := e.After.History
	ends, last := make(map[lease.NodeID]int), make(map[lease.NodeID]time.Time)
	for _, v := range h.Events {
		lost := v.Kind == cluster.EventLost || (v.Kind == cluster.EventReturned && v.Reason != "")
		if lost && v.Reason != string(lease.Departed) && v.Member != "" && h.Now.Sub(v.At) <= window {
			ends[v.Member]++
			last[v.Member] = v.At
		}
	}
	for _, m := range e.After.Members.Members {
		if m.FlappingMS > 0 {
			delete(ends, m.ID)
		}
	}
	maps.DeleteFunc(ends, func(id lease.NodeID, _ int) bool { return shared[id] != "" })
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		if ends[id] >= least {
			found = append(found,
				fmt.Sprintf("%s, ended %d times within %s, the last %v ago", id, ends[id], short(window), h.Now.Sub(last[id]).Round(time.Second)))
		}
	}
	return found
}

// crashes returns how often a member has crashed within restartWindow, as text.
func (e Examination) crashes(id lease.NodeID) string {
	n, h := 0, e.After.History
	for _, v := range h.Events {
		if v.Member == id && v.Reason == string(lease.Crashed) && h.Now.Sub(v.At) <= restartWindow {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (crashed %s within %s)", times(n), short(restartWindow))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// mute returns the nodes that specify a capacity but report no load. If this agent pins no rooms, mute returns nothing,
// because capacity and load matter only for rooms.
func (e Examination) mute() (ids []string) {
	before := make(map[lease.NodeID]bool)
	for _, m := range e.Before.Members.Members {
		before[m.ID] = m.NoLoad
	}
	for _, m := range e.After.Members.Members {
		if e.After.Stats.Rooms != nil && m.State == lease.Active && m.Capacity > 0 && m.NoLoad && before[m.ID] {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}
