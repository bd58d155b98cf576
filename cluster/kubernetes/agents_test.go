package kubernetes

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// start starts a node as a program in a pod does, on a loopback port. Until put sets the node's port, the service lists
// the pod with a port where nobody answers.
func start(t *testing.T, s *server, api *rest.Config, name string) *cluster.Agent {
	t.Helper()
	return startWith(t, s, api, name, cluster.Config{LeaseTTL: 10 * time.Second})
}

func startWith(t *testing.T, s *server, api *rest.Config, name string, cfg cluster.Config) *cluster.Agent {
	t.Helper()
	s.pod(name, "127.0.0.1", nil)
	s.serve("new", "sfu", 1, "127.0.0.1")
	o := Options{Service: "sfu", Namespace: namespace, Pod: name, API: api}
	cfg.Bind, cfg.Network, cfg.Log = "127.0.0.1:0", cluster.Local, quiet
	cfg, err := Configure(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := cluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Close() })
	return agent
}

// put makes the service list exactly these agents' pods. Each pod has its own slice with its port.
func (s *server) put(agents ...*cluster.Agent) {
	s.change(func() { clear(s.slices) })
	s.serve("app", "sfu", 0)
	for i, a := range agents {
		_, port, _ := net.SplitHostPort(a.Addr())
		n, _ := strconv.Atoi(port)
		s.serve(fmt.Sprint("app-", i), "sfu", int32(n), "127.0.0.1")
	}
}

// awaitRequests waits for n more requests, whether they are answered or not.
func (s *server) awaitRequests(t *testing.T, n int) {
	t.Helper()
	asked := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.asked)
	}
	before := asked()
	eventually(t, fmt.Sprintf("%d more requests", n), func() bool { return asked() >= before+n })
}

func agree(t *testing.T, agents ...*cluster.Agent) {
	t.Helper()
	eventually(t, fmt.Sprintf("one cluster of %d", len(agents)), func() bool {
		for _, a := range agents {
			s := a.Snapshot()
			if len(s.Members) != len(agents) || !s.Converged() || s.Digest() != agents[0].Snapshot().Digest() {
				return false
			}
		}
		return true
	})
}

// Over real connections, nodes that started without seeing each other find each other, and a new node joins only via
// discovery. Missing endpoints or a dead API server do not affect members.
func TestAgents(t *testing.T) {
	s := newServer(t)
	api := s.over(t)
	a := start(t, s, api, "a")
	<-a.Ready()
	b := start(t, s, api, "b") // it does not see a, as if the network was split
	<-b.Ready()
	if len(a.Members()) != 1 || len(b.Members()) != 1 {
		t.Fatalf("%d and %d members without each other's endpoint", len(a.Members()), len(b.Members()))
	}
	s.put(a, b)
	agree(t, a, b)

	c := start(t, s, api, "c")
	agree(t, a, b, c)

	s.put() // as if a selector is changed by mistake
	digest := a.Snapshot().Digest()
	s.awaitRequests(t, 6)
	s.become("down")
	s.awaitRequests(t, 6)
	agree(t, a, b, c)
	if a.Snapshot().Digest() != digest {
		t.Error("owners changed without the API server")
	}
	if err := c.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	agree(t, a, b)

	s.become("")
	s.put(a, b)
	d := start(t, s, api, "d")
	agree(t, a, b, d)
}

// Nodes find each other before any of them is ready. After a split, all nodes that knew both sides are replaced, so the
// sides can find each other only via discovery.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := newServer(t), clustertest.New(t, clustertest.Options{})
		at := func(id string) string {
			return map[string]string{"a": "10.0.0.2", "b": "10.0.0.3", "c": "10.0.0.4", "d": "10.0.0.5"}[id]
		} // the addresses that clustertest assigns
		add := func(s *server, id string, others ...string) {
			s.pod(id, at(id), nil)
			s.serve("app", "sfu", 7946, append(others, at(id))...)
			agent := c.StartWith(id, clustertest.WithConfig(func(cfg *cluster.Config) {
				configured, err := Configure(t.Context(), cluster.Config{ID: id, Log: quiet}, Options{
					Service:   "sfu",
					Namespace: namespace,
					Pod:       id,
					API:       s.inMemory(),
				})
				if err != nil {
					t.Error(err)
				}
				cfg.Join, cfg.Discover, cfg.Zone = nil, configured.Discover, configured.Zone
			}))
			if agent.Addr() != at(id)+":7946" {
				t.Fatalf("%s is at %s", id, agent.Addr())
			}
		}
		add(s, "a")
		add(s, "b", at("a"))
		add(s, "c", at("a"), at("b"))
		c.WaitAgreed(time.Second)
		if zone := c.Agent("a").Members()[2].Zone; zone != "zone-a" {
			t.Errorf("the zone is %q", zone)
		}

		// The nodes a and b lose c and the API server. Later, d joins c, and then c leaves.
		s.become("down")
		c.Split([]string{"a", "b"}, []string{"c"})
		time.Sleep(10 * time.Minute)
		other := newServer(t)
		add(other, "d", at("c"))
		c.Split([]string{"a", "b"}, []string{"c", "d"})
		time.Sleep(time.Minute)
		if n := len(c.Agent("d").Members()); n != 2 {
			t.Errorf("d sees %d members", n)
		}
		c.Leave("c")
		c.Heal()
		time.Sleep(time.Minute)
		if n := len(c.Agent("d").Members()); n != 1 {
			t.Errorf("d has found %d members without discovery", n-1)
		}
		s.serve("app", "sfu", 7946, at("a"), at("b"), at("d"))
		s.become("")
		c.WaitAgreed(time.Minute)
	})
}
