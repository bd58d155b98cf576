package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
			"this node places no rooms: a room could get two hosts; rooms that it hosts already stay",
			"see which settings are right, and restart the other nodes with them",
		})
	}
	if r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Fail,
			fmt.Sprintf("Redis has not answered lately (%s; breaker: %s)%s", cmp.Or(r.StoreProblem, "no reason given"), r.Breaker, at(r.Store)),
			"existing rooms stay; other rooms are resolved from the pin cache and by the hash, marked degraded, and two nodes may host one room",
			adviceOn(r.StoreProblem) + ". Do not restart agents: they would forget where rooms live",
		})
	}
	if r.StoreRoundTrip > r.StoreBudget/3 && !r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Warn,
			fmt.Sprintf("a heartbeat to Redis%s takes %v, and a join waits for at most %v", at(r.Store), r.StoreRoundTrip.Round(time.Millisecond), r.StoreBudget),
			"a join may need three round trips; without them it is degraded, and two nodes may host one room",
			"give the agents a --redis-timeout of three round trips or more (--network wan: 1s), or move Redis nearer",
		})
	}
	if r.StoreUnnotified != "" && !r.StoreDoubt {
		problems = append(problems, Check{
			"redis", Warn,
			fmt.Sprintf("Redis%s does not tell this node of changed rooms: %s", at(r.Store), r.StoreUnnotified),
			"a lookup asks Redis again after a second in place of 30, and a node may need 5 s to see that its room has moved",
			"use a Redis or a proxy with PUBLISH and SUBSCRIBE, and give the agent's user the channel of the access list in the documentation of package redisstore",
		})
	}
	if len(r.CutOff) > 0 {
		problems = append(problems, Check{
			"redis", Fail,
			fmt.Sprintf("%s with heartbeats in Redis and out of reach of gossip: %s", plural(len(r.CutOff), "node"), fewIDs(r.CutOff)),
			"rooms there stay, and joins here may get no address for them; each side places new rooms on its own nodes alone",
			"give all nodes a --join address of this cluster, and see that UDP and TCP of the gossip ports pass between them; if they are another cluster, give it another name and prefix",
		})
	}
	if len(r.Silent) > 0 {
		problems = append(problems, Check{
			"redis", Fail,
			fmt.Sprintf("%s of this cluster without heartbeats in Redis%s: %s", plural(len(r.Silent), "live node"), at(r.Store), fewIDs(r.Silent)),
			"they get no new rooms from this node; if they use another Redis or database, a room can get one host by each of the two",
			e.silentAdvice(),
		})
	}
	return problems
}

// at names the address of an agent's Redis, if it is known.
func at(where string) string {
	if where == "" {
		return ""
	}
	return " at " + where
}

// silentAdvice says where the problem is. If all other nodes are silent, it is more likely on this node.
func (e Examination) silentAdvice() string {
	r := e.After.Stats.Rooms
	const compare = "roost doctor at each of them shows whether it reaches Redis; if so, compare --redis: the same server and the same number of a database"
	for _, m := range e.After.Members.Members {
		if m.ID != e.After.Members.Self && !slices.Contains(r.Silent, m.ID) {
			return compare + ". Then restart those nodes, one at a time, with the --redis of the others"
		}
	}
	return "all other nodes are silent here, so this node may be the one with another Redis. " + compare
}

// advices are what to do about a problem that the Redis client reports. The first entry whose part occurs in
// the report counts.
var advices = []struct{ part, do string }{ //nolint:gochecknoglobals // a table
	{"LOADING ", "wait until Redis has loaded its data; if it takes long, look at its log"},
	{"; found at ", "do what the finding says of the address; if the port is right, see what a name or a balancer leads to there"},
	{"WRONGPASS", badPassword},
	{"NOAUTH", badPassword},
	{"NOPERM", "give the agent's user on Redis all keys and commands of the access list in the documentation of package redisstore"},
	{"ASK ", "give the agent's user on Redis the right +asking: slots of the Cluster move, and it cannot follow"},
	{"READONLY", noMaster},
	{"MASTERDOWN", noMaster},
	{"OOM command", "give Redis more memory (maxmemory), or remove what else it holds; it must not evict (maxmemory-policy noeviction)"},
	{"MISCONF", "see the log of Redis: it cannot write to its disk, and rejects commands until it can"},
	{"NOREPLICAS", "see the replicas of Redis: too few of them are connected (min-replicas-to-write)"},
	{"max number of clients", "raise maxclients of Redis, or see who else holds its connections"},
	{"without any password configured", "take the password out of the agent's --redis, or set one on Redis: it has none"},
	{"x509: ", badCertificate},
	{"tls: ", badCertificate},
	{"EOF", hungUp},
	{"connection reset", hungUp},
	{"lookup ", "see why the name has no address: the name in --redis, and the DNS server that the agent asks"},
	{"connection refused", "see whether Redis runs, and listens at this address and port"},
	{"no route to host", unreachable},
	{"network is unreachable", unreachable},
	{"i/o timeout", unreachable},
	{"connection timed out", unreachable},
	{"not within", "see whether Redis is near and quick enough for the agent: slow commands, fsync, swap, a full network; if it is far away, raise --redis-timeout"},
}

const (
	badPassword    = "set the user and the password right, on Redis or in the agent's --redis-file, which it reads again when it changes"
	noMaster       = "see where the address leads to: it is a replica. The agent opens its connections again at least every 5 s, and finds the master once the name or the balancer leads there"
	badCertificate = "compare the certificate of Redis with the host in --redis (rediss://), and with the authorities that this host trusts"
	hungUp         = "something takes connections there and closes them: see whether the port speaks TLS (rediss://), and whether a proxy in between reaches Redis"
	unreachable    = "see the network and the firewalls between the agent and this address, and whether its host runs"
)

// adviceOn returns what to do about a problem of Redis.
func adviceOn(problem string) string {
	for _, a := range advices {
		if strings.Contains(problem, a.part) {
			return a.do
		}
	}
	return "see whether Redis runs, has memory, and is near enough"
}

func fewIDs(ids []lease.NodeID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = string(id)
	}
	return few(words)
}
