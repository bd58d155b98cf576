package fleettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/placement"
)

// cost is what an outage may do to rooms, according to the doc comment of package affinity.
type cost int

const (
	nothing cost = iota
	apart        // joins can open second hosts while Redis is away
	loses        // and another node can claim a room before its host knows that Redis has lost the pin
	evicts       // and another node can claim an evicted pin
)

// outage is a fault of some kind of Redis installation.
type outage struct {
	name  string
	short bool // also part of make test
	may   cost
	start func(*testing.T) (url string, fault func())
}

// inSlot is the partition of all rooms in TestOutages, so that all of them are in one slot.
const inSlot placement.Partition = 17

// outages returns all outages. Each Redis is only started when its test runs.
func outages() []outage {
	single := func(fault func(*redistest.Server), args ...string) func(*testing.T) (string, func()) {
		return func(t *testing.T) (string, func()) {
			redis := redistest.Start(t, args...)
			return redis.URL(), func() { fault(redis) }
		}
	}
	return []outage{
		{"FLUSHALL", true, loses, single(func(r *redistest.Server) { r.Do("FLUSHALL") })},
		{"restart, empty", false, loses, single((*redistest.Server).Restart)},
		{"restart from an RDB file, 1 s old", true, loses, single(func(r *redistest.Server) { r.Do("SAVE"); wait(time.Second); r.Restart() })},
		{"restart from an AOF", false, apart, single((*redistest.Server).Restart, "--appendonly", "yes")},
		{"SIGSTOP for 2 s", false, apart, single(func(r *redistest.Server) { r.Pause(); wait(2 * time.Second); r.Resume() })},
		{"eviction for 2 s", false, evicts, single(evict)},
		{"Sentinel fails over, 1 s of writes lost", false, loses, func(t *testing.T) (string, func()) {
			sentinel := redistest.StartSentinel(t)
			return sentinel.URL(), func() {
				master := sentinel.Master()
				// The replica cannot connect again, but Sentinel does not exclude it yet.
				master.Do("ACL", "SETUSER", "default", "-psync", "-sync")
				master.Do("CLIENT", "KILL", "TYPE", "replica")
				wait(time.Second)
				master.Kill()
				sentinel.Master()
			}
		}},
		{"Cluster moves the slot", false, nothing, func(t *testing.T) (string, func()) {
			cluster := redistest.StartCluster(t, 3, 0)
			return cluster.URL(), func() {
				for range 2 {
					cluster.Migrate(fmt.Sprintf("roost:{%d}:l", inSlot), 5*time.Millisecond)
				}
			}
		}},
	}
}

// evict makes a server evict keys on each write.
func evict(r *redistest.Server) {
	for line := range strings.Lines(r.Do("INFO", "memory")) {
		used, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:")
		if n, err := strconv.Atoi(used); ok && err == nil {
			r.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", strconv.Itoa(n-10<<10))
		}
	}
	wait(2 * time.Second)
	r.Do("CONFIG", "SET", "maxmemory", "0")
}

// toll is the damage that an outage has caused.
type toll struct {
	lost    int           // rooms that lost their host, although no other node hosts them
	yielded int           // hosts that gave up a room because of a second host
	doubled int           // rooms that had two hosts at the same time
	longest time.Duration // of these
	fallen  int           // epochs: of a hosting, of the next hosting of a room, or as one node resolves a room
}

func (l toll) String() string {
	return fmt.Sprintf("| %d | %d | %d, %v | %d |", l.lost, l.yielded, l.doubled, l.longest.Round(time.Millisecond), l.fallen)
}

// census watches the rooms of a fleet while clients join and leave.
type census struct {
	*stage
	homes map[string]*affinity.Hosting // rooms that never end

	mu      sync.Mutex
	toll    toll
	since   map[string]time.Time         // when a second host was seen
	hosting map[string]uint64            // the largest epoch of the ended hostings of a room
	seen    map[string]uint64            // the epoch of a room at a node
	epochs  map[*affinity.Hosting]uint64 // as last seen
}

// join makes a client join a room at a random node, and sometimes end the room.
func (c *census) join() {
	room, n := c.rooms[rand.IntN(len(c.rooms))], c.nodes[rand.IntN(len(c.nodes))]
	id := string(n.incarnation().Node) + " " + room
	c.mu.Lock()
	known, ended := c.seen[id], c.hosting[room]
	c.mu.Unlock()
	a, err := n.rooms.Resolve(context.Background(), room, affinity.Demand{Size: 2})
	if err != nil {
		c.t.Errorf("%s: %v", room, err)
		return
	}
	c.mu.Lock()
	if _, lasts := c.homes[room]; lasts && a.Epoch != 0 {
		c.fell(room+" as resolved", a.Epoch, known)
		c.seen[id] = max(c.seen[id], a.Epoch)
	}
	c.mu.Unlock()
	host := c.node(a.Node)
	h, err := host.rooms.Host(context.Background(), room, affinity.Demand{Size: 2})
	if err != nil {
		return // a real client would retry
	}
	c.stage.mu.Lock()
	_, open := c.all[h]
	c.all[h] = host
	c.stage.mu.Unlock()
	// While Redis has lost the pin of a hosting that is still open, a second host can begin and end.
	if epoch := h.Epoch(); !open && epoch != 0 && !lost(h) {
		c.mu.Lock()
		c.fell(room+" hosted again", epoch, ended)
		c.mu.Unlock()
	}
	if _, lasts := c.homes[room]; !lasts && rand.IntN(10) == 0 {
		_ = h.Release(context.Background())
	}
}

