package redisstore

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
)

// forms returns the ways in which one address can lead to a master that changes.
func forms() map[string]func(testing.TB) *redistest.Failover {
	all := map[string]func(testing.TB) *redistest.Failover{"balancer": redistest.StartBalanced}
	if runtime.GOOS == "linux" {
		all["name"] = redistest.StartNamed
	}
	return all
}

// A master that becomes a replica does not close its connections. The store closes them when the server rejects a
// write, so the next connections go to the server to which the address then leads.
func TestMasterMoves(t *testing.T) {
	for form, start := range forms() {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			redis := start(t)
			s := ready(t, redisAt{URL: redis.URL()})
			works(t, s)
			notified := listen(s)
			pin := swap(t, s, read("room")).Pin
			redis.Promote()
			rejects(t, s, "READONLY")
			redis.Move()
			works(t, s)
			if err := notified.have(""); err != nil { // the new master may lack the last changes
				t.Error(err)
			}
			if r := swap(t, s, first("room", node("m", 1))); r.Pin != pin {
				t.Errorf("the new master has %v; want %v", r.Pin, pin)
			}
		})
	}
}

// If sentinels or a cluster name the master, the store follows them from a demoted master to the new master.
func TestMasterDemoted(t *testing.T) {
	long(t)
	for name, start := range map[string]func(*testing.T) (url string, demote func(key string)){
		"cluster": func(t *testing.T) (string, func(string)) {
			cluster := redistest.StartCluster(t, 3, 1)
			return cluster.URL(), cluster.Demote
		},
		"sentinel": func(t *testing.T) (string, func(string)) {
			sentinel := redistest.StartSentinel(t)
			return sentinel.URL(), func(string) { sentinel.Demote() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			url, demote := start(t)
			s := ready(t, redisAt{URL: url})
			works(t, s)
			demote(names(s).pin(17, "room"))
			works(t, s)
		})
	}
}

// rejects waits until the server rejects heartbeats.
func rejects(t *testing.T, s *Store, why string) {
	t.Helper()
	redistest.Eventually(t, why, func() error {
		_, err := s.Heartbeat(t.Context(), node("n", 1), time.Hour, nil)
		if !errors.Is(err, pinstore.ErrStore) || !strings.Contains(err.Error(), why) {
			return errors.Join(errors.New("no "+why), err)
		}
		return nil
	})
}
