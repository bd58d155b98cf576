package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// examination is what the checks judge: two looks at one agent.
type examination struct {
	before, after look
	over          time.Duration // between them
	addr          string        // of the agent
}

func (e examination) checks() []check {
	checks := []check{e.agent(), e.ready(), e.leases(), e.clocks(), e.tables(), e.balance()}
	checks = append(checks, e.members()...)
	checks = append(checks, e.seeds())
	if c, bad := e.timings(); bad {
		checks = append(checks, c)
	}
	if c, bad := e.redis(); bad {
		checks = append(checks, c)
	}
	if c, bad := e.events(); bad {
		checks = append(checks, c)
	}
	checks = append(checks, e.counted()...)
	faulty := make(map[string]bool)
	for _, c := range checks {
		faulty[c.Name] = faulty[c.Name] || c.Status != passed
	}
	checks = slices.DeleteFunc(checks, func(c check) bool { return c.Status == passed && faulty[c.Name] })
	slices.SortStableFunc(checks, func(a, b check) int { return cmp.Compare(b.Status, a.Status) }) // the worst first
	return checks
}

// absent is all that can be said of an agent that takes no part.
func absent(addr string, p *clusterhttp.Problem) check {
	if p.Code == clusterhttp.CodeClosed {
		return check{
			"ready", failed, fmt.Sprintf("the agent at %s has ended: %s", addr, printable(p.Message)),
			"its node owns nothing, and others have taken over", "start it again; if its log says that the id is also used, two processes were started with one --id",
		}
	}
	return check{
		"ready", failed, fmt.Sprintf("the agent at %s runs and has not joined: %s", addr, printable(p.Message)),
		"it has no view of the cluster yet, and owns nothing",
		"wait for its --join to answer; if they do not, see its log, and whether they run and can be reached by UDP and TCP",
	}
}

func (e examination) agent() check {
	s := e.after.stats.Settings
	return check{Name: "agent", Finding: fmt.Sprintf("%s of cluster %s answers at %s: %s, %d partitions by %s",
		e.after.stats.Self, printable(s.Cluster), e.addr, plural(len(e.after.members.Members), "member"), s.Partitions, printable(s.Strategy))}
}

func (e examination) ready() check {
	c := check{Name: "ready", Finding: "it takes part in placement"}
	switch e.after.stats.State {
	case "draining":
		c = check{
			"ready", warned, "it is draining", "it owns nothing, and /readyz fails on purpose",
			"nothing if somebody is taking it down; else roost undrain",
		}
	case "settling":
		c = check{
			"ready", warned, "it is settling", "it has joined and owns nothing yet",
			"ask again in ten seconds; if it stays so its log says why: a clock that is ahead of the others' fences a node",
		}
	case "joining", "left":
		c = check{
			"ready", failed, "it is " + e.after.stats.State, "others hold it for dead: its process was stopped, or could send nothing, for longer than a lease lasts",
			"see its log for \"fenced\"; look for a starved machine, a paused VM, a dead network",
		}
	}
	return c
}

// leases warns of members of whom two heartbeats in a row were lost.
func (e examination) leases() check {
	ttl := e.ttl()
	var oldest time.Duration
	var late []string
	for _, m := range e.after.members.Members {
		old := ms(m.AgeMS)
		oldest = max(oldest, old)
		if old > ttl*2/3 {
			late = append(late, fmt.Sprintf("%s %s", m.ID, age(m.AgeMS)))
		}
	}
	if len(late) == 0 {
		return check{Name: "leases", Finding: fmt.Sprintf("the oldest is %v old; they last %v", oldest.Round(100*time.Millisecond), ttl)}
	}
	return check{
		"leases", warned, fmt.Sprintf("about to run out at %v: %s", ttl, few(late)),
		"heartbeats of these nodes get lost or come late; when a lease runs out, others take over what the node owns",
		"if it is one node, see whether it is starved or cut off; if there are many, this machine is, or the network loses packets. In a large cluster allow for it: --ttl",
	}
}

// clocks compares each with the middle one: this agent's own may be the wrong one.
func (e examination) clocks() check {
	members := slices.Clone(e.after.members.Members)
	slices.SortFunc(members, func(a, b clusterhttp.Member) int { return cmp.Compare(a.ClockOffsetMS, b.ClockOffsetMS) })
	limit := ms(e.after.stats.Settings.MaxSkewMS)
	c := check{Name: "clocks", Finding: "there is nobody to compare with"}
	if len(members) < 2 {
		return c
	}
	middle := members[(len(members)-1)/2].ClockOffsetMS
	var greatest time.Duration
	var ahead, off []string
	for _, m := range members {
		by := ms(m.ClockOffsetMS - middle)
		greatest = max(greatest, by.Abs())
		says := fmt.Sprintf("%s by %v", m.ID, by.Round(100*time.Millisecond))
		switch {
		case by > limit:
			ahead = append(ahead, says)
		case by.Abs() > limit/2:
			off = append(off, says)
		}
	}
	const mend = "have NTP set the clock, and see why it did not"
	switch {
	case len(ahead) > 0:
		return check{
			"clocks", failed, fmt.Sprintf("more than %v ahead of the others: %s", limit, few(ahead)),
			"the others reject its heartbeats, and it fences itself: it owns nothing", mend,
		}
	case len(off) > 0:
		return check{
			"clocks", warned, fmt.Sprintf("far from the others: %s", few(off)),
			fmt.Sprintf("a node that is ahead by more than %v is fenced; one that is behind does no harm, and its log has wrong times", limit), mend,
		}
	}
	c.Finding = fmt.Sprintf("all within %v of the middle one; %v ahead is the limit", greatest.Round(100*time.Millisecond), limit)
	return c
}

