package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
)

// joining runs one node. An exchange with an address in errs ends immediately with that error, or with the answer of a
// member if the error is nil. Any other exchange ends after 2.5 s without an answer.
type joining struct {
	n       *node.Node
	now     time.Time
	errs    map[string]error  // results of the addresses that answer; nil = a member answers
	names   map[string]string // addresses of each name, or "hangs"
	peer    *node.Node        // the member that answered the latest exchange
	deaf    bool              // no member receives a packet
	later   map[time.Time][]func()
	tried   []time.Duration // when each exchange began
	dialed  []string
	log     []string
	refused error
	last    node.Exchange // the exchange that began last
}

var errRefused, errHungUp, errStuck, errSlow = errors.New("refused"), errors.New("hung up"), errors.New("stuck"), errors.New("stuck after 5 s")

func newJoining(t *testing.T, change func(*node.Config)) *joining {
	t.Helper()
	w := newNetwork(t, change)
	return &joining{n: w.start("self", 1), now: w.now, later: make(map[time.Time][]func())}
}

// run lets time pass. If joining is true, it stops as soon as the node has joined or ended.
func (j *joining) run(span time.Duration, joining bool) (took time.Duration) {
	for begin := j.now; j.now.Sub(begin) < span; j.now = j.now.Add(10 * time.Millisecond) {
		for _, f := range j.later[j.now] {
			f()
		}
		j.carryOut(j.n.Ready(j.now))
		if joining && j.n.View().Phase != node.Joining {
			j.carryOut(j.n.Ready(j.now))
			return j.now.Sub(begin)
		}
	}
	return span
}

func (j *joining) carryOut(r node.Ready) {
	after := func(d time.Duration, f func()) { j.later[j.now.Add(d)] = append(j.later[j.now.Add(d)], f) }
	for _, p := range r.Packets {
		j.n.Sent(j.now, p)
		if p.To == "member" && !j.deaf {
			j.peer.Receive(j.now, p.Bytes)
			j.answers(j.peer)
		}
	}
	for _, l := range r.Lookups {
		took, err, addrs := 10*time.Millisecond, errors.New("no such host"), []string(nil)
		switch j.names[l.Name] {
		case "":
		case "hangs":
			took = l.Timeout
		default:
			err, addrs = nil, strings.Fields(j.names[l.Name])
		}
		after(took, func() { j.n.Resolved(j.now, l, addrs, err) })
	}
	for _, x := range r.Exchanges {
		j.last = x
		j.tried, j.dialed = append(j.tried, j.now.Sub(j.n.Started())), append(j.dialed, x.Addr)
		if err, ok := j.errs[x.Addr]; ok {
			reason := map[error]node.Reason{
				errRefused: node.Refused,
				errHungUp:  node.HungUp,
				errStuck:   node.Unfinished,
				errSlow:    node.Unfinished,
			}[err]
			took := 10 * time.Millisecond
			if errors.Is(err, errSlow) {
				took = 5 * time.Second
			}
			after(took, func() {
				if err == nil {
					m := j.member()
					err = j.n.Met(j.now, x, m.Peer())
					state := m.Sync(j.now)
					m.Merge(j.now, j.n.Sync(j.now))
					j.n.Merge(j.now, state)
				}
				j.n.Exchanged(j.now, x, reason, err)
			})
		} else {
			after(2500*time.Millisecond, func() { j.n.Exchanged(j.now, x, node.NoAnswer, errors.New("timed out")) })
		}
	}
	for _, e := range r.Log {
		if e.Message == "joined" {
			e.Message = fmt.Sprint("joined ", e.Attrs[1])
		}
		j.log = append(j.log, e.Message)
	}
	if r.Hopeless != nil {
		j.refused = r.Hopeless
	}
}

// member starts a member that answers the node.
func (j *joining) member() *node.Node {
	w := network{now: j.now, change: func(c *node.Config) { c.Bootstrap = true }}
	j.peer = w.start("member", 9)
	j.peer.Ready(j.now)
	return j.peer
}

// confirm makes the member m answer a challenge, which shows the node that m is running.
func (j *joining) confirm(m *node.Node) {
	meet(j.now, j.n, m)
	j.n.Receive(j.now, lease.Encode(m.Leases().Echo(j.now, j.n.Leases().Challenge(j.now, 7))))
}

