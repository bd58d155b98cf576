package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/buraksezer/consistent"
	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"
	"github.com/go-kit/log"
	"github.com/grafana/ckit/peer"
	"github.com/grafana/ckit/shard"
	"github.com/grafana/dskit/kv"
	"github.com/grafana/dskit/ring"
	"github.com/grafana/dskit/services"
	stathat "stathat.com/c/consistent"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/events/latest"
	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// racer is a library with a set of nodes, used as its documentation recommends. If a function is nil, the library does
// not provide such a function.
type racer struct {
	name string

	// Each of these functions returns a function for a single goroutine, with its own buffers. Keys are indices of
	// raceKeys.
	place  func() func(key int) string // the owner's name
	owns   func() func(key int) bool   // whether the owner is the first node
	owners func() func(key int) int    // the number of owners, up to three

	// change adds another node to the nodes if more is 1, or removes it if more is 0.
	change func(more int)
}

// raceKeys are the keys of a race. raceBytes are the same keys as bytes.
var (
	raceKeys = func() (all []string) {
		for i := range 1024 {
			all = append(all, "room-"+strconv.Itoa(i))
		}
		return all
	}()
	raceBytes = func() (all [][]byte) {
		for _, key := range raceKeys {
			all = append(all, []byte(key))
		}
		return all
	}()
)

// partitionsFor returns the number of partitions for all libraries that have partitions.
func partitionsFor(nodes int) int {
	if nodes < 1000 {
		return placement.DefaultPartitions
	}
	return 16384
}

// must panics if there is an error. It is for calls that never fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// racersOf returns all racers over n nodes.
func racersOf(b *testing.B, n int) []racer {
	b.Helper()
	return []racer{
		roost(b, n), slice(b, n), buraksezer(n), dgryski(n), dskit(b, n), dskitPartitions(b, n),
		ckit("ckit-ring", n, func() shard.Sharder { return shard.Ring(256) }), ckit("ckit-rendezvous", n, shard.Rendezvous),
		ckit("ckit-multiprobe", n, shard.Multiprobe), ofStathat(n),
	}
}

// roost is an agent that only has the snapshots of a real agent. A change computes a table and its events, and makes a
// snapshot.
func roost(b *testing.B, n int) racer {
	b.Helper()
	all := fleet(n+1, false)
	members := make([]*cluster.Member, len(all))
	for i, of := range all {
		members[i] = &cluster.Member{Profile: lease.Profile{ID: of.ID, Weight: of.Weight}, State: lease.Active}
	}
	a := &cluster.Agent{}
	start := time.Now()
	core := node.New(start, node.Config{LeaseTTL: time.Hour}, 0)
	*field[time.Time](b, a, "started") = start
	*field[cluster.Config](b, a, "cfg") = cluster.Config{Partitions: partitionsFor(n)}
	snapshots := field[latest.Value[cluster.Snapshot]](b, a, "snap")
	var table *placement.Table
	var state *events.State
	change := func(more int) {
		size := n + more
		table = must(placement.Compute(placement.Input{Nodes: all[:size], Partitions: partitionsFor(n), Base: table}))
		state = events.Next(state, all[0].ID, table, nil, true)
		s := &cluster.Snapshot{Self: members[0], Members: slices.Clone(members[:size]), Table: table, State: state}
		*field[*node.OwnLease](b, s, "lease") = core.View().Lease
		*field[[]*cluster.Member](b, s, "owners") = s.Members
		snapshots.Set(*s)
	}
	change(0)
	return racer{
		"roost",
		func() func(int) string {
			return func(key int) string { return string(must(a.Place(raceKeys[key])).ID) }
		},
		func() func(int) bool { return func(key int) bool { return a.IsOwner(raceKeys[key]) } },
		func() func(int) int { return func(key int) int { return len(a.Owners(raceKeys[key], 3)) } },
		change,
	}
}

// field returns a field of one of cluster's types, which no other package can set.
func field[T any](b *testing.B, of any, name string) *T {
	b.Helper()
	f := reflect.ValueOf(of).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		b.Fatalf("%T has no field %s %v", of, name, reflect.TypeFor[T]())
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}

