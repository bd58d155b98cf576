package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp/report"
	"github.com/roost-cluster/roost/lease"
)

func (e Examination) redis() []Check {
	r := e.After.Stats.Rooms
	if r == nil {
		return nil
	}
	var problems []Check
	if r.Refused != "" {
		problems = append(problems, Check{
			"redis", Fail, strings.TrimPrefix(r.Refused, "affinity: "),
			"this node places no rooms, because a room could get two hosts; rooms that it already hosts stay",
			"find out which settings are right, and restart the other nodes with them",
		})
	}
	if r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Fail,
			storeTrouble(r.StoreProblem, r.Store),
			"existing rooms stay; others resolve from the pin cache or by hash, so two nodes may host one room",
			adviceOn(r.StoreProblem) + ". Do not restart agents: they would forget where rooms live",
		})
	}
	if r.StoreRoundTrip > r.StoreBudget/3 && !r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Warn,
			fmt.Sprintf("a heartbeat to Redis%s takes %v, and a join waits at most %v", at(r.Store), r.StoreRoundTrip.Round(time.Millisecond), r.StoreBudget),
			"a join may need three round trips; if there is no time for them, it is degraded, and two nodes may host one room",
			"give the agents a --redis-timeout of three round trips or more (--network wan: 1s), or move Redis nearer",
		})
	}
	if r.StoreUnnotified != "" && !r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Warn,
			fmt.Sprintf("Redis%s does not notify this node of changed rooms: %s", at(r.Store), r.StoreUnnotified),
			"lookups ask Redis again after 1 s instead of 30 s, and a node may need 5 s to see that its room has moved",
			"use a Redis or proxy that supports PUBLISH and SUBSCRIBE, and give the agent's user access to the channel (see the access list in the documentation of package redisstore)",
		})
	}
	if len(r.CutOff) > 0 {
		problems = append(problems, Check{
			"redis", Fail,
			fmt.Sprintf("%s with heartbeats in Redis, but out of reach of gossip: %s", plural(len(r.CutOff), "node"), fewIDs(r.CutOff)),
			"rooms there stay, but joins here may get no address for them; each side places new rooms only on its own nodes",
			"give all nodes a --join address of this cluster, and check that UDP and TCP get through between their gossip ports; if they belong to another cluster, give it another name and prefix",
		})
	}
	if len(r.Silent) > 0 {
		problems = append(problems, Check{
			"redis", Fail,
			fmt.Sprintf("%s of this cluster without heartbeats in Redis%s: %s", plural(len(r.Silent), "live node"), at(r.Store), fewIDs(r.Silent)),
			"they get no new rooms from this node; if they use another Redis or database, a room can get a host from each of the two",
			e.silentAdvice(),
		})
	}
	return problems
}

// scriptPlace is what Redis adds to an error of a script, and whose heartbeat failed.
var scriptPlace = regexp.MustCompile(`\s*script: [0-9a-f]{40}, on @user_script:\d+\.?|heartbeat of "[^"]*": `)

// storeTrouble says what is wrong with the store: it does not answer, or it refuses commands.
func storeTrouble(problem, store string) string {
	why := strings.TrimPrefix(scriptPlace.ReplaceAllString(cmp.Or(problem, "no reason given"), ""), "redis: ")
	for _, a := range refusals {
		if strings.Contains(why, a) {
			return fmt.Sprintf("Redis refuses commands (%s)%s", why, at(store))
		}
	}
	return fmt.Sprintf("Redis has not answered lately (%s)%s", why, at(store))
}

// refusals are parts of the errors with which a Redis that runs refuses commands.
var refusals = []string{ //nolint:gochecknoglobals // a table
	"LOADING ", "WRONGPASS", "NOAUTH", "NOPERM", "READONLY", "MASTERDOWN", "OOM command", "MISCONF", "NOREPLICAS",
}

// load warns if nodes carry more than their capacity, or if no node has headroom for new rooms.
func (e Examination) load() []Check {
	if e.After.Stats.Rooms == nil {
		return nil
	}
	var over []string
	nodes, full := 0, 0
	for _, m := range e.After.Members.Members {
		if !takesRooms(m) {
			continue
		}
		nodes++
		if m.Load > m.Capacity {
			over = append(over, fmt.Sprintf("%s with %d of %d units%s", m.ID, m.Load, m.Capacity, e.inRooms(m)))
		}
		if m.Load >= m.Capacity {
			full++
		}
	}
	const higher = "raise --capacity if the machines can carry more"
	switch {
	case nodes > 0 && full == nodes:
		return []Check{{
			"load", Warn, "no node has headroom for new rooms" + listed("; overloaded: ", over),
			"new rooms fill nodes above their ceilings, or are refused with --hard-ceiling" + e.crowded(), "start more nodes, or " + higher,
		}}
	case len(over) > 0:
		return []Check{{
			"load", Warn, "overloaded: " + few(over), "calls there may suffer. Rooms that are there stay, unless the agent runs with --rebalance" + e.crowded(),
			e.relief(higher),
		}}
	}
	return nil
}

func takesRooms(m report.Member) bool { return m.State == lease.Active && m.Capacity > 0 && !m.NoLoad }

// left returns how many units of a node's capacity are left for rooms, or -1 if the node takes none.
func left(m report.Member) int64 {
	if !takesRooms(m) || m.Weight == 0 {
		return -1
	}
	return m.Capacity - m.Load
}

