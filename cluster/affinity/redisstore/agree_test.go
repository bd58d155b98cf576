package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

func stating(cluster string) pinstore.Settings {
	return pinstore.Settings{Cluster: cluster, Values: []pinstore.Setting{{Name: "partitions", Value: "64"}}}
}

// Stores with different prefixes use the same keys for the settings of a cluster, whatever the cluster's name is. The
// keys expire.
func TestFingerprint(t *testing.T) {
	server := redistest.Start(t)
	a, b := ready(t, redisAt{URL: server.URL(), Prefix: "p:"}), ready(t, redisAt{URL: server.URL(), Prefix: "q:"})
	for cluster, tag := range map[string]string{"prod": "{prod}", "17": "{17}", "a}b {c%\n": "{a%7Db%20%7Bc%25%0A}", "ü": "{%C3%BC}"} {
		settings := stating(cluster)
		server.ResetStats()
		for range 3 {
			if got, err := a.Agree(t.Context(), node("n", 1), time.Minute, settings); err != nil || got.Since == 0 {
				t.Fatalf("%q: %+v, %v", cluster, got, err)
			}
		}
		calls := server.Commands()
		if calls["evalsha"] != 6 || calls["set"] != 2 {
			t.Errorf("%q: commands %v; want 3 scripts for each of two keys, of which the first write", cluster, calls)
		}
		got, err := b.Agree(t.Context(), node("m", 1), time.Minute, settings)
		want := pinstore.Difference{Setting: "prefix", Ours: "q:", Theirs: "p:", By: node("n", 1)}
		if err != nil || len(got.Differ) != 1 || got.Differ[0] != want {
			t.Errorf("%q: %+v, %v; want %+v", cluster, got, err, want)
		}
		for _, key := range []string{"roost:" + tag + ":fingerprint", "roost:" + tag + ":users"} {
			if ttl, err := strconv.Atoi(server.Do("PTTL", key)); err != nil || ttl <= 0 || ttl > 60_000 {
				t.Errorf("%s lasts %d ms (%v); want a minute", key, ttl, err)
			}
		}
		for s, self := range map[*Store]lease.Incarnation{a: node("n", 1), b: node("m", 1)} { // so that the next name starts without keys
			if _, err := s.Agree(t.Context(), self, 0, settings); err != nil {
				t.Fatal(err)
			}
		}
		if left := server.Do("KEYS", "*"); left != "" {
			t.Errorf("%q: at the end there are the keys %s", cluster, left)
		}
	}
}