// fell counts an epoch that is smaller than an earlier epoch.
func (c *census) fell(what string, epoch, before uint64) {
	if epoch < before {
		if c.toll.fallen++; c.toll.fallen < 5 {
			c.t.Logf("%s: epoch %d after %d", what, epoch, before)
		}
	}
}

// look counts the faults that exist at this moment.
func (c *census) look() {
	c.stage.mu.Lock()
	all := maps.Clone(c.all)
	c.stage.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := make(map[string][]*affinity.Hosting)
	for h := range all {
		epoch := h.Epoch()
		c.fell(h.Room()+" as hosted", epoch, c.epochs[h])
		c.epochs[h] = epoch
		if lost(h) {
			c.hosting[h.Room()] = max(c.hosting[h.Room()], epoch)
			continue
		}
		hosts[h.Room()] = append(hosts[h.Room()], h)
	}
	for room, hs := range hosts {
		hs = slices.DeleteFunc(hs, lost) // in between
		since, was := c.since[room]
		switch {
		case len(hs) > 1 && !was:
			c.since[room], c.toll.doubled = time.Now(), c.toll.doubled+1
		case len(hs) > 1:
			c.toll.longest = max(c.toll.longest, time.Since(since))
		case was:
			delete(c.since, room)
		}
	}
}

// inPartition returns n rooms in the given partition.
func inPartition(p placement.Partition, n int) (rooms []string) {
	for i := 0; len(rooms) < n; i++ {
		if room := fmt.Sprint("room-", i); placement.Of(room, partitions) == p {
			rooms = append(rooms, room)
		}
	}
	return rooms
}

// Redis loses some or all of its data, or is away for a moment, while clients join rooms at any node and end some of
// them. No room loses its host, no room has two hosts, and no epoch decreases, except as described in the doc comment
// of package affinity.
func TestOutages(t *testing.T) {
	long(t)
	t.Parallel()
	for _, o := range outages() {
		if !o.short && !*whole {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			url, fault := o.start(t)
			f := newFleet(t, setup{URL: url}, "a", "b", "c")
			c := &census{
				stage: &stage{fleet: f, rooms: inPartition(inSlot, 60), all: make(map[*affinity.Hosting]*node)},
				homes: make(map[string]*affinity.Hosting), since: make(map[string]time.Time), hosting: make(map[string]uint64),
				seen: make(map[string]uint64), epochs: make(map[*affinity.Hosting]uint64),
			}
			c.scatter(c.rooms)
			for h, n := range f.host(c.rooms, 2) {
				c.all[h] = n
				if slices.Index(c.rooms, h.Room())%2 == 0 {
					c.homes[h.Room()] = h
				}
			}
			l := newLoad(t)
			l.run(12*time.Millisecond, c.join)
			watch := newLoad(t)
			watch.wait.Go(func() {
				for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
					c.look()
					select {
					case <-watch.quit:
						return
					default:
					}
				}
			})
			wait(300 * time.Millisecond)
			fault()
			eye := newEye(t, url)
			redistest.Eventually(t, "all rooms to be hosted", func() error { return c.hosted(eye) })
			wait(time.Second)
			l.stop()
			watch.stop()
			redistest.Eventually(t, "all rooms to be hosted in the end", func() error { return c.hosted(eye) })
			c.look()
			for room, h := range c.homes {
				switch {
				case !lost(h):
					continue
				case errors.Is(h.Err(), affinity.ErrSplit), o.may >= loses && errors.Is(h.Err(), affinity.ErrNotOwner):
					c.toll.yielded++
				default:
					c.toll.lost++
				}
				t.Logf("%s: %v", room, h.Err())
			}
			t.Logf("| %s %v", o.name, c.toll)
			if o.may != evicts && (c.toll.lost > 0 || c.toll.fallen > 0 || c.toll.longest > timeout/6) {
				t.Error("want no room lost, no epoch that falls, and one host of a room at last")
			}
			if o.may == nothing && c.toll.doubled+c.toll.yielded > 0 {
				t.Error("want one host of each room")
			}
		})
	}
}
