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

// self returns the id of the agent's node, as the subject of a finding.
func (e Examination) self() string { return cmp.Or(string(e.After.Stats.Self), "it") }

// ready reports why the agent is not ready. ready reports all holds and, if the node is not active yet, its
// phase.
func (e Examination) ready() (found []Check) {
	s := e.After.Stats
	switch s.State {
	case "joining", "left":
		found = append(found, e.away())
	case "settling":
		found = append(found, Check{
			"ready", Warn, e.self() + " is settling", "it has joined, but owns nothing yet",
			"look again in ten seconds; if it is still settling, read the reason in its log",
		})
	case "isolated":
		if len(s.Holds) == 0 {
			found = append(found, Check{"ready", Warn, e.self() + " is no longer isolated, and is settling", "it owns nothing yet", "look again in ten seconds"})
		}
	}
	for _, h := range s.Holds {
		x := h.Explain()
		c := Check{"ready", Fail, e.self() + " " + x.Finding, x.Means, x.Do}
		if x.Usual {
			c.Status = Warn
		}
		if h.Cause == cluster.CauseDraining {
			c.Finding += e.drainsFor(s.Self)
		}
		if h.Cause == cluster.CauseIsolated {
			c.Do = e.rejoins() + c.Do
			if s.Settings.Split == "majority" {
				c.Do += "; if most members crashed, restart all survivors at once"
			}
		}
		found = append(found, c)
	}
	if len(found) == 0 {
		found = []Check{{Name: "ready", Finding: e.self() + " takes part in placement"}}
	}
	return found
}

// rejoins returns advice on lost members, which an isolated node waits for.
func (e Examination) rejoins() string {
	if slices.ContainsFunc(e.After.Members.Lost, func(l report.Lost) bool { return l.Reason != lease.Departed }) {
		return "start the lost nodes again, or restore their network: the check members names them. Otherwise "
	}
	return ""
}

// away explains why the agent is not a member.
func (e Examination) away() Check {
	s := e.After.Stats
	if s.Waits == "" {
		return Check{
			"ready", Fail, e.self() + " is " + s.State, "its own lease expired: the process was paused, or sending failed, for longer than the lease lasts",
			"search its log for \"fenced\", and for a seed that does not answer; check for a machine without free CPU, a paused VM or a dead network",
		}
	}
	do := "check that firewalls let UDP through in both directions at the address that it advertises (--advertise), and whether its seeds hang; then it joins by itself"
	if s.Unreachable != "" {
		do = moved
	}
	return Check{"ready", Fail, e.self() + " is joining: " + s.Waits, "it owns nothing until other members answer over UDP and TCP", do}
}

// moved is the advice for a node whose address is wrong.
const moved = "give the host that address again, or restart the agent with an address that the host has: set --advertise and --bind, or only --bind 0.0.0.0:PORT so that the agent finds its address"

// address fails if other nodes cannot reach the agent at its advertised address.
func (e Examination) address() []Check {
	why := e.After.Stats.Unreachable
	if why == "" || e.After.Stats.Waits != "" { // the check ready reports this
		return nil
	}
	return []Check{{"address", Fail, "other nodes cannot reach it: " + why, "it is alone, and continues without them", moved}}
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
		return Check{Name: "leases", Finding: "not checked: these are only the last members that it knew"}
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
		return Check{Name: "leases", Finding: fmt.Sprintf("the oldest lease is %v old; leases last %v", oldest.Round(100*time.Millisecond), ttl)}
	}
	return Check{
		"leases", Warn, fmt.Sprintf("about to expire at %v: %s", ttl, few(late)),
		"heartbeats of these nodes are lost or late; when a lease expires, other nodes take over its partitions",
		"if it is one node, check whether it lacks CPU or is cut off. If there are many, this machine lacks CPU, or the network loses packets. A large cluster may need a longer --ttl",
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
		side := "ahead"
		if by < 0 {
			side = "behind"
		}
		text := fmt.Sprintf("%s %v %s", m.ID, by.Abs().Round(100*time.Millisecond), side)
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
			"clocks", Fail, fmt.Sprintf("more than %v from the other clocks: %s", limit, few(ahead)),
			"other nodes reject its heartbeats, so it fences itself and owns nothing", setClock,
		}
	case len(off) > 0:
		return Check{
			"clocks", Warn, fmt.Sprintf("far from the other clocks: %s", few(off)),
			fmt.Sprintf("a node whose clock is more than %v ahead is fenced; a clock that is behind only causes wrong times in the log", limit), setClock,
		}
	}
	return Check{
		Name:    "clocks",
		Finding: fmt.Sprintf("all within %v of the median; %v ahead is the limit", greatest.Round(100*time.Millisecond), limit),
	}
}

const setClock = "set the clock with NTP, and find out why NTP did not do so"

// ahead reports nodes that are not members because their clocks are ahead.
func (e Examination) ahead(rejected []report.Ahead) Check {
	var names []string
	for _, n := range rejected {
		names = append(names, fmt.Sprintf("%s %v ahead", n.ID, ms(n.ByMS).Round(100*time.Millisecond)))
	}
	return Check{
		"clocks", Fail, fmt.Sprintf("more than %v from the other clocks: %s", ms(e.After.Stats.Settings.MaxSkewMS), few(names)),
		"this node rejects its heartbeats, so it fences itself and owns nothing", setClock,
	}
}