// A second cluster that uses the prefix of another cluster is refused, and the difference names both clusters. After
// Redis has lost its data, the first cluster is still accepted, even if the second cluster writes first. The second
// cluster is accepted under another prefix, or after the first cluster has ended.
func TestTwoClusters(t *testing.T) {
	server := redistest.Start(t)
	for _, prefix := range []string{DefaultPrefix, "p:"} {
		prod, staging := ready(t, redisAt{URL: server.URL(), Prefix: prefix}), ready(t, redisAt{URL: server.URL(), Prefix: prefix})
		var since int64
		state := func(s *Store, at lease.Incarnation, ttl time.Duration, cluster string, since int64) pinstore.Agreed {
			t.Helper()
			settings := stating(cluster)
			settings.Since = since
			got, err := s.Agree(t.Context(), at, ttl, settings)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		refused := func(got pinstore.Agreed, ours, theirs string, by lease.Incarnation) {
			t.Helper()
			want := pinstore.Difference{Setting: "cluster", Ours: strconv.Quote(ours), Theirs: strconv.Quote(theirs), By: by}
			if got.Since != 0 || len(got.Differ) != 1 || got.Differ[0] != want {
				t.Fatalf("%+v; want %+v", got, want)
			}
		}
		for range 3 {
			got := state(prod, node("n", 1), time.Minute, "prod", since)
			if len(got.Differ) > 0 || got.Since == 0 || len(got.Refused) > 0 {
				t.Fatalf("the first cluster: %+v", got)
			}
			since = got.Since
			refused(state(staging, node("n", 2), time.Minute, "staging", 0), "staging", "prod", node("n", 1))
		}

		time.Sleep(2 * time.Millisecond)
		server.Do("FLUSHALL") // after which staging is the first to state its name
		late := state(staging, node("n", 2), time.Minute, "staging", 0)
		if len(late.Differ) > 0 {
			t.Fatalf("the first to come after a loss: %+v", late)
		}
		if got := state(prod, node("n", 1), time.Minute, "prod", since); len(got.Differ) > 0 {
			t.Fatalf("the cluster that ran before: %+v", got)
		}
		refused(state(staging, node("n", 2), time.Minute, "staging", late.Since), "staging", "prod", node("n", 1))

		if got := state(ready(t, redisAt{URL: server.URL(), Prefix: prefix + "s:"}), node("n", 2), time.Minute, "third", 0); len(got.Differ) > 0 {
			t.Fatalf("under another prefix: %+v", got)
		}
		state(prod, node("n", 1), 0, "prod", 0)
		if got := state(staging, node("m", 1), time.Minute, "other", 0); len(got.Differ) > 0 {
			t.Fatalf("after the end of the other one: %+v", got)
		}
		server.Do("FLUSHALL")
	}
}

// If the key holds a value that roost did not write, the error names the key. Settings that the key cannot hold are
// refused.
func TestFingerprintForeign(t *testing.T) {
	server, s := started(t)
	const key = "roost:{c}:fingerprint"
	for _, put := range [][]string{{"SET", key, "foreign"}, {"RPUSH", key, "foreign"}} {
		server.Do("DEL", key)
		server.Do(put...)
		_, err := s.Agree(t.Context(), node("n", 1), time.Minute, stating("c"))
		if !errors.Is(err, pinstore.ErrStore) || !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("after %v: %v; want an ErrStore that names the key", put, err)
		}
	}
	for _, own := range []pinstore.Setting{{Name: "", Value: "1"}, {Name: "a b", Value: "1"}, {Name: "a", Value: "1\n2"}} {
		settings := stating("d")
		settings.Values = append(settings.Values, own)
		if _, err := s.Agree(t.Context(), node("n", 1), time.Minute, settings); !errors.Is(err, pinstore.ErrStore) {
			t.Errorf("%+v: %v; want an ErrStore", own, err)
		}
	}
	if _, err := s.Agree(t.Context(), node("a|b", 1), time.Minute, stating("d")); err == nil {
		t.Error("no error for an incarnation that the key cannot hold")
	}
	if left := server.Do("EXISTS", "roost:{d}:fingerprint", "roost:{d}:users"); left != "0" {
		t.Errorf("%s keys were written", left)
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	server, s := started(b)
	for name, f := range map[string]func(i int) error{
		"heartbeat": func(i int) error {
			_, err := s.Heartbeat(b.Context(), node(lease.NodeID(fmt.Sprint("n", i%100)), 1), time.Minute, nil)
			return err
		},
		"settings": func(i int) error {
			settings := stating("c")
			settings.Values = append(settings.Values, pinstore.Setting{Name: "cost", Value: "1,1,2,6,90,2450,999000,1,100,5090,1,1"})
			_, err := s.Agree(b.Context(), node(lease.NodeID(fmt.Sprint("n", i%100)), 1), 6*time.Second, settings)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			server.ResetStats()
			for i := range b.N {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
			}
			_, rest, _ := strings.Cut(server.Do("INFO", "commandstats"), "cmdstat_evalsha:")
			_, rest, _ = strings.Cut(rest, "usec_per_call=")
			if usec, err := strconv.ParseFloat(rest[:max(0, strings.IndexByte(rest, ','))], 64); err == nil {
				b.ReportMetric(usec, "server-µs/op")
			}
		})
	}
}
