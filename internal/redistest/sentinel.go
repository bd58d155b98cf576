package redistest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// masterSet is the name that the sentinels use for the master.
const masterSet = "roost"

// Sentinel is a master and its replica, with three sentinels that monitor them.
type Sentinel struct {
	tb        testing.TB
	data      []*Server
	sentinels []*Server
}

// StartSentinel starts a master, a replica and three sentinels. If the master does not reply for 1 s, two
// sentinels are enough to replace it. StartSentinel takes less than a second.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	master := Start(tb)
	replica := Start(tb, "--replicaof", "127.0.0.1", strconv.Itoa(master.port))
	Eventually(tb, "replica", func() error {
		// Sentinels query the master for its replicas when they start, but only rarely after that.
		if !strings.Contains(master.Do("INFO", "replication"), "state=online") {
			return errors.New("the master has none")
		}
		return nil
	})
	c := &Sentinel{tb: tb, data: []*Server{master, replica}}
	for range 3 {
		c.sentinels = append(c.sentinels, startSentinel(tb, master))
	}
	Eventually(tb, "sentinels", c.complete)
	return c
}

func startSentinel(tb testing.TB, master *Server) *Server {
	tb.Helper()
	// A sentinel stores its state in its configuration file.
	s := &Server{config: filepath.Join(tb.TempDir(), "sentinel.conf"), args: []string{"--sentinel"}}
	config := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
		"sentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 5000\n", masterSet, master.port)
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.launch(tb)
	// Shorten the intervals at which sentinels contact each other (2 s) and the servers (10 s).
	s.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100", "INFO-PERIOD", "200", "PING-PERIOD", "200",
		"ASK-PERIOD", "200", "MIN-LINK-RECONNECT-PERIOD", "1000", "TILT-PERIOD", "2000")
	return s
}

// complete returns nil when each sentinel is connected to the others and to the replica,
// so that a failover can succeed.
func (c *Sentinel) complete() error {
	for _, s := range c.sentinels {
		quorum, err := s.Try("SENTINEL", "CKQUORUM", masterSet)
		replicas, err2 := s.Try("SENTINEL", "REPLICAS", masterSet)
		switch err := errors.Join(err, err2); {
		case err != nil:
			return err
		case !strings.HasPrefix(quorum, fmt.Sprintf("OK %d usable", len(c.sentinels))):
			return errors.New(quorum)
		case !strings.Contains(replicas, "master-link-status\nok"):
			return fmt.Errorf("replicas:\n%s", replicas)
		}
	}
	return nil
}

// Master returns the running master on which the sentinels agree. During a failover, Master waits. To wait
// for a failover, call Master after Kill or Pause.
func (c *Sentinel) Master() (master *Server) {
	c.tb.Helper()
	Eventually(c.tb, "master", func() (err error) {
		master, err = c.master()
		return err
	})
	return master
}

func (c *Sentinel) master() (*Server, error) {
	for _, s := range c.data {
		if !s.up() {
			continue
		}
		if info, err := s.Try("INFO", "replication"); err != nil || !strings.Contains(info, "role:master") {
			continue
		}
		want := fmt.Sprintf("127.0.0.1\n%d", s.port)
		for _, sentinel := range c.sentinels {
			if !sentinel.up() {
				continue
			}
			if addr, err := sentinel.Try("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet); addr != want {
				return nil, errors.Join(fmt.Errorf("%s is a master, but a sentinel names %q", s.Addr(), addr), err)
			}
		}
		return s, nil
	}
	return nil, errors.New("no server that runs is a master")
}

// Demote makes the replica the master, and returns when the sentinels agree on the new master. The old master
// continues to run as a replica.
func (c *Sentinel) Demote() {
	c.tb.Helper()
	was := c.Master()
	for _, s := range c.sentinels {
		// After the promotion, the other sentinels wait four publish periods for the announcement. If it
		// arrives later, they undo the promotion, so make the period longer.
		s.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "2000")
	}
	c.sentinels[0].Do("SENTINEL", "FAILOVER", masterSet)
	Eventually(c.tb, "failover", func() error {
		if is, err := c.master(); err != nil || is == was {
			return errors.Join(errors.New("not yet"), err)
		}
		return nil
	})
}

// Servers returns the first master and its replica, without the sentinels.
func (c *Sentinel) Servers() []*Server { return slices.Clone(c.data) }

// URL returns a URL with the addresses of the sentinels and the name of the master set, for rueidis.ParseURL.
func (c *Sentinel) URL() string {
	return listURL(c.sentinels, url.Values{"master_set": {masterSet}})
}