// answers delivers the packets of a member to the node.
func (j *joining) answers(m *node.Node) {
	for _, p := range m.Ready(j.now).Packets {
		if p.To == "self" {
			j.n.Receive(j.now, p.Bytes)
		}
	}
}

func numbered(n int) (addrs []string) {
	for i := range n {
		addrs = append(addrs, fmt.Sprint(i))
	}
	return addrs
}

// Each case specifies how the first join ends, and after how many seconds and exchanges.
func TestFirstJoin(t *testing.T) {
	const alone = "no seed answered; continuing alone and retrying, joined false"
	const stuck = "waiting for a seed that does not answer"
	const first = "seed did not answer; trying again, "
	for name, tt := range map[string]struct {
		seeds  []string
		names  string // addresses of the seed name; "-" = the name does not exist
		errs   map[string]error
		took   [2]float64 // minimum and maximum, in seconds
		dialed int
		log    string
		err    error
	}{
		"no seed":          {log: "joined false"},
		"this node itself": {seeds: []string{"self"}, log: "joined false"},
		"one of two": {
			seeds:  []string{"a", "b", "b"},
			errs:   map[string]error{"a": nil},
			took:   [2]float64{0.01, 0.01},
			dialed: 2,
			log:    "joined true",
		},
		"none": {seeds: []string{"a"}, took: [2]float64{10, 12.5}, dialed: 4, log: first + alone},
		"refused": {
			seeds:  []string{"a"},
			errs:   map[string]error{"a": errRefused},
			took:   [2]float64{0.01, 0.01},
			dialed: 1,
			log:    strings.Trim(first, ", "),
			err:    errRefused,
		},
		"refused by one": {
			seeds:  []string{"a", "b"},
			errs:   map[string]error{"a": errRefused, "b": nil},
			took:   [2]float64{0.01, 0.01},
			dialed: 2,
			log:    first + "joined true",
		},
		"refused, silence": {
			seeds:  []string{"a", "b"},
			errs:   map[string]error{"a": errRefused},
			took:   [2]float64{2.5, 2.5},
			dialed: 8,
			log:    first + strings.Trim(first, ", "),
			err:    errRefused,
		},
		"hung up, a proxy": {
			seeds:  []string{"a"},
			errs:   map[string]error{"a": errHungUp},
			took:   [2]float64{10, 10.5},
			dialed: 27,
			log:    first + alone,
		},
		"refused, no DNS": {
			seeds:  []string{"a"},
			names:  "hangs",
			errs:   map[string]error{"a": errRefused},
			took:   [2]float64{5, 5},
			dialed: 14,
			log:    first + strings.Trim(first, ", "),
			err:    errRefused,
		},
		"stuck": {
			seeds:  []string{"a"},
			errs:   map[string]error{"a": errStuck},
			took:   [2]float64{20, 20},
			dialed: 54,
			log:    first + stuck,
		},
		"stuck, silence": {
			seeds:  []string{"a", "b"},
			errs:   map[string]error{"a": errStuck},
			took:   [2]float64{20, 20},
			dialed: 58,
			log:    first + stuck + ", " + strings.Trim(first, ", "),
		},
		"stuck and one": {
			seeds:  []string{"a", "b"},
			errs:   map[string]error{"a": errStuck, "b": nil},
			took:   [2]float64{0.01, 0.01},
			dialed: 2,
			log:    first + "joined true",
		},
		"a name":             {names: "self a", errs: map[string]error{"a": nil}, took: [2]float64{0.02, 0.02}, dialed: 1, log: "joined true"},
		"a name of itself":   {names: "self", took: [2]float64{10, 10}, log: "joined false"}, // other nodes may get the name later
		"a name without one": {names: "-", took: [2]float64{10, 10}, log: first + alone},
	} {
		j := newJoining(t, func(c *node.Config) {
			if c.Seeds = tt.seeds; tt.names != "" {
				c.SeedNames = []string{"name"}
			}
		})
		j.errs, j.names = tt.errs, map[string]string{"name": strings.Trim(tt.names, "-")}
		took := j.run(20*time.Second, true).Seconds()
		if took < tt.took[0] || took > tt.took[1] || !errors.Is(j.refused, tt.err) || j.n.View().Ended != (tt.err != nil) {
			t.Errorf("%s: ended after %v s with %v, want %v with %v", name, took, j.refused, tt.took, tt.err)
		}
		if log := strings.Join(j.log, ", "); log != tt.log || len(j.dialed) != tt.dialed {
			t.Errorf("%s: logged %q after %d exchanges, want %q after %d", name, log, len(j.dialed), tt.log, tt.dialed)
		}
	}
}

