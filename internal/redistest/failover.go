package redistest

import (
	"strconv"
	"testing"
)

// Failover is a master and its replica with a single address for clients, like a managed Redis service. In a
// failover, the old master becomes a replica and rejects writes. Later, the address leads to the new master,
// but open connections still lead to the old one.
type Failover struct {
	tb    testing.TB
	pair  [2]*Server
	point func(to int)
	addr  string
}

// StartBalanced starts a master and a replica behind a TCP load balancer.
func StartBalanced(tb testing.TB) *Failover {
	tb.Helper()
	f := startFailover(tb)
	link := Proxy(tb, f.pair[0].Addr())
	f.addr = link.Addr()
	f.point = func(to int) { link.Retarget(f.pair[to].Addr()) }
	return f
}

func startFailover(tb testing.TB) *Failover {
	tb.Helper()
	master := Start(tb)
	replica := Start(tb, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	f := &Failover{tb: tb, pair: [2]*Server{master, replica}}
	master.WaitReplicas(1)
	return f
}

// Addr returns the host:port that leads to the master.
func (f *Failover) Addr() string { return f.addr }

// URL returns the URL of Addr.
func (f *Failover) URL() string { return f.pair[0].urlOf(f.addr) }

// Servers returns both servers. The first one is the master at the start.
func (f *Failover) Servers() (first, second *Server) { return f.pair[0], f.pair[1] }

// Promote swaps the roles of the master and the replica. Addr continues to lead to the old master until Move.
func (f *Failover) Promote() {
	f.tb.Helper()
	f.pair[0].WaitReplicas(1)
	f.pair[1].Do("REPLICAOF", "NO", "ONE")
	f.pair[0].Do("REPLICAOF", "127.0.0.1", strconv.Itoa(f.pair[1].port))
}

// Move makes Addr lead to the second server, for new connections.
func (f *Failover) Move() { f.point(1) }
