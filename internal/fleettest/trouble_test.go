package fleettest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/internal/redistest"
)

const (
	// budget is the default of affinity.Config.Budget.
	budget = 150 * time.Millisecond

	// late is how much a join exceeds the budget if it waits for the store (see stopwatch). A client gives up a hanging
	// server after more than 2 s, and joins must not wait that long.
	late = 1500 * time.Millisecond
)

// site is some kind of Redis installation with a fault.
type site struct {
	url, direct string // the URL for the nodes, and the URL that bypasses the link
	servers     []*redistest.Server
	begin, end  func()
	lossy       bool // confirmed pins may be lost
}

func alone(t *testing.T) (*redistest.Server, site) {
	redis := redistest.Start(t)
	return redis, site{url: redis.URL(), direct: redis.URL(), servers: []*redistest.Server{redis}}
}

func linked(t *testing.T, begin func(*redistest.Link)) site {
	redis, s := alone(t)
	link := redistest.Proxy(t, redis.Addr())
	s.url = link.URL(redis)
	s.begin = func() { begin(link) }
	s.end = link.Heal
	return s
}

// failover returns a site in which the master is killed.
func failover(t *testing.T, prepare func(master, replica *redistest.Server)) site {
	sentinel := redistest.StartSentinel(t)
	return site{
		url: sentinel.URL(), direct: sentinel.URL(),
		begin: func() {
			master := sentinel.Master()
			replica := sentinel.Servers()[0]
			if replica == master {
				replica = sentinel.Servers()[1]
			}
			prepare(master, replica)
			master.Kill()
		},
		end: func() { sentinel.Master() },
	}
}

// troubles returns the faults by name. Each Redis is only started when its test runs.
func troubles() map[string]func(*testing.T) site {
	return map[string]func(*testing.T) site{
		"down": func(t *testing.T) site {
			redis, s := alone(t)
			s.begin = func() { noScan(t, redis); redis.Kill() }
			s.end, s.lossy = redis.Restart, true
			return s
		},
		"stopped": func(t *testing.T) site {
			redis, s := alone(t)
			s.begin, s.end = redis.Pause, redis.Resume
			return s
		},
		"link hangs":  func(t *testing.T) site { return linked(t, (*redistest.Link).Hang) },
		"link is cut": func(t *testing.T) site { return linked(t, (*redistest.Link).Cut) },
		"link is slow": func(t *testing.T) site {
			return linked(t, func(l *redistest.Link) { l.Delay(200 * time.Millisecond) })
		},
		"loading": func(t *testing.T) site {
			redis, s := alone(t)
			var finish func()
			s.begin = func() { noScan(t, redis); finish = redis.RestartLoading() }
			s.end = func() { finish() }
			return s
		},
		"read-only": func(t *testing.T) site {
			redis, s := alone(t)
			s.begin = func() { redis.ReadOnly(true) }
			s.end = func() { redis.ReadOnly(false) }
			return s
		},
		"out of memory": func(t *testing.T) site {
			redis, s := alone(t)
			s.begin = func() { redis.Full(true) }
			s.end = func() { redis.Full(false) }
			return s
		},
		"failover": func(t *testing.T) site {
			return failover(t, func(master, _ *redistest.Server) {
				master.WaitReplicas(1) // keeps all confirmed pins
			})
		},
		"failover that forgets all": func(t *testing.T) site {
			s := failover(t, func(_, replica *redistest.Server) {
				replica.Do("CONFIG", "SET", "replica-read-only", "no")
				replica.Do("FLUSHALL")
			})
			s.lossy = true
			return s
		},
		"cluster loses a master": func(t *testing.T) site {
			cluster := redistest.StartCluster(t, 3, 1)
			return site{
				url: cluster.URL(), direct: cluster.URL(),
				begin: func() {
					master := cluster.Owner("roost:lives") // losing this master is the worst case
					master.WaitReplicas(1)
					master.Kill()
				},
				end: cluster.WaitOK,
			}
		},
	}
}

