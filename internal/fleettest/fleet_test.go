package fleettest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// timeout is the time limit of a call on a busy machine.
const timeout = 60 * time.Second

// long skips a test that takes seconds, if -short is set.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// settle checks that a condition remains true for a while. Use it for events that must not happen.
func settle(t *testing.T, what string, d time.Duration, f func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// fleet is a cluster of nodes in this process.
type fleet struct {
	t     *testing.T
	setup setup // except for ID and Join
	nodes []*node
}

// clusters is used to give each cluster a different name, because ports are reused.
var clusters atomic.Int64

func clusterName() string { return fmt.Sprint("fleet-", os.Getpid(), "-", clusters.Add(1)) }

// capacity is the capacity of every node in forwarded streams, unless a test sets another capacity.
const capacity = 1_000_000

func newFleet(t *testing.T, s setup, ids ...string) *fleet {
	t.Helper()
	s.Cluster = clusterName()
	if s.Capacity == 0 {
		s.Capacity = capacity
	}
	if s.TTL == 0 {
		s.TTL = 30 * time.Second // no lease expires here, even on a busy machine
	}
	if s.Budget == timeout {
		s.URL = redistest.Patient(s.URL)
	}
	f := &fleet{t: t, setup: s}
	for _, id := range ids {
		f.start(id)
	}
	f.waitAgreed()
	return f
}

// start adds a node, and does not wait for the other nodes.
func (f *fleet) start(id string) {
	f.t.Helper()
	s := f.setup
	s.ID = id
	if len(f.nodes) > 0 {
		s.Join = []string{f.nodes[0].agent.Addr()}
	}
	n, err := startNode(f.t.Context(), s)
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes = append(f.nodes, n)
	f.t.Cleanup(n.close)
}

// waitAgreed waits until each node sees all nodes and their loads.
func (f *fleet) waitAgreed() {
	f.t.Helper()
	redistest.Eventually(f.t, "all nodes to agree", func() error {
		for _, n := range f.nodes {
			s := n.agent.Snapshot()
			if len(s.Members) != len(f.nodes) || !s.Converged() {
				return fmt.Errorf("%s sees %d members, converged: %t", s.Self.ID, len(s.Members), s.Converged())
			}
			for _, m := range s.Members {
				if m.Load == lease.NoLoad {
					return fmt.Errorf("%s does not know the load of %s", s.Self.ID, m.ID)
				}
			}
		}
		return nil
	})
}

func (f *fleet) node(id lease.NodeID) *node {
	f.t.Helper()
	for _, n := range f.nodes {
		if n.agent.Snapshot().Self.ID == id {
			return n
		}
	}
	f.t.Fatalf("there is no node %q here", id)
	return nil
}

// host resolves each room at some node, and hosts it on the node that was returned.
func (f *fleet) host(rooms []string, size int) map[*affinity.Hosting]*node {
	f.t.Helper()
	hostings, at := make([]*affinity.Hosting, len(rooms)), make([]*node, len(rooms))
	each(64, rooms, func(i int, room string) {
		// On a busy machine, either call may come too early.
		redistest.Eventually(f.t, "hosting "+room, func() error {
			a, err := f.nodes[i%len(f.nodes)].rooms.Resolve(f.t.Context(), room, affinity.Demand{Size: size})
			if err != nil {
				return err
			}
			at[i] = f.node(a.Node)
			hostings[i], err = at[i].rooms.Host(f.t.Context(), room, affinity.Demand{Size: size})
			if err == nil && hostings[i].Epoch() == 0 {
				err = errNotYet
			}
			return err
		})
	})
	hosted := make(map[*affinity.Hosting]*node)
	for i, h := range hostings {
		hosted[h] = at[i]
	}
	return hosted
}

func names(n int) []string {
	rooms := make([]string, n)
	for i := range rooms {
		rooms[i] = fmt.Sprint("room-", i)
	}
	return rooms
}

func lost(h *affinity.Hosting) bool {
	select {
	case <-h.Lost():
		return true
	default:
		return false
	}
}

// eye reads pins directly from the store.
type eye struct {
	t     testing.TB
	store *redisstore.Store
}

func newEye(tb testing.TB, url string) *eye {
	tb.Helper()
	redis, err := rueidisconn.Open(tb.Context(), rueidisconn.Options{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	store, err := redisstore.New(redis, redisstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close() })
	return &eye{tb, store}
}

// pins reads the pins of rooms directly, without an index. It omits the mark of a pin that replaces another node's pin,
// because this mark disappears when the host writes the pin.
func (e *eye) pins(rooms []string) (map[string]pinstore.Pin, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	found := make(map[string]pinstore.Pin)
	for some := range slices.Chunk(rooms, 1000) {
		ops := make([]pinstore.Op, len(some))
		for i, room := range some {
			ops[i] = pinstore.Op{Partition: placement.Of(room, partitions), Room: room}
		}
		for i, r := range e.store.Swap(ctx, ops...) {
			if r.Err != nil {
				return nil, r.Err
			}
			if r.Pin != (pinstore.Pin{}) {
				r.Pin.Needs, _, _ = strings.Cut(r.Pin.Needs, "replaced=")
				found[some[i]] = r.Pin
			}
		}
	}
	return found, nil
}

// pinned returns nil if all rooms that are still hosted are pinned to the nodes that host them.
func (e *eye) pinned(hosted map[*affinity.Hosting]*node) error {
	var rooms []string
	for h := range hosted {
		if !lost(h) {
			rooms = append(rooms, h.Room())
		}
	}
	pins, err := e.pins(rooms)
	if err != nil {
		return err
	}
	for h, n := range hosted {
		epoch := h.Epoch()
		if pin := pins[h.Room()]; !lost(h) && (pin.Incarnation != n.incarnation() || pin.Epoch != epoch) {
			return fmt.Errorf("%s is hosted by %v with epoch %d, and pinned to %#v", h.Room(), n.incarnation(), epoch, pin)
		}
	}
	return nil
}

func (e *eye) mustPins(rooms []string) map[string]pinstore.Pin {
	e.t.Helper()
	var found map[string]pinstore.Pin
	redistest.Eventually(e.t, "the pins", func() (err error) { // the first connection can be late on a busy machine
		found, err = e.pins(rooms)
		return err
	})
	return found
}

// of returns how many rooms are pinned to an incarnation, according to the index.
func (e *eye) of(incarnation lease.Incarnation) (int, error) {
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	all := make([]placement.Partition, partitions)
	for i := range all {
		all[i] = placement.Partition(i)
	}
	found, err := e.store.Index(ctx, all, func(l lease.Incarnation) bool { return l == incarnation }, 1<<20)
	return len(found), err
}

// partitions is the default of cluster.Config.
const partitions = 1024

// noScan fails the test if any server has scanned its keys. If a test resets the counters of a server, call noScan
// before that, too.
func noScan(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		calls := s.Commands()
		for _, name := range []string{"keys", "scan", "zscan", "hscan", "sscan", "monitor", "randomkey"} {
			if calls[name] > 0 {
				t.Errorf("redis at %s received %d × %s", s.Addr(), calls[name], name)
			}
		}
	}
}

var errNotYet = errors.New("not yet")