// tables warns if divergence lasts. A short divergence is normal after every change.
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
	history := fmt.Sprintf("differed %s so far, for %v in total", plural(int(counts.Divergences), "time"),
		counts.DivergedTime.Round(100*time.Millisecond))
	before, now := differ(e.Before), differ(e.After)
	lasting := slices.DeleteFunc(slices.Clone(now), func(id string) bool { return !slices.Contains(before, id) })
	switch {
	case e.After.Members.Digest == 0:
		return Check{Name: "tables", Status: Warn, Finding: "it has no table yet", Means: "it answers no lookups", Do: "see the check ready"}
	case e.After.Stats.Isolated():
		return Check{Name: "tables", Finding: "not checked while it is isolated: it keeps its last table"}
	case len(lasting) > 0:
		return Check{
			"tables", Warn, fmt.Sprintf("a different table for all of %v: %s (%s)", e.Over, few(lasting), history),
			"these nodes and this node name different owners for some keys; for a moment after each change, this is normal",
			"look again in ten seconds; if it persists, compare roost members at this agent and at theirs: they do not hear the same nodes, so look for a cut or one-way network",
		}
	case len(now) > 0:
		return Check{Name: "tables", Finding: fmt.Sprintf("a change is spreading, and has not reached %s yet (%s)", few(now), history)}
	}
	return Check{Name: "tables", Finding: fmt.Sprintf("the same on every member (%s)", history)}
}

func (e Examination) balance() Check {
	t := e.After.Table
	c := Check{Name: "balance", Finding: fmt.Sprintf("%d partitions on %s: max/mean %.2f, variation %s",
		t.Partitions, plural(len(t.Counts), "node"), t.Balance.MaxMean, percent(t.Balance.CV))}
	switch {
	case e.After.Stats.Isolated():
		c.Finding = "not checked while this node is isolated"
	case t.Partitions == 0:
		c.Finding = "unknown: there is no table yet"
	case t.Partitions < len(t.Counts):
		c.Status, c.Means = Fail, "there are fewer partitions than nodes: some nodes can never own anything"
		if c.Do = withSteps(t.Balance.Advice); c.Do == "" {
			c.Do = withSteps("raise Partitions on every node of the cluster.")
		}
	case t.Balance.Advice != "":
		c.Status, c.Means = Warn, "some nodes own clearly more than their share"
		c.Do = withSteps(t.Balance.Advice)
	}
	return c
}

// withSteps adds instructions to advice that recommends more partitions. A rolling restart with another number does not
// work, because nodes with different numbers of partitions reject each other.
func withSteps(advice string) string {
	if strings.Contains(advice, "raise Partitions") {
		advice += " roost plan --partitions shows the effect. All nodes need the same number: stop all agents, then start them with the new --partitions;" +
			" or start a second cluster next to this one and switch to it: docs/upgrades.md, Change a cluster-wide setting"
	}
	return advice
}

func (e Examination) timings() []Check {
	s := e.After.Stats.Settings
	if 2*s.TTLMS >= 5*s.HeartbeatMS {
		return nil
	}
	return []Check{{
		"settings", Warn, fmt.Sprintf("leases last %v, which is less than 2.5 heartbeats of %v", ms(s.TTLMS), ms(s.HeartbeatMS)),
		"a lease can expire after one lost heartbeat", "set a longer --ttl or a shorter --heartbeat, on all nodes",
	}}
}

// sealWarn is half the number of messages that AES-GCM with random nonces allows per key. The doctor warns at half, so
// that there is time to change the key.
const sealWarn = 1 << 31

// key warns when the cluster has encrypted about sealWarn messages with its gossip key. The check assumes
// that every node has encrypted as many messages as this node since the start of its process.
func (e Examination) key() []Check {
	s, members := e.After.Stats.Counts, uint64(max(1, len(e.After.Members.Members)))
	if s.Sealed < (sealWarn+members-1)/members {
		return nil
	}
	return []Check{{
		"key", Warn, fmt.Sprintf("about %.1f billion messages are encrypted with the gossip key %s: %d by this node since its start, times %s",
			float64(s.Sealed)*float64(members)/1e9, s.SealedWith, s.Sealed, plural(int(members), "member")),
		"a key is safe for 4.3 billion (2^32) messages in the whole cluster; after more, two messages may share a nonce, which lets an eavesdropper forge messages",
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
			"settings", Warn, fmt.Sprintf("its settings could not be reloaded for %s: %s", age(s.ProblemMS), s.Problem),
			"the previous settings stay in effect, and a restart may fail",
			"correct the file or setting that the finding names; the agent reloads files when they change",
		})
	}
	if len(s.Restart) > 0 {
		problems = append(problems, Check{
			"settings", Warn, "changed, but not in effect until a restart: " + few(s.Restart),
			"the previous values stay in effect", "restart this agent, or undo the change",
		})
	}
	if s.KeyFile != "" {
		problems = append(problems, Check{
			"key", Warn, fmt.Sprintf("its gossip keys differ from the keys in %s", s.KeyFile),
			"after a restart, the agent uses the keys in the file, and cannot join if the cluster has removed them",
			"put the keys that are in use into the file; roost keys shows their fingerprints",
		})
	}
	return problems
}

// events warns about a reader that had unread events at both looks, and did not catch up in between.
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
		"events", Warn, fmt.Sprintf("behind for all of %v: %s", e.Over, few(stuck)),
		"a reader of this node's events missed changes, so it may still serve partitions that this node has lost (the reader http is the clients of /v1/events)",
		"find out where the reader's loop hangs: it must finish one event before it gets the next",
	}}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// short returns d without zeros at the end: 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// few returns a list of the first words, and says how many more there are.
func few(words []string) string {
	const most = 6
	text := strings.Join(words[:min(len(words), most)], ", ")
	if more := len(words) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
