package redistest

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// tracker is a client that receives invalidations for the keys that it has read, with any
// command. It has a single connection, because several connections give no order between
// keys.
type tracker struct {
	t *testing.T
	s *Server
	rueidis.Client
	news chan string // a key that changed, or "all"
}

func newTracker(t *testing.T, s *Server) *tracker {
	t.Helper()
	tr := &tracker{t: t, s: s, news: make(chan string, 100)}
	opt := rueidis.MustParseURL(s.URL())
	opt.PipelineMultiplex = -1
	opt.ClientTrackingOptions = []string{"NOLOOP"}
	opt.OnInvalidations = func(keys []rueidis.RedisMessage) {
		if keys == nil {
			tr.news <- "all"
		}
		for _, k := range keys {
			key, _ := k.ToString()
			tr.news <- key
		}
	}
	c, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	tr.Client = c
	return tr
}

// eval runs a script by its digest; keys are declared as a cluster requires.
func (tr *tracker) eval(script string, keys ...string) string {
	tr.t.Helper()
	sha := tr.s.Do("SCRIPT", "LOAD", script)
	reply, err := tr.Do(tr.t.Context(), tr.B().Evalsha().Sha1(sha).Numkeys(int64(len(keys))).Key(keys...).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		tr.t.Fatal(err)
	}
	return reply
}

// heard returns the invalidations so far. It changes another key that the client has read:
// the invalidation of that key arrives last.
func (tr *tracker) heard() (keys []string) {
	tr.t.Helper()
	tr.eval("return redis.call('GET', KEYS[1])", "fence")
	tr.s.Do("SET", "fence", "x")
	for {
		key := tr.next()
		if key == "fence" {
			return keys
		}
		keys = append(keys, key)
	}
}

func (tr *tracker) next() string {
	tr.t.Helper()
	select {
	case key := <-tr.news:
		return key
	case <-time.After(patience):
		tr.t.Fatal("no invalidation comes")
		return ""
	}
}

// Before Redis 7.2 a script tracks the keys that it declares; since then, the keys that it
// reads. Here they are the same.
func TestTrackingOfScripts(t *testing.T) {
	const (
		get       = "return redis.call('GET', KEYS[1])"
		set       = "return redis.call('SET', KEYS[1], 'own')"
		getSet    = "redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], 'own'); return 'own'"
		getSetGet = "redis.call('GET', KEYS[1]); redis.call('SET', KEYS[1], 'own'); return redis.call('GET', KEYS[1])"
		setTTLGet = "redis.call('SET', KEYS[1], 'own', 'PX', 50); return redis.call('GET', KEYS[1])"
	)
	foreign := func(tr *tracker) { tr.s.Do("SET", "k", "foreign") }
	nothing := func(*tracker) {}
	for _, c := range []struct {
		name   string
		script string
		then   func(tr *tracker)
		want   []string
	}{
		{"a read is tracked", get, foreign, []string{"k"}},
		{"no write tracks", set, foreign, nil},
		{"the own write ends tracking", getSet, foreign, nil},
		{"a read after the own write is tracked", getSetGet, foreign, []string{"k"}},
		{"the own write is not told", getSetGet, nothing, nil},
		{"one notice for two writes", getSetGet, func(tr *tracker) { foreign(tr); foreign(tr) }, []string{"k"}},
		{"the own later write is not told", getSetGet, func(tr *tracker) { tr.eval(set, "k") }, nil},
		{"a foreign DEL is told", getSetGet, func(tr *tracker) { tr.s.Do("DEL", "k") }, []string{"k"}},
		{"a foreign PEXPIRE is told", getSetGet, func(tr *tracker) { tr.s.Do("PEXPIRE", "k", "100000") }, []string{"k"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTracker(t, Start(t))
			tr.eval(c.script, "k")
			c.then(tr)
			if got := tr.heard(); !slices.Equal(got, c.want) {
				t.Errorf("invalidated: %q, want %q", got, c.want)
			}
		})
	}
	t.Run("expiry is told", func(t *testing.T) {
		tr := newTracker(t, Start(t))
		tr.eval(setTTLGet, "k")
		if got := tr.next(); got != "k" {
			t.Errorf("invalidated: %q", got)
		}
	})
}

func TestTrackingEnds(t *testing.T) {
	const get = "return redis.call('GET', KEYS[1])"
	for _, c := range []struct {
		name string
		end  func(tr *tracker)
	}{
		{"FLUSHALL", func(tr *tracker) { tr.s.Do("FLUSHALL") }},
		{"lost connection", func(tr *tracker) { tr.s.Do("CLIENT", "KILL", "TYPE", "normal") }},
		{"restart", func(tr *tracker) { tr.s.Restart() }},
		{"Close", func(tr *tracker) { tr.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTracker(t, Start(t))
			tr.eval(get, "k")
			c.end(tr)
			if got := tr.next(); got != "all" {
				t.Fatalf("invalidated: %q, want all", got)
			}
			if c.name == "Close" {
				return
			}
			tr.eval(get, "k") // reconnects, and the new connection tracks
			tr.s.Do("SET", "k", "foreign")
			if got := tr.next(); got != "k" {
				t.Errorf("invalidated: %q, want k", got)
			}
		})
	}
}
