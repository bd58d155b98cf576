package redistest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const slots = 16384

// Cluster is a Redis Cluster.
type Cluster struct {
	tb    testing.TB
	nodes []*Server
}

// StartCluster starts masters that share all slots, and the given number of replicas for each master. A
// failover needs a majority of the masters, so start at least three. The cluster considers a node down if it
// does not reply for 1 s. StartCluster takes about 2 s, because Redis makes a new master wait that long.
func StartCluster(tb testing.TB, masters, replicas int) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for i := range masters * (1 + replicas) {
		s := &Server{cluster: true, args: []string{
			"--cluster-node-timeout", "1000",
			"--cluster-replica-validity-factor", "0", // a replica can always take over, even if its data is old
		}}
		s.launch(tb)
		// Without different epochs, the nodes would first have to resolve the conflict.
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		c.nodes = append(c.nodes, s)
	}
	for i, s := range c.nodes[:masters] {
		first, end := slots*i/masters, slots*(i+1)/masters
		s.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(end-1))
	}
	c.meet()
	for i, s := range c.nodes[masters:] {
		master := c.nodes[i%masters].Do("CLUSTER", "MYID")
		Eventually(tb, "replica", func() error {
			_, err := s.Try("CLUSTER", "REPLICATE", master) // fails until the node knows the master
			return err
		})
	}
	Eventually(tb, "cluster", func() error { return c.complete(masters) })
	c.WaitOK()
	return c
}

// meet introduces all nodes to each other, because gossip alone takes a second or two.
func (c *Cluster) meet() {
	c.tb.Helper()
	for i, s := range c.nodes {
		for _, other := range c.nodes[:i] {
			s.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port), strconv.Itoa(other.bus))
		}
	}
}

// complete returns nil when every node knows all masters and replicas.
func (c *Cluster) complete(masters int) error {
	for _, s := range c.nodes {
		nodes, err := s.Try("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		m, r := strings.Count(nodes, "master -"), strings.Count(nodes, "slave ")
		if m != masters || m+r != len(c.nodes) || strings.Contains(nodes, "handshake") {
			return fmt.Errorf("%s knows:\n%s", s.Addr(), nodes)
		}
	}
	return nil
}

// WaitOK waits until every running node reports the cluster as ok and all replicas are connected to their
// masters. Use it at the start and after a failover.
func (c *Cluster) WaitOK() {
	c.tb.Helper()
	Eventually(c.tb, "cluster in order", func() error {
		for _, s := range c.nodes {
			if !s.up() {
				continue
			}
			info, err := s.Try("CLUSTER", "INFO")
			replication, err2 := s.Try("INFO", "replication")
			switch err := errors.Join(err, err2); {
			case err != nil:
				return err
			case !strings.Contains(info, "cluster_state:ok"), strings.Contains(replication, "master_link_status:down"):
				return fmt.Errorf("%s:\n%s\n%s", s.Addr(), info, replication)
			}
		}
		return nil
	})
}

// URL returns a URL with the addresses of all nodes, for rueidis.ParseURL.
func (c *Cluster) URL() string { return listURL(c.nodes, nil) }

// DoAll runs a command on all nodes.
func (c *Cluster) DoAll(args ...string) {
	c.tb.Helper()
	for _, s := range c.nodes {
		s.Do(args...)
	}
}

// Owner returns the master of the key's slot. During a failover, Owner waits until a running master has the
// slot. For commands with the key, all other nodes reply with a redirection.
func (c *Cluster) Owner(key string) (owner *Server) {
	c.tb.Helper()
	Eventually(c.tb, "owner of "+key, func() error {
		i := slices.IndexFunc(c.nodes, func(s *Server) bool {
			if !s.up() {
				return false
			}
			_, err := s.Try("EXISTS", key)
			return err == nil
		})
		if i < 0 {
			return errors.New("no node that runs has it")
		}
		owner = c.nodes[i]
		return nil
	})
	return owner
}

// Demote makes one of the owner's replicas the new owner of the key's slot. The old owner continues to run as
// a replica.
func (c *Cluster) Demote(key string) {
	c.tb.Helper()
	was := c.Owner(key)
	i := slices.IndexFunc(c.nodes, func(s *Server) bool {
		return strings.HasPrefix(s.Do("ROLE"), fmt.Sprintf("slave\n127.0.0.1\n%d\n", was.port))
	})
	if i < 0 {
		c.tb.Fatalf("%s has no replica", was.Addr())
	}
	c.nodes[i].Do("CLUSTER", "FAILOVER")
	Until(c.tb, "failover", func() bool { return c.Owner(key) != was })
}

// Partial lets the cluster serve the slots of running masters while another master is down.
func (c *Cluster) Partial() {
	c.tb.Helper()
	for _, s := range c.nodes {
		s.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
}

// listURL returns the URL of the first server, with the other servers as addr parameters.
func listURL(servers []*Server, query url.Values) string {
	u := url.URL{Scheme: "redis", Host: servers[0].Addr()}
	if query == nil {
		query = url.Values{}
	}
	for _, s := range servers[1:] {
		query.Add("addr", s.Addr())
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Migrate moves the slot of a key to the next master, key by key, with a pause after each key. During the
// migration, a command with several keys of the slot can fail with TRYAGAIN.
func (c *Cluster) Migrate(key string, pause time.Duration) {
	c.tb.Helper()
	from := c.Owner(key)
	to := c.nodes[(slices.Index(c.nodes, from)+1)%len(c.nodes)]
	slot := from.Do("CLUSTER", "KEYSLOT", key)
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", from.Do("CLUSTER", "MYID"))
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", to.Do("CLUSTER", "MYID"))
	for {
		next := strings.TrimSpace(from.Do("CLUSTER", "GETKEYSINSLOT", slot, "1"))
		if next == "" {
			break
		}
		from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.port), next, "0", "1000")
		time.Sleep(pause)
	}
	for _, s := range []*Server{to, from} {
		s.Do("CLUSTER", "SETSLOT", slot, "NODE", to.Do("CLUSTER", "MYID"))
	}
	for _, s := range c.nodes {
		if s != to && s != from {
			s.Do("CLUSTER", "SETSLOT", slot, "NODE", to.Do("CLUSTER", "MYID"))
		}
	}
}