// A stuck seed is stopped, so it hangs up once. The node must keep trying.
func TestStuckSeedIsStopped(t *testing.T) {
	j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"a"} })
	j.errs = map[string]error{"a": errStuck}
	j.run(3*time.Second, false)
	j.errs = map[string]error{"a": errHungUp}
	for dialed := len(j.dialed); len(j.dialed) == dialed; {
		j.run(10*time.Millisecond, false)
	}
	j.errs = map[string]error{"a": errStuck}
	j.run(3*time.Second, false)
	if j.n.View().Ended || j.refused != nil {
		t.Errorf("gave up after one of %d tries was hung up: %v", len(j.dialed), j.refused)
	}
}

// A DNS lookup takes at most half of the time that is left for the join, so that there is time to try its addresses.
func TestLookupEndsWithinTheGrace(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{
		20 * time.Second:       node.LookupTime,
		2 * time.Second:        time.Second,
		100 * time.Millisecond: node.HangsAfter,
	} {
		w := newNetwork(t, func(c *node.Config) { c.SeedNames, c.StartupGrace = []string{"name"}, grace }, "a")
		n := w.start("b", 1)
		if l := n.Ready(w.now).Lookups; len(l) != 1 || l[0].Timeout != want {
			t.Errorf("with a grace of %v: %+v, want %v", grace, l, want)
		}
	}
}

// If seeds answer only over TCP, the node does not continue alone, and reports that UDP does not get through.
func TestNoUDP(t *testing.T) {
	j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"a"} })
	j.errs, j.deaf = map[string]error{"a": nil}, true
	j.run(time.Minute, true)
	why := j.n.View().Waits
	if j.n.View().Phase != node.Joining || why == nil || !strings.Contains(why.Error(), "UDP") ||
		len(j.dialed) < 20 || len(j.dialed) > 31 || len(j.log) != 1 {
		t.Errorf("it is %v after %d exchanges, waits because of %v; it logged %q", j.n.View().Phase, len(j.dialed), why, j.log)
	}
	j.deaf = false
	j.run(15*time.Second, false)
	if got := len(j.n.View().Live.Members); got != 2 {
		t.Errorf("%d members when UDP works again", got)
	}
}

// If only one of 24 seeds answers, a node finds it while its attempts at the other seeds are still running.
func TestSilentSeeds(t *testing.T) {
	seeds := func(c *node.Config) { c.Seeds = numbered(24) }
	silent := newJoining(t, seeds)
	silent.run(6*time.Second, false)
	j := newJoining(t, seeds)
	j.errs = map[string]error{silent.dialed[20]: nil}
	if took := j.run(10*time.Second, true); took != 510*time.Millisecond || len(j.dialed) != 24 {
		t.Errorf("joined after %v and %d exchanges", took, len(j.dialed))
	}
}

// If a node has more dead seeds than it can try within the grace period, it still tries each of them before it
// continues alone, and finds the only seed that answers.
func TestManyDeadSeeds(t *testing.T) {
	many := func(c *node.Config) { c.Seeds = numbered(2001) }
	dead := newJoining(t, many)
	took := dead.run(time.Minute, true)
	slices.Sort(dead.dialed)
	if n := len(slices.Compact(dead.dialed)); n != 2001 || dead.n.View().Phase == node.Joining {
		t.Errorf("it was alone after %v and tried %d seeds", took, n)
	}
	for _, last := range []string{"0", "1000", "2000"} {
		j := newJoining(t, many)
		j.errs = map[string]error{last: nil}
		if took := j.run(time.Minute, true); took > 15*time.Second || !slices.Contains(j.log, "joined true") {
			t.Errorf("seed %s: joined after %v: %q", last, took, j.log)
		}
	}
	// A seed that starts later is found as well, because a node that is alone tries every seed within minutes.
	dead.errs = map[string]error{"1000": nil}
	for limit := dead.now.Add(7 * time.Minute); len(dead.n.View().Live.Members) == 1; {
		if dead.run(time.Second, false); dead.now.After(limit) {
			t.Fatal("not found within 7 minutes")
		}
	}
}

