package node_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/node"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

var epoch = time.Unix(1_700_000_000, 0)

// network connects nodes without delay. Time advances in steps of 10 ms.
type network struct {
	now       time.Time
	change    func(*node.Config) // of each node; may be nil
	nodes     map[string]*node.Node
	ids       []string                              // in the order of their turns
	clock     map[string]time.Duration              // how far a node's wall clock is ahead
	stuck     map[string]bool                       // paused: gets no turn and receives nothing
	mute      map[string]bool                       // its packets are not sent
	drop      map[string]bool                       // its packets are sent but do not arrive
	silent    bool                                  // nobody answers a node that rejoins
	last      map[string]node.Ready                 // the fields of its latest turns, with all log lines
	sent      func(from string, packet node.Packet) // called for each packet, if not nil
	locate    func(id string) node.Located          // checks the address of a node, if not nil
	exchanged int                                   // how many full exchanges have succeeded
}

func newNetwork(t *testing.T, change func(*node.Config), ids ...string) *network {
	t.Helper()
	w := &network{
		now: epoch, change: change, nodes: make(map[string]*node.Node), last: make(map[string]node.Ready),
		clock: make(map[string]time.Duration), stuck: make(map[string]bool), mute: make(map[string]bool), drop: make(map[string]bool),
	}
	for _, id := range ids {
		w.add(id)
	}
	w.run(3 * time.Second)
	return w
}

// add starts a node that joins through the first node of the network.
func (w *network) add(id string) {
	w.nodes[id] = w.start(id, uint64(len(w.ids)))
	w.ids = append(w.ids, id)
}

func (w *network) start(id string, seed uint64) *node.Node {
	cfg := node.Config{
		Self:       lease.Record{Profile: lease.Profile{ID: lease.NodeID(id), Incarnation: uint64(1 + len(w.ids)), Addr: id, Weight: 100}},
		Partitions: 8, Strategy: placement.Rendezvous(),
		HeartbeatInterval: 2 * time.Second, LeaseTTL: 6 * time.Second, MaxSkew: 5 * time.Second,
		Debounce: 250 * time.Millisecond, StartupGrace: 10 * time.Second, RejoinInterval: 10 * time.Second,
		Seeds:          slices.Clone(w.ids[:min(1, len(w.ids))]),
		GossipInterval: 200 * time.Millisecond, GossipNodes: 3, PacketBytes: 1400,
	}
	if w.change != nil {
		w.change(&cfg)
	}
	return node.New(w.now, cfg, seed)
}

// meet makes a node part of the seed's cluster.
func meet(now time.Time, n, seed *node.Node) {
	_ = n.Met(now, node.SeedExchange(), seed.Peer())
}

// exchange makes two nodes exchange their full states.
func (w *network) exchange(a, b string) {
	w.nodes[a].Merge(w.at(a), w.nodes[b].Sync(w.at(b)))
	w.nodes[b].Merge(w.at(b), w.nodes[a].Sync(w.at(a)))
}

// at returns the time on a node's clock.
func (w *network) at(id string) time.Time { return w.now.Add(w.clock[id]) }

func (w *network) run(span time.Duration) {
	for end := w.now.Add(span); w.now.Before(end); w.now = w.now.Add(10 * time.Millisecond) {
		for _, id := range w.ids {
			if !w.stuck[id] {
				w.turn(id)
			}
		}
	}
}

// turn calls Ready of one node, and carries out the work that Ready returns.
func (w *network) turn(id string) {
	n, now := w.nodes[id], w.at(id)
	r := n.Ready(now)
	for _, p := range r.Packets {
		if w.mute[id] {
			continue
		}
		if w.sent != nil {
			w.sent(id, p)
		}
		if to := w.nodes[p.To]; to != nil && !w.stuck[p.To] && !w.drop[id] {
			to.Receive(w.at(p.To), p.Bytes)
		}
		n.Sent(now, p)
	}
	for _, x := range r.Exchanges {
		if w.nodes[x.Addr] == nil || w.stuck[x.Addr] || w.mute[id] {
			n.Exchanged(now, x, node.NoAnswer, errors.New("no answer"))
		} else if err := n.Met(now, x, w.nodes[x.Addr].Peer()); err != nil {
			n.Exchanged(now, x, node.OtherCluster, err)
		} else if !w.silent {
			w.exchange(id, x.Addr)
			w.exchanged++
			n.Exchanged(now, x, node.NoAnswer, nil)
		}
	}
	if r.Locate != nil && w.locate != nil {
		n.Located(now, w.locate(id))
	}
	old := w.last[id]
	r.Log = append(old.Log, r.Log...)
	if r.State == nil {
		r.State = old.State
	}
	if r.Watch == nil {
		r.Watch = old.Watch
	}
	w.last[id] = r
}

// owned returns how many partitions a node owns now, according to its state and its lease.
func (w *network) owned(id string) int {
	n, s := w.nodes[id], w.last[id].State
	if s == nil || !n.View().Lease.Holds(w.at(id).Sub(n.Started())) {
		return 0
	}
	return len(s.Owned())
}

// logged counts a node's log lines that have this message and begin with these attributes.
func (w *network) logged(id, message string, attrs ...any) (count int) {
	for _, e := range w.last[id].Log {
		if e.Message == message && slices.Equal(e.Attrs[:min(len(attrs), len(e.Attrs))], attrs) {
			count++
		}
	}
	return count
}

// agreed fails the test unless all nodes hold the same table and own all of it.
func (w *network) agreed(t *testing.T) {
	t.Helper()
	sum := 0
	for _, id := range w.ids {
		v := w.nodes[id].View()
		if v.Phase != node.Active || v.Diverged != 0 || len(v.Live.Members) != len(w.ids) {
			t.Errorf("%s is %v, sees %d members, of which %d diverge", id, v.Phase, len(v.Live.Members), v.Diverged)
		}
		sum += w.owned(id)
	}
	if sum != 8 {
		t.Errorf("%v own %d partitions of 8", slices.Clone(w.ids), sum)
	}
}
