package affinity_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

const (
	ttl  = 6 * time.Second
	soon = 12 * time.Second // by then a crash has been noticed and repaired
)

// fleet is a cluster on virtual time with a shared store.
type fleet struct {
	*clustertest.Cluster
	t     *testing.T
	store pinstore.Store
	cfg   affinity.Config
	rooms map[string]*affinity.Resolver
}

// capacity is the capacity of every node of a fleet, in forwarded streams.
const capacity = 1000

// egress is how much every node of a fleet can send, in Mbit/s.
const egress = 10_000

// addrOf returns the address at which clients reach the application of a node.
func addrOf(id string) string { return id + ".example:443" }

func newFleet(t *testing.T, store pinstore.Store, cfg affinity.Config, ids ...string) *fleet {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &fleet{t: t, store: store, cfg: cfg, rooms: make(map[string]*affinity.Resolver)}
	f.Cluster = clustertest.New(t, clustertest.Options{Config: func(c *cluster.Config) {
		c.Capacity, c.Partitions, c.APIAddr = capacity, 64, addrOf(c.ID)
		c.Resources = map[string]int64{"cpu": 800, "egress": egress}
	}})
	f.start(ids...)
	return f
}

// inFleet runs a test in a bubble, with a fleet of the given nodes that share a Memory.
func inFleet(t *testing.T, ids string, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newFleet(t, pinstore.NewMemory(), affinity.Config{}, strings.Fields(ids)...))
	})
}

func (f *fleet) start(ids ...string) {
	f.t.Helper()
	f.Start(ids...)
	for _, id := range ids {
		f.resolver(id)
	}
	f.WaitAgreed(3 * time.Second)
	time.Sleep(5 * time.Second) // loads are reported
}