// If no DNS server answers for some names, the node still tries addresses and other names without a delay. It also soon
// finds a seed that starts late.
func TestHungNames(t *testing.T) {
	for name, tt := range map[string]struct {
		seeds []string
		late  time.Duration
		limit time.Duration
	}{
		"an address":       {[]string{"a"}, 0, 10 * time.Millisecond},
		"a name":           {nil, 0, 20 * time.Millisecond},
		"an address, late": {[]string{"a"}, 3 * time.Second, 600 * time.Millisecond},
	} {
		j := newJoining(t, func(c *node.Config) { c.Seeds, c.SeedNames = tt.seeds, []string{"x", "name", "y"} })
		j.names = map[string]string{"x": "hangs", "y": "hangs", "name": "a"}
		j.errs = map[string]error{"a": errors.New("connection refused")}
		j.run(tt.late, false)
		j.errs["a"] = nil
		if took := j.run(20*time.Second, true); took > tt.limit {
			t.Errorf("%s: joined after %v, want %v", name, took, tt.limit)
		}
	}
}

// A seed that has already joined this node counts as an answer, even if the node's exchanges with the seed hang.
func TestSeedIsMember(t *testing.T) {
	w := newNetwork(t, nil, "a")
	j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"a"} })
	j.confirm(w.nodes["a"])
	j.n.Merge(j.now, w.nodes["a"].Sync(w.now))
	if j.run(5*time.Second, true); j.log[0] != "joined true" || len(j.dialed) > 0 {
		t.Errorf("%v after %d exchanges", j.log, len(j.dialed))
	}
}

// A join ends when the full state from an exchange is confirmed. No other message may end it, because other messages
// may name only a few of the members.
func TestJoinsByFullState(t *testing.T) {
	w := newNetwork(t, nil, "a")
	j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"seed"} })
	j.errs, j.deaf = map[string]error{"seed": nil}, true
	j.run(500*time.Millisecond, false)
	first := j.peer
	j.confirm(w.nodes["a"])
	j.n.Receive(j.now, w.nodes["a"].Sync(w.now))
	if j.n.Leases().AddrOf(w.nodes["a"].Handle()) == "" || j.n.View().Phase != node.Joining {
		t.Fatalf("it is %v by the packet of a member that it did not ask", j.n.View().Phase)
	}
	j.n.Receive(j.now, first.Sync(j.now)) // packets from the seed must not displace its state
	j.run(node.ConfirmTime-600*time.Millisecond, false)
	if j.confirm(first); j.n.View().Phase == node.Joining || j.n.Leases().AddrOf(first.Handle()) == "" {
		t.Errorf("it is %v when the seed has answered", j.n.View().Phase)
	}
}

// A full state may wait for its confirmation for the whole confirmTime, even if packets of the same sender have already
// waited for some time. Packets do not displace it.
func TestStateWaitsLongEnough(t *testing.T) {
	w := newNetwork(t, nil, "a")
	a := w.nodes["a"]
	n, message := w.outsider("n")
	for range node.MaxWaiting {
		a.Receive(w.now, message)
	}
	w.run(node.ConfirmTime - 10*time.Millisecond)
	a.Merge(w.now, message)
	a.Receive(w.now, message)
	w.run(node.ConfirmTime - 10*time.Millisecond)
	if senders, size := a.Waiting(); senders != 1 || size != node.MaxWaiting*len(message) {
		t.Fatalf("%d senders wait, with %d bytes", senders, size)
	}
	a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, &lease.Message{Challenge: a.Leases().StreamNonce(w.now, 7)})))
	if _, size := a.Waiting(); size != len(message) {
		t.Fatalf("when the packets count, %d bytes wait, want those of the state: %d", size, len(message))
	}
	a.Receive(w.now, lease.Encode(n.Leases().Echo(w.now, a.Leases().Challenge(w.now, 7))))
	if _, size := a.Waiting(); a.Leases().AddrOf(n.Handle()) == "" || size != 0 {
		t.Errorf("the state does not count; %d bytes wait", size)
	}
}