// During every kind of Redis outage, joins return in time and hosted rooms keep their hosts. Afterwards, the store
// decides again, and all pins exist.
func TestRedisInTrouble(t *testing.T) {
	long(t)
	t.Parallel()
	for name, start := range troubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			f := newFleet(t, setup{URL: s.url}, "a", "b", "c")
			rooms := names(60)
			f.scatter(rooms)
			hosted := f.host(rooms, 3)
			look := newEye(t, s.direct)
			before := look.mustPins(rooms)

			// No client joins the other half of the rooms, so their hosts have to pin them again.
			joined := rooms[:len(rooms)/2]
			f.introduce(joined)
			l := f.load(joined, "during-")
			s.begin()
			redistest.Eventually(t, "a degraded answer", func() error {
				if l.degraded() == 0 {
					return errNotYet
				}
				return nil
			})
			settle(t, "in trouble", 1500*time.Millisecond, func() error { return allHosted(hosted) })
			s.end()
			ended := time.Now()
			redistest.Eventually(t, "the end of the trouble", func() error {
				if err := allHosted(hosted); err != nil {
					t.Fatal(err)
				}
				return errors.Join(f.wellAgain(), look.pinned(hosted))
			})
			t.Logf("healthy again after %v", time.Since(ended).Round(10*time.Millisecond))
			l.stop()
			l.report()
			for room, pin := range look.mustPins(rooms) {
				if was := before[room]; pin.Incarnation != was.Incarnation || pin.Epoch < was.Epoch || (!s.lossy && pin.Epoch != was.Epoch) {
					t.Errorf("%s is pinned to %#v, and was to %#v", room, pin, was)
				}
			}
			noScan(t, s.servers...)
		})
	}
}

// scatter moves every third room away from the node of its hash.
func (f *fleet) scatter(rooms []string) {
	f.t.Helper()
	a := f.nodes[0].rooms
	for i := 0; i < len(rooms); i += 3 {
		redistest.Eventually(f.t, "moving "+rooms[i], func() error { // Redis Cluster starts slowly
			if _, err := a.Resolve(f.t.Context(), rooms[i], affinity.Demand{Size: 3}); err != nil {
				return err
			}
			_, err := a.Move(f.t.Context(), rooms[i], f.nodes[0].agent.Owners(rooms[i], 2)[1].ID)
			return err
		})
	}
}

// introduce makes every node cache the pins. Otherwise, if the store has lost a pin and a busy machine delays the
// room's host, a node could claim the room for another node.
func (f *fleet) introduce(rooms []string) {
	f.t.Helper()
	for _, n := range f.nodes {
		for _, room := range rooms {
			redistest.Eventually(f.t, "introducing "+room, func() error {
				a, err := n.rooms.Resolve(f.t.Context(), room, affinity.Demand{})
				if err == nil && a.Epoch == 0 {
					err = errNotYet
				}
				return err
			})
		}
	}
}

// allHosted returns an error if any room is lost.
func allHosted(hosted map[*affinity.Hosting]*node) error {
	for h := range hosted {
		if lost(h) {
			return fmt.Errorf("%s is lost: %w", h.Room(), h.Err())
		}
	}
	return nil
}

// wellAgain returns nil if at each node, the store decides about a new room.
func (f *fleet) wellAgain() error {
	for _, n := range f.nodes {
		room := fmt.Sprint("probe-", rand.Uint64())
		if a, err := n.rooms.Resolve(f.t.Context(), room, affinity.Demand{}); err != nil || a.Source == affinity.Degraded {
			return fmt.Errorf("%s says %#v, %w", n.incarnation(), a, err)
		}
		if n.rooms.Stats().StoreDoubt { // a breaker only closes during a call
			return fmt.Errorf("%s does not reach the store", n.incarnation())
		}
	}
	return nil
}