func (f *fleet) resolver(id string) {
	f.t.Helper()
	r, err := affinity.Start(f.Agent(id), f.store, f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.rooms[id] = r
	f.t.Cleanup(func() { _ = r.Close() })
	if !f.cfg.ReportLoad {
		f.Agent(id).SetLoad(0)
	}
}

// crash ends a node and its resolver as kill -9 does, without a leave message.
func (f *fleet) crash(id string) {
	f.rooms[id].Kill()
	delete(f.rooms, id)
	f.Crash(id)
}

func (f *fleet) resolve(id, room string, size int) affinity.Assignment {
	f.t.Helper()
	a, err := f.rooms[id].Resolve(f.t.Context(), room, affinity.Demand{Size: size})
	if err != nil {
		f.t.Fatalf("%s resolves %s: %v", id, room, err)
	}
	return a
}

// host resolves a room at one node, and hosts the room on the node that Resolve returned.
func (f *fleet) host(at, room string, size int) *affinity.Hosting {
	f.t.Helper()
	return f.hostAt(string(f.resolve(at, room, size).Node), room, size)
}

func (f *fleet) hostAt(id, room string, size int) *affinity.Hosting {
	f.t.Helper()
	h, err := f.rooms[id].Host(f.t.Context(), room, affinity.Demand{Size: size})
	if err != nil {
		f.t.Fatalf("%s hosts %s: %v", id, room, err)
	}
	return h
}

// move calls Move for the room r on the node at.
func (f *fleet) move(at, to string) affinity.Assignment {
	f.t.Helper()
	a, err := f.rooms[at].Move(f.t.Context(), "r", lease.NodeID(to))
	if err != nil {
		f.t.Fatalf("%s moves r to %s: %v", at, to, err)
	}
	return a
}

// resolveAll resolves n rooms at node a.
func (f *fleet) resolveAll(n int) {
	f.t.Helper()
	for _, room := range names(n) {
		f.resolve("a", room, 2)
	}
}

// published contains the batches of moves that a node published until the latest synctest.Wait.
type published []affinity.MovedBatch

func (p *published) moves() (all []affinity.Moved) {
	for _, b := range *p {
		all = append(all, b.Moved...)
	}
	return all
}

func (f *fleet) published(id string) *published {
	p := new(published)
	batches := f.rooms[id].Moves(f.t.Context())
	go func() {
		for b := range batches {
			*p = append(*p, b)
		}
	}()
	return p
}

// once fails the test unless the given number of rooms moved, and each move was published exactly once. The number must
// not be 0.
func (p *published) once(t *testing.T, moved int) map[string]affinity.Moved {
	t.Helper()
	rooms := make(map[string]affinity.Moved)
	for _, m := range p.moves() {
		rooms[m.Room] = m
	}
	if n := len(p.moves()); moved == 0 || len(rooms) != moved || n != moved {
		t.Errorf("%d rooms moved, %d moves of %d rooms were published", moved, n, len(rooms))
	}
	return rooms
}

func (f *fleet) owner(room string) lease.NodeID {
	f.t.Helper()
	m, err := f.Agent(f.IDs()[0]).Place(room)
	if err != nil {
		f.t.Fatal(err)
	}
	return m.ID
}

// incarnation returns the current incarnation of a node.
func (f *fleet) incarnation(id string) lease.Incarnation {
	self := f.Agent(id).Snapshot().Self
	return lease.Incarnation{Node: self.ID, Number: self.Incarnation}
}

// not returns the first node that is not in ids.
func (f *fleet) not(ids ...string) string {
	f.t.Helper()
	for _, id := range f.IDs() {
		if !slices.Contains(ids, id) {
			return id
		}
	}
	f.t.Fatalf("no node but %v", ids)
	return ""
}

func names(n int) []string {
	rooms := make([]string, n)
	for i := range rooms {
		rooms[i] = fmt.Sprint("r-", i)
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

// wantLost fails the test unless a hosting has ended with the error want.
func wantLost(t *testing.T, h *affinity.Hosting, want error) {
	t.Helper()
	if !lost(h) || !errors.Is(h.Err(), want) {
		t.Errorf("%s: lost %v, %v; want %v", h.Room(), lost(h), h.Err(), want)
	}
}

// pins returns every pin of a store.
func pins(t *testing.T, store pinstore.Store) map[string]pinstore.Pin {
	t.Helper()
	var all []placement.Partition
	for p := range placement.Partition(64) {
		all = append(all, p)
	}
	entries, err := store.Index(t.Context(), all, func(lease.Incarnation) bool { return true }, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]pinstore.Pin)
	for _, e := range entries {
		found[e.Room] = e.Pin
	}
	return found
}

// onlyMovedFromC fails the test unless all rooms of c, which has died, have moved to live nodes. No other room may have
// moved, and each room must still have a pin.
func (f *fleet) onlyMovedFromC(before, after map[string]pinstore.Pin) (n int) {
	f.t.Helper()
	const gone = lease.NodeID("c")
	if len(after) != len(before) {
		f.t.Errorf("%d rooms are pinned, %d were", len(after), len(before))
	}
	for room, was := range before {
		is := after[room]
		switch {
		case was.Node == gone:
			n++
			if is.Epoch <= was.Epoch || is.Node == gone || !slices.Contains(f.IDs(), string(is.Node)) {
				f.t.Fatalf("%s of the dead %s: pinned to %+v", room, gone, is)
			}
		case is != was:
			f.t.Fatalf("%s moved from %+v to %+v, but %s died", room, was, is, gone)
		}
	}
	return n
}

func hasNode(pins map[string]pinstore.Pin, id lease.NodeID) bool {
	for _, p := range pins {
		if p.Node == id {
			return true
		}
	}
	return false
}

// ownedBy returns a room whose partition a node owns. Its name begins with a prefix.
func (f *fleet) ownedBy(id, prefix string) string {
	for i := 0; ; i++ {
		if room := fmt.Sprint(prefix, i); f.owner(room) == lease.NodeID(id) {
			return room
		}
	}
}