// Every 8 to 12 s, a member tries a few of the seeds that are not members.
func TestHeal(t *testing.T) {
	w := newNetwork(t, nil, "a")
	j := newJoining(t, func(c *node.Config) { c.Seeds, c.Bootstrap = append(numbered(20), "a", "self"), true })
	for i := range 122 {
		j.confirm(w.nodes["a"])
		j.n.Merge(j.now, w.nodes["a"].Sync(w.now))
		if i == 2 { // while the node settles, its first attempt also dials a member
			j.tried, j.dialed = nil, nil
		}
		j.run(time.Second, false)
		w.run(time.Second)
	}
	if len(j.tried) < 9*8 || len(j.tried) > 15*8 || slices.Contains(j.dialed, "a") || slices.Contains(j.dialed, "self") {
		t.Errorf("%d exchanges in 2 minutes with %v", len(j.tried), j.dialed)
	}
	for i := 8; i < len(j.tried); i += 8 {
		if j.tried[i-1] != j.tried[i-8] || j.tried[i]-j.tried[i-1] < 7990*time.Millisecond || j.tried[i]-j.tried[i-1] > 12010*time.Millisecond {
			t.Errorf("exchanges at %v", j.tried)
			break
		}
	}
}

// After a fence, a node tries its seeds and its former members, no matter how long the pause was, and joins again only
// when one of them answers. A refusal does not end the node. The answer to an exchange from before the fence is
// ignored.
func TestRejoin(t *testing.T) {
	for _, pause := range []time.Duration{7 * time.Second, time.Hour} {
		w := newNetwork(t, nil, "a")
		j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"b"} })
		j.errs = map[string]error{"b": nil}
		j.run(time.Second, false)
		j.confirm(w.nodes["a"])
		j.n.Merge(j.now, w.nodes["a"].Sync(w.now))
		j.run(5*time.Second, false)
		j.errs, j.dialed, j.deaf = map[string]error{"b": errRefused}, nil, true
		for limit := j.now.Add(13 * time.Second); len(j.dialed) == 0 && j.now.Before(limit); {
			j.run(10*time.Millisecond, false) // until it tries to heal
		}
		late := j.last
		j.dialed, j.now = nil, j.now.Add(pause)
		j.n.Ready(j.now)
		j.n.Exchanged(j.now, late, node.NoAnswer, nil)
		if j.n.View().Phase != node.Joining {
			t.Errorf("%v by an answer from before the fence", j.n.View().Phase)
		}
		j.run(5*time.Second, true)
		if !slices.Contains(j.dialed, "a") || !slices.Contains(j.dialed, "b") || j.n.View().Phase != node.Joining {
			t.Errorf("after %v it is %v and tried %v", pause, j.n.View().Phase, j.dialed)
		}
		j.errs["a"], j.deaf = nil, false
		if took := j.run(5*time.Second, true); j.n.View().Phase == node.Joining {
			t.Errorf("not joined %v after a member answers", took)
		}
	}
}

// The first member that a node hears from after a fence may be the only member it knows so far, so the node dials this
// member.
func TestRejoinTriesMembers(t *testing.T) {
	w := newNetwork(t, nil, "a")
	j := newJoining(t, func(c *node.Config) { c.Seeds, c.Bootstrap = []string{"a"}, true })
	j.run(time.Second, false)
	j.now = j.now.Add(time.Minute)
	j.n.Ready(j.now)
	for discarded := -1; discarded != int(j.n.View().Stats.StaleDropped); j.now = j.now.Add(10 * time.Millisecond) {
		discarded = int(j.n.View().Stats.StaleDropped)
		j.n.Receive(j.now, w.nodes["a"].Sync(j.now))
	}
	j.confirm(w.nodes["a"])
	j.n.Merge(j.now, w.nodes["a"].Sync(j.now))
	if j.run(10*time.Millisecond, false); j.n.View().Phase != node.Joining || !slices.Contains(j.dialed, "a") {
		t.Errorf("it is %v and tried %v", j.n.View().Phase, j.dialed)
	}
}

// A recorded message that an attacker sends a hundred times a second must not keep out a newcomer with a wrong clock.
func TestReplayKeepsNobodyOut(t *testing.T) {
	w := newNetwork(t, nil, "a", "b", "c")
	gone := newNetwork(t, func(c *node.Config) { c.Bootstrap = true }, "gone")
	recorded := gone.nodes["gone"].Sync(gone.now)
	w.run(30 * time.Second)
	w.clock["n"] = -time.Hour
	w.now = w.now.Add(-time.Hour) // the node's clock when it starts
	w.add("n")
	w.now = w.now.Add(time.Hour)
	for range 500 {
		n := w.nodes["n"]
		n.Receive(w.at("n"), recorded)
		w.run(10 * time.Millisecond)
		if n.View().Phase != node.Joining && len(n.View().Live.Members) == 1 {
			t.Fatal("joined by an answer without members")
		}
	}
	w.agreed(t)
}

