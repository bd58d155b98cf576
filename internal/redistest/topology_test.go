package redistest

import (
	"errors"
	"strings"
	"testing"
)

func TestCluster(t *testing.T) {
	long(t)
	c := StartCluster(t, 3, 1)
	if len(c.nodes) != 6 {
		t.Errorf("%d nodes", len(c.nodes))
	}
	set(t, c.URL(), nil)
	old := c.Owner("k")
	if got := old.Do("GET", "k"); got != "v" {
		t.Errorf("the owner has %q", got)
	}
	for _, s := range c.nodes {
		if _, err := s.Try("GET", "k"); s != old && (err == nil || !strings.HasPrefix(err.Error(), "MOVED")) {
			t.Errorf("%s does not own the slot and replies %v", s.Addr(), err)
		}
	}
	old.WaitReplicas(1)
	old.Kill()
	owner := c.Owner("k")
	c.WaitOK()
	if got := owner.Do("GET", "k"); owner == old || got != "v" {
		t.Errorf("after the failover %s has %q", owner.Addr(), got)
	}
	owner.Do("SET", "k", "w")
	old.Restart()
	follows(t, old)
	if got := c.Owner("k"); got != owner {
		t.Errorf("the old master is owner again")
	}
	c.WaitOK()
	if got := owner.Do("GET", "k"); got != "w" {
		t.Errorf("after the old master's return the new one has %q", got)
	}
}

func TestSentinel(t *testing.T) {
	long(t)
	c := StartSentinel(t)
	old := c.Master()
	set(t, c.URL(), nil)
	old.WaitReplicas(1)
	old.Pause()
	master := c.Master()
	if got := master.Do("GET", "k"); master == old || got != "v" {
		t.Errorf("after the failover %s has %q", master.Addr(), got)
	}
	old.Resume()
	follows(t, old)
	if got := c.Master(); got != master {
		t.Error("the old master is master again")
	}
}

// follows waits until a replaced master has become a replica. Sentinel ends the connections
// of its clients when it becomes one.
func follows(t *testing.T, old *Server) {
	t.Helper()
	Eventually(t, "the old master to follow", func() error {
		info, err := old.Try("INFO", "replication")
		if err == nil && !strings.Contains(info, "role:slave") {
			err = errors.New(info)
		}
		return err
	})
}

func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("clusters take seconds")
	}
	t.Parallel()
}