// slice shows the minimum cost of a lookup: a hash and an array that never changes.
func slice(b *testing.B, n int) racer {
	b.Helper()
	t := compute(b, placement.Input{Nodes: fleet(n, false), Partitions: partitionsFor(n)})
	owners, ranks, mine := make([]string, t.Partitions()), make([][]string, t.Partitions()), make([]bool, t.Partitions())
	for p := range owners {
		for _, id := range t.Rank(placement.Partition(p), 3) {
			ranks[p] = append(ranks[p], string(id))
		}
		owners[p], mine[p] = ranks[p][0], ranks[p][0] == string(t.Nodes()[0].ID)
	}
	at := func(key int) uint64 { return xxhash.Sum64String(raceKeys[key]) % uint64(len(owners)) }
	return racer{
		"slice",
		func() func(int) string { return func(key int) string { return owners[at(key)] } },
		func() func(int) bool { return func(key int) bool { return mine[at(key)] } },
		func() func(int) int { return func(key int) int { return len(ranks[at(key)]) } },
		nil,
	}
}

// buraksezer is buraksezer/consistent, which takes keys as bytes, and places partitions like roost.
func buraksezer(n int) racer {
	r := racer{name: "consistent"}
	if partitionsFor(n) < 10*n {
		return r // it panics if it runs out of space
	}
	c := consistent.New(members(n), config(partitionsFor(n)))
	self, newcomer := names(1)[0], member(names(n + 1)[n])
	r.place = func() func(int) string { return func(key int) string { return c.LocateKey(raceBytes[key]).String() } }
	r.owns = func() func(int) bool {
		return func(key int) bool { return c.LocateKey(raceBytes[key]).String() == self }
	}
	r.owners = func() func(int) int {
		return func(key int) int { return len(must(c.GetClosestN(raceBytes[key], 3))) }
	}
	r.change = func(more int) {
		if more > 0 {
			c.Add(newcomer)
		} else {
			c.Remove(string(newcomer))
		}
	}
	return r
}

// dgryski is dgryski/go-rendezvous, which has one owner per key and no lock. A change replaces the whole instance,
// because its Remove is broken.
func dgryski(n int) racer {
	all := names(n + 1)
	var current latest.Value[*rendezvous.Rendezvous]
	change := func(more int) { current.Set(rendezvous.New(all[:n+more], xxhash.Sum64String)) }
	change(0)
	place := func(key int) string { return (*current.Load()).Lookup(raceKeys[key]) }
	return racer{
		"go-rendezvous",
		func() func(int) string { return place },
		func() func(int) bool { return func(key int) bool { return place(key) == all[0] } },
		nil, change,
	}
}

// ckit is a sharder of ckit. The sharder sorts the peers that it gets, and keeps no reference to them.
func ckit(name string, n int, fresh func() shard.Sharder) racer {
	var peers []peer.Peer
	for i, id := range names(n + 1) {
		peers = append(peers, peer.Peer{Name: id, Addr: id, Self: i == 0, State: peer.StateParticipant})
	}
	s := fresh()
	change := func(more int) { s.SetPeers(peers[:n+more]) }
	change(0)
	lookup := func(key, n int) []peer.Peer {
		return must(s.Lookup(shard.StringKey(raceKeys[key]), n, shard.OpReadWrite))
	}
	return racer{
		name,
		func() func(int) string { return func(key int) string { return lookup(key, 1)[0].Name } },
		func() func(int) bool { return func(key int) bool { return lookup(key, 1)[0].Self } },
		func() func(int) int { return func(key int) int { return len(lookup(key, 3)) } },
		change,
	}
}

func ofStathat(n int) racer {
	all := names(n + 1)
	c := stathat.New()
	c.Set(all[:n])
	get := func(key int) string { return must(c.Get(raceKeys[key])) }
	return racer{
		"stathat",
		func() func(int) string { return get },
		func() func(int) bool { return func(key int) bool { return get(key) == all[0] } },
		func() func(int) int { return func(key int) int { return len(must(c.GetN(raceKeys[key], 3))) } },
		func(more int) {
			if more > 0 {
				c.Add(all[n])
			} else {
				c.Remove(all[n])
			}
		},
	}
}

// descs replaces the key-value store of a dskit ring. It delivers descriptions to the ring without a network or an
// encoding.
type descs struct {
	kv.Client
	first any
	watch chan func(any) bool
}

// Get implements kv.Client.
func (d *descs) Get(context.Context, string) (any, error) { return d.first, nil }

// WatchKey implements kv.Client.
func (d *descs) WatchKey(ctx context.Context, _ string, f func(any) bool) {
	d.watch <- f
	<-ctx.Done()
}