// When the seeds of a joining node change, it tries the new seeds immediately, and no longer tries the old ones.
func TestNewSeedsWhileItJoins(t *testing.T) {
	j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"old"} })
	if j.run(time.Second, false); !slices.Contains(j.dialed, "old") {
		t.Fatalf("tried %v", j.dialed)
	}
	j.n.SetSeeds(j.now, []string{"new"}, nil)
	j.dialed = nil
	if j.run(10*time.Millisecond, false); !slices.Equal(j.dialed, []string{"new"}) {
		t.Errorf("tried %v at once", j.dialed)
	}
	if j.run(3*time.Second, false); slices.Contains(j.dialed, "old") {
		t.Errorf("tried %v", j.dialed)
	}
}

// A node is waiting for a stuck seed when its seeds change. It must not continue alone, but join through the new seed.
func TestNewSeedsOfAStuckJoin(t *testing.T) {
	for _, names := range [][]string{nil, {"name"}, {"other"}} {
		j := newJoining(t, func(c *node.Config) { c.Seeds, c.SeedNames, c.StartupGrace = nil, []string{"name"}, time.Second })
		j.names, j.errs = map[string]string{"name": "stuck", "other": "dead"}, map[string]error{"stuck": errSlow, "new": nil}
		j.run(9*time.Second, false)
		j.n.SetSeeds(j.now, []string{"new"}, names)
		j.run(3*time.Second, false)
		if !slices.Contains(j.log, "joined true") || !slices.Contains(j.dialed, "new") {
			t.Errorf("names %v: %v, tried %v", names, j.log, j.dialed)
		}
	}
}

// The seeds change while the node tries an address of a name that remains a seed. The answer from this address must
// still count, although the name is not resolved again. This must also hold if the address was a target for another
// reason.
func TestNewSeedsKeepTheirAddresses(t *testing.T) {
	for what, tt := range map[string]struct {
		seeds, names []string
		member       bool // has dialed the node before
	}{
		"of the name alone":       {nil, []string{"name"}, false},
		"that was given, too":     {[]string{"a"}, []string{"name"}, false},
		"of a member":             {nil, []string{"name"}, true},
		"of two names":            {nil, []string{"name", "other"}, false},
		"of two names, reordered": {nil, []string{"other", "name"}, false},
	} {
		w := newNetwork(t, nil, "a")
		j := newJoining(t, func(c *node.Config) { c.Seeds, c.SeedNames = tt.seeds, tt.names })
		j.names, j.errs = map[string]string{"name": "a", "other": "a"}, map[string]error{"a": errors.New("connection refused")}
		if tt.member {
			j.n.Merge(j.now, w.nodes["a"].Sync(w.now))
		}
		j.run(time.Second, false)
		j.errs["a"] = nil
		for tries := len(j.dialed); len(j.dialed) == tries; {
			j.run(10*time.Millisecond, false)
		}
		j.names["name"] = "hangs"
		j.n.SetSeeds(j.now, nil, []string{"name"})
		if j.run(10*time.Millisecond, true); j.n.View().Phase == node.Joining {
			t.Errorf("the address %s: not joined by its answer", what)
		}
	}
}

// Members dial a joining node, but packets do not get through. The node dials the members, too, and does not continue
// alone.
func TestDialedByMembers(t *testing.T) {
	w := newNetwork(t, nil, "a", "b")
	w.change = func(c *node.Config) { c.Seeds = []string{"dead"} }
	n := w.start("n", 1)
	for i := range 6000 {
		w.run(10 * time.Millisecond)
		if i%100 == 0 {
			n.Merge(w.now, w.nodes["a"].Sync(w.now))
		}
		for _, x := range n.Ready(w.now).Exchanges {
			if to := w.nodes[x.Addr]; to != nil {
				n.Merge(w.now, to.Sync(w.now))
				n.Exchanged(w.now, x, node.NoAnswer, nil)
			} else {
				n.Exchanged(w.now, x, node.NoAnswer, errors.New("connection refused"))
			}
		}
	}
	if n.View().Phase != node.Joining || n.View().Waits == nil {
		t.Errorf("it is %v, and waits for %v", n.View().Phase, n.View().Waits)
	}
}

