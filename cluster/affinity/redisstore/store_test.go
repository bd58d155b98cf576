package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/roost-cluster/roost/cluster/affinity/affinitytest"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/affinity/presence"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/goredisconn"
	"github.com/roost-cluster/roost/cluster/affinity/redisconn/rueidisconn"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// redisAt says how to reach a Redis server.
type redisAt struct {
	URL         string
	Prefix      string
	TLS         *tls.Config
	Credentials func(context.Context) (username, password string, err error)

	SentinelPassword string
}

func (a redisAt) options() rueidisconn.Options {
	return rueidisconn.Options{URL: a.URL, TLS: a.TLS, Credentials: a.Credentials, SentinelPassword: a.SentinelPassword}
}

// open opens a store. The store is closed at the end of the test.
func open(tb testing.TB, to redisAt) *Store {
	tb.Helper()
	return openIn(tb.Context(), tb, to)
}

// openIn opens a store, and waits for the first attempt to connect until ctx ends.
func openIn(ctx context.Context, tb testing.TB, to redisAt) *Store {
	tb.Helper()
	conn, err := rueidisconn.Open(ctx, to.options())
	if err != nil {
		tb.Fatal(err)
	}
	s, err := New(conn, Options{Prefix: to.Prefix})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// ready opens a store on a running server, and waits until the store has an answer and its subscription. The first
// attempt to connect may fail on a busy machine.
func ready(tb testing.TB, to redisAt) *Store {
	tb.Helper()
	s := open(tb, to)
	redistest.Eventually(tb, "connect", func() error {
		_, err := s.Index(tb.Context(), []placement.Partition{0}, func(lease.Incarnation) bool { return false }, 1)
		return errors.Join(err, s.Notified())
	})
	return s
}

// names returns the key names of a store that is ready.
func names(s *Store) keys {
	k, _ := s.keys()
	return k
}

// started starts a server, and returns it with a store that is ready.
func started(tb testing.TB) (*redistest.Server, *Store) {
	tb.Helper()
	server := redistest.Start(tb)
	return server, ready(tb, redisAt{URL: server.URL()})
}

// long skips a test that takes seconds, if -short is set.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
}

// conform runs the suite. Each test has its own prefix, because it is a separate cluster on the same server.
func conform(t *testing.T, opt redisAt) {
	t.Helper()
	opt.URL = redistest.Patient(opt.URL)
	tests := 0
	prefix := cmp.Or(opt.Prefix, DefaultPrefix)
	affinitytest.Store(t, func(t *testing.T) func() pinstore.Store {
		tests++
		opt := opt
		opt.Prefix = fmt.Sprint(prefix, tests, ":")
		return func() pinstore.Store { return ready(t, opt) }
	})
}

// A store works with the go-redis client of a program.
func TestGoRedis(t *testing.T) {
	long(t)
	t.Parallel()
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	addrs := []string{cluster.Owner("any key").Addr()} // this server names the others
	for name, dial := range map[string]func() redis.UniversalClient{
		"server": func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
		},
		"cluster": func() redis.UniversalClient { return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}) },
	} {
		t.Run(name, func(t *testing.T) {
			tests := 0
			affinitytest.Store(t, func(t *testing.T) func() pinstore.Store {
				tests++
				prefix := fmt.Sprint("go", tests, ":")
				return func() pinstore.Store { return goRedis(t, dial(), prefix) }
			})
		})
	}
	t.Run("loss", func(t *testing.T) {
		s := goRedis(t, redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1}), "loss:")
		notified := listen(s)
		server.Do("CLIENT", "KILL", "TYPE", "normal")
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
		redistest.Eventually(t, "the loss", func() error {
			return errors.Join(s.conn.Do(t.Context(), command("PING", nil))[0].Err, notified.have(""))
		})
	})
}

// goRedis returns a store that uses a go-redis client. Both are closed at the end of the test.
func goRedis(tb testing.TB, client redis.UniversalClient, prefix string) *Store {
	tb.Helper()
	s, err := New(goredisconn.New(client), Options{Prefix: prefix})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(s.Close(), client.Close()); err != nil {
			tb.Error(err)
		}
	})
	redistest.Eventually(tb, "a subscription", s.Notified)
	return s
}

func conformPresence(t *testing.T, url string) {
	t.Helper()
	url = redistest.Patient(url)
	affinitytest.Presence(t, func(t *testing.T) (a, b presence.Store) {
		return ready(t, redisAt{URL: url}).Presence(), ready(t, redisAt{URL: url}).Presence()
	})
}

func TestStandalone(t *testing.T) {
	s := redistest.Start(t)
	conform(t, redisAt{URL: s.URL()})
	conformPresence(t, s.URL())
	if keys := s.Do("KEYS", "*"); strings.Contains("\n"+keys, "\nroost:") == false {
		t.Errorf("no key has the default prefix: %s", keys)
	}
	for _, name := range []string{"keys", "scan", "zscan", "monitor"} {
		if n := s.Commands()[name]; n > 1 || n == 1 && name != "keys" { // this test itself calls KEYS once
			t.Errorf("%d times %s", n, name)
		}
	}
}

func TestTLS(t *testing.T) {
	long(t)
	t.Parallel()
	s := redistest.StartTLS(t)
	conform(t, redisAt{URL: s.URL(), TLS: s.TLSConfig()})
	unknown := open(t, redisAt{URL: s.URL()})
	redistest.Eventually(t, "an error that names the certificate", func() error { // on a busy machine, the budget may end first
		_, err := unknown.Heartbeat(t.Context(), node("n", 1), time.Hour, nil)
		if errors.Is(err, pinstore.ErrStore) && strings.Contains(err.Error(), "certificate") {
			return nil
		}
		return fmt.Errorf("with an unknown certificate: %w", err)
	})
}

func TestCluster(t *testing.T) {
	long(t)
	t.Parallel()
	url := redistest.StartCluster(t, 3, 0).URL()
	conform(t, redisAt{URL: url})
	conformPresence(t, url)
}

func TestSentinel(t *testing.T) {
	long(t)
	t.Parallel()
	conform(t, redisAt{URL: redistest.StartSentinel(t).URL()})
}

func node(id lease.NodeID, incarnation uint64) lease.Incarnation {
	return lease.Incarnation{Node: id, Number: incarnation}
}

// first returns an op that claims the room.
func first(room string, by lease.Incarnation) pinstore.Op {
	return pinstore.Op{Partition: 17, Room: room, Set: pinstore.Pin{Incarnation: by, Size: 2}, TTL: time.Hour}
}

func read(room string) pinstore.Op { return pinstore.Op{Partition: 17, Room: room} }

// swap performs one op, which must not fail.
func swap(tb testing.TB, s *Store, op pinstore.Op) pinstore.Result {
	tb.Helper()
	r := s.Swap(tb.Context(), op)[0]
	if r.Err != nil {
		tb.Fatal(r.Err)
	}
	return r
}

// within returns an error unless f returns soon after its context ends. On a busy machine, every goroutine may run
// late, so within counts from the moment when another goroutine noticed the end. The client itself gives up on a server
// after 2.5 s.
func within(limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var ended atomic.Pointer[time.Time]
	stop := context.AfterFunc(ctx, func() {
		now := time.Now()
		ended.Store(&now)
	})
	err := f(ctx)
	if !stop() {
		if end := ended.Load(); end != nil && time.Since(*end) > 1500*time.Millisecond {
			return fmt.Errorf("it took %v longer than %v (%w)", time.Since(*end), limit, errors.Join(errLate, err))
		}
	}
	return err
}

var errLate = errors.New("late")