// tokens returns n sorted tokens for each of the instances. The tokens are random and distinct. dskit's own generators
// would take minutes for 1,000 instances.
func tokens(instances, n int) [][]uint32 {
	rng := rand.New(rand.NewPCG(1, 2))
	taken := make(map[uint32]bool)
	all := make([][]uint32, instances)
	for i := range all {
		for len(all[i]) < n {
			if token := rng.Uint32(); !taken[token] {
				taken[token] = true
				all[i] = append(all[i], token)
			}
		}
		slices.Sort(all[i])
	}
	return all
}

// dskitDesc returns a description of n instances, each with the usual number of tokens.
func dskitDesc(n int) *ring.Desc {
	d := ring.NewDesc()
	all := tokens(n, 128)
	for i, id := range names(n) {
		d.AddIngester(id, id, "", all[i], ring.ACTIVE, time.Now(), false, time.Time{}, nil)
	}
	return d
}

// startRing starts a dskit ring. It returns the ring, and the function with which its store delivers another
// description.
func startRing(b *testing.B, first *ring.Desc, replicas int) (*ring.Ring, func(any) bool) {
	b.Helper()
	store := &descs{first: first, watch: make(chan func(any) bool)}
	cfg := ring.Config{HeartbeatTimeout: time.Hour, ReplicationFactor: replicas}
	r, err := ring.NewWithStoreClientAndStrategy(cfg, "race", "race", store, ring.NewDefaultReplicationStrategy(), nil, log.NewNopLogger())
	if err == nil {
		err = services.StartAndAwaitRunning(context.Background(), r)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = services.StopAndAwaitTerminated(context.Background(), r) })
	return r, <-store.watch
}

// dskit uses Ring.Get with its buffers. Place uses a ring with one replica, and Owners uses a ring with three replicas.
func dskit(b *testing.B, n int) racer {
	b.Helper()
	both := []*ring.Desc{dskitDesc(n), dskitDesc(n + 1)}
	single, deliver := startRing(b, both[0], 1)
	triple, _ := startRing(b, dskitDesc(n), 3)
	self := names(1)[0]
	get := func(r *ring.Ring) func(key int) []ring.InstanceDesc {
		instances, hosts, zones := ring.MakeBuffersForGet()
		return func(key int) []ring.InstanceDesc {
			return must(r.Get(uint32(xxhash.Sum64String(raceKeys[key])), ring.WriteNoExtend, instances, hosts, zones)).Instances
		}
	}
	return racer{
		"dskit-ring",
		func() func(int) string { g := get(single); return func(key int) string { return g(key)[0].Id } },
		func() func(int) bool { g := get(single); return func(key int) bool { return g(key)[0].Id == self } },
		func() func(int) int { g := get(triple); return func(key int) int { return len(g(key)) } },
		func(more int) { deliver(both[more]) },
	}
}

// dskitPartitions is a ring with one partition per node and three owners per partition. Programs keep the newest ring
// in a watcher.
func dskitPartitions(b *testing.B, n int) racer {
	b.Helper()
	now := time.Now()
	desc := func(size int) ring.PartitionRingDesc {
		d := ring.NewPartitionRingDesc()
		for i, own := range tokens(size, 512) {
			d.Partitions[int32(i)] = ring.PartitionDesc{Id: int32(i), Tokens: own, State: ring.PartitionActive, StateTimestamp: now.Unix()}
			for zone := range 3 {
				d.AddOrUpdateOwner(fmt.Sprintf("node-%d-%04d", zone, i), ring.OwnerActive, int32(i), now)
			}
		}
		return *d
	}
	both := []ring.PartitionRingDesc{desc(n), desc(n + 1)}
	var current latest.Value[*ring.PartitionRing]
	change := func(more int) { current.Set(must(ring.NewPartitionRing(both[more]))) }
	change(0)
	owners := func(key int) []string {
		r := *current.Load()
		return r.PartitionOwnerIDs(must(r.ActivePartitionForKey(uint32(xxhash.Sum64String(raceKeys[key])))))
	}
	self := owners(0)[0]
	return racer{
		"dskit-partitions",
		func() func(int) string { return func(key int) string { return owners(key)[0] } },
		func() func(int) bool { return func(key int) bool { return owners(key)[0] == self } },
		func() func(int) int { return func(key int) int { return len(owners(key)) } },
		change,
	}
}