// If nobody in the cluster owns anything, an undrained node owns its partitions immediately, because no other node has
// to release them first.
func TestUndrainAlone(t *testing.T) {
	w := newNetwork(t, func(c *node.Config) { c.Debounce = time.Second }, "a")
	w.nodes["a"].Drain(w.now)
	w.run(5 * time.Second)
	w.nodes["a"].Undrain(w.now)
	if w.run(10 * time.Millisecond); w.owned("a") != 8 {
		t.Errorf("owns %d partitions of 8", w.owned("a"))
	}
}

// A recorded state leads a newcomer to an address where a node of another cluster, or with other settings, runs now.
// The refusal of that node must not end the newcomer.
func TestRecordedStateEndsNoNewcomer(t *testing.T) {
	for _, reason := range []node.Reason{node.Refused, node.OtherCluster} {
		w := newNetwork(t, nil, "a", "b")
		w.change = func(c *node.Config) { c.Seeds = []string{"dead"} }
		n := w.start("n", 1)
		state, led := w.nodes["a"].Sync(w.now), 0
		for i := range 1000 {
			if w.run(10 * time.Millisecond); i == 50 {
				n.Merge(w.now, state)
			}
			r := n.Ready(w.now)
			if r.Hopeless != nil {
				t.Fatalf("reason %v: it ended after %d ms: %v", reason, i*10, r.Hopeless)
			}
			for _, x := range r.Exchanges {
				if x.Addr == "a" {
					led++
					n.Exchanged(w.now, x, reason, errors.New("other settings"))
				} else {
					n.Exchanged(w.now, x, node.NoAnswer, errors.New("connection refused"))
				}
			}
		}
		if led == 0 {
			t.Error("it did not try the address")
		}
	}
}

// A member dials a newcomer, and the address of the member turns out to be the address of a seed. If this member
// refuses the newcomer, the newcomer ends, as it does when any other seed refuses it.
func TestMemberIsSeed(t *testing.T) {
	for what, tell := range map[string]func(j *joining){
		"by its name":  func(j *joining) { j.names = map[string]string{"name": "a"} },
		"by new seeds": func(j *joining) { j.n.SetSeeds(j.now, []string{"a"}, nil) },
	} {
		w := newNetwork(t, nil, "a")
		j := newJoining(t, func(c *node.Config) { c.SeedNames = []string{"name"} })
		j.errs = map[string]error{"a": errRefused}
		j.n.Merge(j.now, w.nodes["a"].Sync(w.now))
		if j.run(time.Second, true); j.refused != nil || !slices.Contains(j.dialed, "a") {
			t.Fatalf("%s: refused as a member: %v; tried %v", what, j.refused, j.dialed)
		}
		tell(j)
		if j.run(20*time.Second, true); !errors.Is(j.refused, errRefused) {
			t.Errorf("%s: it is %v, %v", what, j.n.View().Phase, j.refused)
		}
	}
}

// A seed refuses a newcomer while the newcomer dials a member. The newcomer ends only if the member does not answer
// either.
func TestRefusedWhileItDialsBack(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := newNetwork(t, nil, "member")
		member := w.nodes["member"]
		j := newJoining(t, func(c *node.Config) { c.Seeds = []string{"seed"} })
		begin := func() node.Exchange {
			x := j.n.Ready(j.now).Exchanges
			if len(x) != 1 {
				t.Fatalf("%d exchanges begin", len(x))
			}
			return x[0]
		}
		refused := begin()
		j.n.Merge(j.now, member.Sync(w.now))
		dialed := begin()
		j.n.Exchanged(j.now, refused, node.Refused, errRefused)
		if err := j.n.Ready(j.now).Hopeless; err != nil {
			t.Fatalf("ended before %s answers: %v", dialed.Addr, err)
		}
		if answers {
			j.confirm(member)
			j.n.Merge(j.now, member.Sync(w.now))
			j.n.Exchanged(j.now, dialed, node.NoAnswer, nil)
		} else {
			j.n.Exchanged(j.now, dialed, node.NoAnswer, errors.New("timed out"))
		}
		err := j.n.Ready(j.now).Hopeless
		if errors.Is(err, errRefused) == answers || j.n.View().Ended == answers || j.n.View().Phase == node.Joining {
			t.Errorf("the member answers: %v; the newcomer is %v, %v", answers, j.n.View().Phase, err)
		}
	}
}
