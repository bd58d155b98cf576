package redisstore

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
)

// forms are the ways to have one address for a master that changes.
func forms() map[string]func(testing.TB) *redistest.Failover {
	all := map[string]func(testing.TB) *redistest.Failover{"balancer": redistest.StartBalanced}
	if runtime.GOOS == "linux" {
		all["name"] = redistest.StartNamed
	}
	return all
}

// A master that becomes a replica and stays up keeps its connections. They are closed once it rejects a write, so that
// the next ones go where the address leads to by then.
func TestMasterMoves(t *testing.T) {
	for form, start := range forms() {
		for _, query := range []string{"", "?client_cache=0"} {
			t.Run(form+query, func(t *testing.T) {
				t.Parallel()
				redis := start(t)
				s := ready(t, Options{URL: redis.URL() + query})
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
}

// Where sentinels or a cluster name the master, a demoted one is left without the loss of a connection to others.
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
			s := ready(t, Options{URL: url})
			works(t, s)
			demote(s.keys.pin(17, "room"))
			works(t, s)
		})
	}
}

// While the address leads to a replica, connections are opened again and again, with pauses that grow.
func TestReplicaIsNotStormed(t *testing.T) {
	var m mover
	closed := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += time.Millisecond { // answers of a busy agent
			if m.due(time.Unix(1000, 0).Add(at)) {
				n++
			}
		}
		return n
	}
	for range 100 {
		m = mover{}
		if n := closed(0, time.Second); n < 2 || n > 6 {
			t.Errorf("%d times in the first second", n)
		}
		if n := closed(time.Second, time.Minute); n < 11 || n > 27 {
			t.Errorf("%d times in the first minute", n)
		}
		if n := closed(time.Hour, time.Hour+time.Second); n < 2 { // another failover
			t.Errorf("%d times in the first second of the next failover", n)
		}
	}
}

// A call that is late for want of a connection says why there is none. No text has the password.
func TestUnreachableIsSaid(t *testing.T) {
	server := redistest.Start(t, "--requirepass", secret)
	link := redistest.Proxy(t, server.Addr())
	url := link.URL(server)
	s := ready(t, Options{URL: url})
	if got := s.String(); got != link.Addr()+"/0" {
		t.Errorf("the store says %q of its address", got)
	}
	link.Cut()
	redistest.Eventually(t, "a late call", func() error {
		l := s.link.Load()
		err := l.late(context.DeadlineExceeded)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "dial tcp "+link.Addr()) {
			return errors.Join(try(s, read("room")), err)
		}
		return nil
	})
	link.Heal()
	works(t, s)
	if err := s.link.Load().late(context.DeadlineExceeded); err != context.DeadlineExceeded { //nolint:errorlint // and nothing else
		t.Error(err)
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
