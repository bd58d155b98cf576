package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

func (e Examination) agent() Check {
	s := e.After.Stats.Settings
	return Check{Name: "agent", Finding: fmt.Sprintf("%s of cluster %s answers at %s: %s, %d partitions by %s", e.After.Stats.Self,
		s.Cluster, e.Addr, plural(len(e.After.Members.Members), "member"), s.Partitions, s.Strategy)}
}

// ready reports why the agent is not ready. ready reports all holds and, if the node is not active yet, its
// phase.
func (e Examination) ready() (found []Check) {
	s := e.After.Stats
	switch s.State {
	case "joining", "left":
		found = append(found, e.away())
	case "settling":
		found = append(found, Check{
			"ready", Warn, "it is settling", "it has joined and owns nothing yet",
			"look again in ten seconds; if it still settles, its log has the reason",
		})
	case "isolated":
		if len(s.Holds) == 0 {
			found = append(found, Check{"ready", Warn, "it is no longer isolated, and settles", "it owns nothing yet", "look again in ten seconds"})
		}
	}
	for _, h := range s.Holds {
		x := h.Explain()
		c := Check{"ready", Fail, x.Finding, x.Means, x.Do}
		if x.Usual {
			c.Status = Warn
		}
		if h.Cause == cluster.CauseDraining {
			c.Finding += e.drainsFor(s.Self)
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		found = []Check{{Name: "ready", Finding: "it takes part in placement"}}
	}
	return found
}

// away explains why the agent is not a member.
func (e Examination) away() Check {
	s := e.After.Stats
	if s.Waits == "" {
		return Check{
			"ready", Fail, "it is " + s.State, "its own lease expired: the process was paused, or sends failed, for longer than the lease lasts",
			"see its log for \"fenced\", and for a seed that does not answer; look for a starved machine, a paused VM, a dead network",
		}
	}
	do := "see whether firewalls let UDP through in both directions at the address that it advertises (--advertise), and whether its seeds hang; it joins by itself"
	if s.Unreachable != "" {
		do = moved
	}
	return Check{"ready", Fail, "it is joining: " + s.Waits, "it owns nothing until other members answer it by UDP and TCP", do}
}

// moved is the advice for a node whose address is wrong.
const moved = "give its host that address again, or restart it with an address that the host has: --advertise and --bind, or --bind 0.0.0.0:PORT alone to have it found by itself"

// address fails if other nodes cannot reach the agent at its advertised address.
func (e Examination) address() []Check {
	why := e.After.Stats.Unreachable
	if why == "" || e.After.Stats.Waits != "" { // the check ready reports this
		return nil
	}
	return []Check{{"address", Fail, "other nodes cannot reach it: " + why, "it is alone, and goes on without them", moved}}
}

// drainsFor returns text that says how long a member has been draining, or "" if the time is unknown.
func (e Examination) drainsFor(id lease.NodeID) string {
	for _, m := range e.After.Members.Members {
		if m.ID == id && m.DrainsMS > 0 {
			return fmt.Sprintf(" (for %v)", ms(m.DrainsMS).Round(time.Second))
		}
	}
	return ""
}

// leases warns about members that missed two heartbeats in a row.
func (e Examination) leases() Check {
	if e.After.Members.Stale {
		return Check{Name: "leases", Finding: "not checked: the members are the last ones that it knew"}
	}
	ttl := ms(e.After.Stats.Settings.TTLMS)
	var oldest time.Duration
	var late []string
	for _, m := range e.After.Members.Members {
		old := ms(m.AgeMS)
		oldest = max(oldest, old)
		if old > ttl*2/3 {
			late = append(late, fmt.Sprintf("%s %s", m.ID, age(m.AgeMS)))
		}
	}
	if len(late) == 0 {
		return Check{Name: "leases", Finding: fmt.Sprintf("the oldest is %v old; they last %v", oldest.Round(100*time.Millisecond), ttl)}
	}
	return Check{
		"leases", Warn, fmt.Sprintf("about to expire at %v: %s", ttl, few(late)),
		"heartbeats of these nodes are lost or late; when a lease expires, other nodes take over its partitions",
		"one node: see whether it is starved or cut off; many nodes: this machine is starved, or the network loses packets. In a large cluster allow for it: --ttl",
	}
}

// clocks compares each clock with the median. The agent's own clock is not the reference, because it may be
// the wrong clock.
func (e Examination) clocks() Check {
	members := slices.Clone(e.After.Members.Members)
	if rejected := e.After.Members.Ahead; len(rejected) > 0 {
		return e.ahead(rejected)
	}
	if len(members) < 2 {
		return Check{Name: "clocks", Finding: "there is no other clock to compare with"}
	}
	slices.SortFunc(members, func(a, b report.Member) int { return cmp.Compare(a.ClockOffsetMS, b.ClockOffsetMS) })
	limit, median := ms(e.After.Stats.Settings.MaxSkewMS), members[(len(members)-1)/2].ClockOffsetMS
	var greatest time.Duration
	var ahead, off []string
	for _, m := range members {
		by := ms(m.ClockOffsetMS - median)
		greatest = max(greatest, by.Abs())
		text := fmt.Sprintf("%s by %v", m.ID, by.Round(100*time.Millisecond))
		switch {
		case by > limit:
			ahead = append(ahead, text)
		case by.Abs() > limit/2:
			off = append(off, text)
		}
	}
	switch {
	case len(ahead) > 0:
		return Check{
			"clocks", Fail, fmt.Sprintf("more than %v ahead of the others: %s", limit, few(ahead)),
			"the other nodes reject its heartbeats, and it fences itself: it owns nothing", setClock,
		}
	case len(off) > 0:
		return Check{
			"clocks", Warn, fmt.Sprintf("far from the others: %s", few(off)),
			fmt.Sprintf("a node more than %v ahead is fenced; a node behind does no harm, and its log has wrong times", limit), setClock,
		}
	}
	return Check{
		Name:    "clocks",
		Finding: fmt.Sprintf("all within %v of the median; %v ahead is the limit", greatest.Round(100*time.Millisecond), limit),
	}
}

const setClock = "have NTP set the clock, and see why it did not"

// ahead reports nodes that are not members because their clocks are ahead.
func (e Examination) ahead(rejected []report.Ahead) Check {
	var names []string
	for _, n := range rejected {
		names = append(names, fmt.Sprintf("%s by %v", n.ID, ms(n.ByMS).Round(100*time.Millisecond)))
	}
	return Check{
		"clocks", Fail, fmt.Sprintf("more than %v ahead of the others: %s", ms(e.After.Stats.Settings.MaxSkewMS), few(names)),
		"this node rejects its heartbeats, and it fences itself: it owns nothing", setClock,
	}
}

// tables warns about divergence that lasts. Short divergence is normal after every change.
func (e Examination) tables() Check {
	differ := func(l Look) (ids []string) {
		for _, m := range l.Members.Members {
			if !m.InSync && m.ID != l.Members.Self && m.State != lease.Settling {
				ids = append(ids, string(m.ID))
			}
		}
		return ids
	}
	counts := e.After.Stats.Counts
	history := fmt.Sprintf("differed %s so far, for %v", plural(int(counts.Divergences), "time"),
		counts.DivergedTime.Round(100*time.Millisecond))
	before, now := differ(e.Before), differ(e.After)
	lasting := slices.DeleteFunc(slices.Clone(now), func(id string) bool { return !slices.Contains(before, id) })
	switch {
	case e.After.Members.Digest == 0:
		return Check{Name: "tables", Status: Warn, Finding: "it has no table yet", Means: "it answers no lookup", Do: "see ready"}
	case e.After.Stats.Isolated():
		return Check{Name: "tables", Finding: "not checked while it is isolated: it keeps its last table"}
	case len(lasting) > 0:
		return Check{
			"tables", Warn, fmt.Sprintf("another table during all of %v: %s (%s)", e.Over, few(lasting), history),
			"these nodes and this one name different owners for some keys; for a moment after each change that is usual",
			"look again in ten seconds; if it stays, compare roost members at this agent and at theirs: they do not hear the same nodes, so look for a cut or one-way network",
		}
	case len(now) > 0:
		return Check{Name: "tables", Finding: fmt.Sprintf("a change is spreading: %s not there yet (%s)", few(now), history)}
	}
	return Check{Name: "tables", Finding: fmt.Sprintf("the same at every member (%s)", history)}
}

func (e Examination) balance() Check {
	t := e.After.Table
	c := Check{Name: "balance", Finding: fmt.Sprintf("%d partitions on %s: max/mean %.2f, variation %s",
		t.Partitions, plural(len(t.Counts), "node"), t.Balance.MaxMean, percent(t.Balance.CV))}
	switch {
	case t.Partitions == 0:
		c.Finding = "not known: there is no table yet"
	case t.Partitions < len(t.Counts):
		c.Status, c.Means = Fail, "there are fewer partitions than nodes: some nodes can never own anything"
		if c.Do = withSteps(t.Balance.Advice); c.Do == "" {
			c.Do = withSteps("raise Partitions on every node of the cluster.")
		}
	case t.Balance.Advice != "":
		c.Status, c.Means = Warn, "some nodes carry clearly more than their share"
		c.Do = withSteps(t.Balance.Advice)
	}
	return c
}

// withSteps adds instructions to advice that recommends more partitions. The change needs instructions,
// because nodes with different numbers of partitions reject each other. A rolling restart with another number
// therefore does not work.
func withSteps(advice string) string {
	if strings.Contains(advice, "raise Partitions") {
		advice += " roost plan --partitions shows the effect. Numbers cannot be mixed: stop all agents, and start all with that --partitions;" +
			" or run a second cluster beside this one and change over: docs/upgrades.md, Change a cluster-wide setting"
	}
	return advice
}

func (e Examination) timings() []Check {
	s := e.After.Stats.Settings
	if 2*s.TTLMS >= 5*s.HeartbeatMS {
		return nil
	}
	return []Check{{
		"settings", Warn, fmt.Sprintf("leases of %v are less than 2.5 heartbeats of %v", ms(s.TTLMS), ms(s.HeartbeatMS)),
		"one lost heartbeat can end a lease", "a longer --ttl or a shorter --heartbeat, on all nodes",
	}}
}

// sealWarn is half the number of messages that AES-GCM with random nonces allows per key. The warning comes
// at half, so that there is time to change the key.
const sealWarn = 1 << 31

// key warns when the cluster has encrypted about sealWarn messages with its gossip key. The check assumes
// that every node has encrypted as many messages as this node since the start of its process.
func (e Examination) key() []Check {
	s, members := e.After.Stats.Counts, uint64(max(1, len(e.After.Members.Members)))
	if s.Sealed < (sealWarn+members-1)/members {
		return nil
	}
	return []Check{{
		"key", Warn, fmt.Sprintf("about %.1f billion messages are sealed with the gossip key %s: %d by this node since its start, times %s",
			float64(s.Sealed)*float64(members)/1e9, s.SealedWith, s.Sealed, plural(int(members), "member")),
		"a key is good for 4.3 billion (2^32) in the whole cluster; beyond that, two messages with one nonce would let a listener forge others",
		"give the cluster a new key: roost keygen, then roost keys --install, --use and --remove; no restart is needed",
	}}
}

// sources warns if the settings in use differ from the settings in the files. After a restart, the agent
// would use other settings or fail to start.
func (e Examination) sources() (problems []Check) {
	s := e.After.Stats.Sources
	if s == nil {
		return nil
	}
	if s.Problem != "" {
		problems = append(problems, Check{
			"settings", Warn, fmt.Sprintf("its settings cannot be read again for %s: %s", age(s.ProblemMS), s.Problem),
			"the former settings stay in force, and a restart may fail",
			"correct the file or the setting that the finding names; the agent reads its files again when they change",
		})
	}
	if len(s.Restart) > 0 {
		problems = append(problems, Check{
			"settings", Warn, "changed, and not in force before a restart: " + few(s.Restart),
			"the former values stay in force", "restart this agent, or undo the change",
		})
	}
	if s.KeyFile != "" {
		problems = append(problems, Check{
			"key", Warn, fmt.Sprintf("its gossip keys are not those of %s", s.KeyFile),
			"a restart takes the keys of the file, and the node cannot join if the cluster has removed them",
			"put the keys in use into the file; roost keys shows their fingerprints",
		})
	}
	return problems
}

// events warns about a reader that had unread events at both looks and did not catch up between them.
func (e Examination) events() []Check {
	late := make(map[string]uint64)
	for _, r := range e.Before.Stats.Readers {
		late[r.Name] = r.Behind
	}
	var stuck []string
	for _, r := range e.After.Stats.Readers {
		if l := late[r.Name]; l > 0 && r.Behind >= l {
			stuck = append(stuck, fmt.Sprintf("%s by %s", r.Name, plural(int(r.Behind), "state")))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	return []Check{{
		"events", Warn, fmt.Sprintf("behind during all of %v: %s", e.Over, few(stuck)),
		"a reader of this node's events (http: clients of /v1/events) missed changes: it may still serve partitions that this node has lost",
		"see where that loop hangs: it has to return from one event to get the next",
	}}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// few returns a list of the first words, and says how many more there are.
func few(words []string) string {
	const most = 6
	text := strings.Join(words[:min(len(words), most)], ", ")
	if more := len(words) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