// relief returns advice about overloaded nodes. Only an overloaded node itself knows what its rooms cost.
func (e Examination) relief(higher string) string {
	const move = "move rooms away: roost rooms --node ID lists them, and roost room move moves one; its clients connect again"
	self, each := e.After.Members.Self, int64(0)
	var emptiest report.Member
	for _, m := range e.After.Members.Members {
		switch {
		case m.ID == self && m.Load > m.Capacity:
			each = e.each(m)
		case emptiest.ID == "" || left(m) > left(emptiest):
			emptiest = m
		}
	}
	most := fmt.Sprintf("%s has the most capacity left: %s", emptiest.ID, plural(int(max(0, left(emptiest))), "unit"))
	switch {
	case emptiest.ID == "" || each > left(emptiest):
		return fmt.Sprintf("start a node, or %s: the rooms of %s cost %d units on average, and fit nowhere (%s). Then %s", higher, self, each, most, move)
	case each > 0:
		return fmt.Sprintf("%s. A room of %s costs %d units on average, and %s", move, self, each, most)
	}
	return fmt.Sprintf("ask roost doctor at the overloaded node what its rooms cost. If one fits elsewhere (%s), %s. If not, start a node first, or %s", most, move, higher)
}

// each returns what a room of a node costs on average, or 0 if this is another node, or one without rooms.
func (e Examination) each(m report.Member) int64 {
	if m.ID != e.After.Members.Self || e.After.Stats.Rooms.Hosted == 0 {
		return 0
	}
	return m.Load / int64(e.After.Stats.Rooms.Hosted)
}

func (e Examination) inRooms(m report.Member) string {
	if each := e.each(m); each > 0 {
		return fmt.Sprintf(", in rooms of %d units on average", each)
	}
	return ""
}

// crowded says how many rooms this node has pinned above a ceiling since it was started.
func (e Examination) crowded() string {
	if n := e.After.Stats.Rooms.Crowded; n > 0 {
		return fmt.Sprintf(". Since its start, this node had to place %s above the ceilings", plural(int(n), "room"))
	}
	return ""
}

func listed(what string, words []string) string {
	if len(words) == 0 {
		return ""
	}
	return what + few(words)
}

// at returns the address of an agent's Redis as text, or "" if it is unknown.
func at(where string) string {
	if where == "" {
		return ""
	}
	return " at " + where
}

// silentAdvice returns advice about members that send no heartbeats to this agent's Redis. If no other member sends
// any, the problem is more likely on this node.
func (e Examination) silentAdvice() string {
	r := e.After.Stats.Rooms
	const compare = "run roost doctor at each of them to see whether it reaches Redis; if so, compare --redis: it must name the same server and database number"
	for _, m := range e.After.Members.Members {
		if m.ID != e.After.Members.Self && !slices.Contains(r.Silent, m.ID) {
			return compare + ". Then restart those nodes, one at a time, with the --redis of the other nodes"
		}
	}
	return "all other nodes are silent here, so this node may be the one with another Redis. " + compare
}

// advices has the advice for each problem that the Redis client reports. The first entry whose part occurs in the
// report applies.
var advices = []struct{ part, do string }{ //nolint:gochecknoglobals // a table
	{"LOADING ", "wait until Redis has loaded its data; if that takes long, read its log"},
	{"; found at ", "do what the finding says about the address; if the port is right, check where the name or load balancer leads"},
	{"WRONGPASS", badPassword},
	{"NOAUTH", badPassword},
	{"NOPERM", "give the agent's Redis user access to all keys and commands in the access list (see the documentation of package redisstore)"},
	{"ASK ", "give the agent's Redis user the permission +asking, which it needs while slots of the Redis Cluster move"},
	{"READONLY", noMaster},
	{"MASTERDOWN", noMaster},
	{"OOM command", "give Redis more memory (maxmemory), or remove other data from it; it must not evict keys (maxmemory-policy noeviction)"},
	{"MISCONF", "read the log of Redis: it cannot write to its disk, and rejects commands until it can"},
	{"NOREPLICAS", "check the replicas of Redis: too few of them are connected (min-replicas-to-write)"},
	{"max number of clients", "raise maxclients of Redis, or find out who else holds connections"},
	{"without any password configured", "remove the password from the agent's --redis, or set a password in Redis, which has none"},
	{"x509: ", badCertificate},
	{"tls: ", badCertificate},
	{"EOF", hungUp},
	{"connection reset", hungUp},
	{"lookup ", "find out why the name has no address: check the name in --redis, and the DNS server that the agent asks"},
	{"connection refused", "check whether Redis runs, and listens on this address and port"},
	{"no route to host", unreachable},
	{"network is unreachable", unreachable},
	{"i/o timeout", unreachable},
	{"connection timed out", unreachable},
	{"not within", "find out what makes Redis slow: slow commands, fsync, swapping or a full network; if Redis is far away, raise --redis-timeout"},
}

const (
	badPassword    = "correct the user and password, in Redis or in the agent's --redis-file, which the agent reloads when it changes"
	noMaster       = "this is a replica. If it should be the master, promote it (REPLICAOF NO ONE): pins that it lacks come back from the agents. If not, make the address in --redis lead to the master (with DNS, a load balancer, or a moved IP address): the agent reconnects at least every 5 s"
	badCertificate = "check that the certificate of Redis contains the host in --redis (rediss://), and that this host trusts its CA"
	hungUp         = "something accepts connections there and closes them: check whether the port needs TLS (rediss://), and whether a proxy in between reaches Redis"
	unreachable    = "check the network and firewalls between the agent and this address, and whether its host runs"
)

// adviceOn returns what to do about a problem of Redis.
func adviceOn(problem string) string {
	for _, a := range advices {
		if strings.Contains(problem, a.part) {
			return a.do
		}
	}
	return "check whether Redis runs, has free memory, and is near enough"
}

func fewIDs(ids []lease.NodeID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	return few(words)
}
