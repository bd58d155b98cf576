package fleettest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/redistest"
)

// BenchmarkKill measures how long it takes, after kill -9 of one of four processes that host 20,000 rooms, until all
// rooms of that process have a new home.
func BenchmarkKill(b *testing.B) {
	var took []time.Duration
	var rooms int
	for range b.N {
		d, n := killOne(b)
		took, rooms = append(took, d), rooms+n
	}
	slices.Sort(took)
	b.ReportMetric(float64(rooms)/float64(b.N), "rooms")
	b.ReportMetric(ms(took[0]), "best-ms")
	b.ReportMetric(ms(took[len(took)/2]), "median-ms")
	b.ReportMetric(ms(took[len(took)-1]), "worst-ms")
}

// killOne starts a fleet and kills a process. It returns how long the rooms of that process had no live home, and how
// many rooms these were.
func killOne(b *testing.B) (took time.Duration, rooms int) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	redis := redistest.Start(b)
	look := newEye(b, redis.URL())
	h := newHerd(b, setup{URL: redis.URL(), LAN: true, TTL: 6 * time.Second}, "a", "b", "c", "d")
	h.host(names(many(20_000)))
	dead := h.nodes["c"]
	rooms = dead.status().Hosted

	b.StartTimer()
	since := time.Now()
	h.kill("c")
	redistest.Eventually(b, "all rooms to have a new home", func() error {
		failedOver := uint64(0)
		for _, p := range h.nodes {
			failedOver += p.status().FailedOver
		}
		if failedOver >= uint64(rooms) {
			return nil
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("%d of %d", failedOver, rooms)
		}
		if n, err := look.of(dead.incarnation); n > 0 || err != nil {
			return fmt.Errorf("%d of %d remain: %w", n, rooms, err)
		}
		return nil // the answers to some moves were late
	})
	took = time.Since(since)
	b.StopTimer()

	if n, err := look.of(dead.incarnation); n != 0 || err != nil {
		b.Errorf("%d pins name the dead process: %v", n, err)
	}
	for id := range h.nodes {
		h.kill(id)
	}
	redis.Kill()
	return took, rooms
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