// tables tells drift that lasts from that which each change brings.
func (e examination) tables() check {
	differ := func(l look) (ids []string) {
		for _, m := range l.members.Members {
			if !m.InSync && m.ID != l.members.Self && m.State != lease.Settling {
				ids = append(ids, string(m.ID))
			}
		}
		return ids
	}
	counts := e.after.stats.Counts
	history := fmt.Sprintf("tables differed %s so far, for %v in all", plural(int(counts.Drifts), "time"), counts.DriftTime.Round(100*time.Millisecond))
	before, now := differ(e.before), differ(e.after)
	lasting := slices.DeleteFunc(slices.Clone(now), func(id string) bool { return !slices.Contains(before, id) })
	switch {
	case e.after.members.Digest == 0:
		return check{Name: "tables", Status: warned, Finding: "it has no table yet", Means: "it answers no look-up", Do: "see ready"}
	case len(lasting) > 0:
		return check{
			"tables", warned, fmt.Sprintf("another table during all of %v: %s (%s)", e.over, few(lasting), history),
			"these nodes and this one name different owners for some keys; a moment of it after each change is usual",
			"ask again in ten seconds; if it stays, compare roost members at this agent and at theirs: they do not hear the same nodes, so look for a cut or one-way network",
		}
	case len(now) > 0:
		return check{Name: "tables", Finding: fmt.Sprintf("a change is going round: %s not there yet (%s)", few(now), history)}
	}
	return check{Name: "tables", Finding: fmt.Sprintf("the same at every member (%s)", history)}
}

func (e examination) balance() check {
	t := e.after.table
	c := check{Name: "balance", Finding: fmt.Sprintf("%d partitions on %s: max/mean %.2f, variation %s",
		t.Partitions, plural(len(t.Counts), "node"), t.Balance.MaxMean, percent(t.Balance.CV))}
	switch {
	case t.Partitions == 0:
		return check{Name: "balance", Finding: "not known: there is no table yet"}
	case t.Partitions < len(t.Counts):
		c.Status = failed
		c.Means, c.Do = "there are fewer partitions than nodes: some nodes can never own anything", "start the cluster anew with more --partitions; roost plan --partitions shows what that does"
	case t.Balance.Advice != "":
		c.Status = warned
		c.Means, c.Do = "some nodes carry clearly more than their share", printable(t.Balance.Advice)+" See roost plan --partitions"
	}
	return c
}

func (e examination) timings() (check, bool) {
	s := e.after.stats.Settings
	return check{
		"settings", warned, fmt.Sprintf("leases of %v are less than 2.5 heartbeats of %v", ms(s.TTLMS), ms(s.HeartbeatMS)),
		"one lost heartbeat can end a lease", "a longer --ttl or a shorter --heartbeat, on all nodes",
	}, 2*s.TTLMS < 5*s.HeartbeatMS
}

func (e examination) redis() (check, bool) {
	r := e.after.stats.Rooms
	if r == nil || !r.StoreDoubt {
		return check{}, false
	}
	return check{
		"redis", failed, fmt.Sprintf("Redis has not answered lately (breaker: %s)", r.Breaker),
		"rooms that run stay; others are resolved by what this node knows and by the hash, marked degraded, and two nodes may take one room",
		"see whether Redis runs, can be reached from the agent's machine and is not out of memory; the agent goes on trying by itself",
	}, true
}

// events warns of a loop that had something to read at both looks, and did not catch up.
func (e examination) events() (check, bool) {
	late := make(map[string]uint64)
	for _, r := range e.before.stats.Readers {
		late[r.Name] = r.Behind
	}
	var stuck []string
	for _, r := range e.after.stats.Readers {
		if l := late[r.Name]; l > 0 && r.Behind >= l {
			stuck = append(stuck, fmt.Sprintf("%s by %s", printable(r.Name), plural(int(r.Behind), "state")))
		}
	}
	return check{
		"events", warned, "behind during all of " + e.over.String() + ": " + few(stuck),
		"what follows this node's events, http for clients of /v1/events, has not taken up what changed: it may go on serving what it has lost",
		"see where that loop hangs: it has to return from one event to get the next",
	}, len(stuck) > 0
}

func (e examination) ttl() time.Duration { return ms(e.after.stats.Settings.TTLMS) }

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// few names the first of many.
func few(words []string) string {
	const most = 6
	text := strings.Join(words[:min(len(words), most)], ", ")
	if more := len(words) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
