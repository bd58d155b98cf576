package clusterprom

import (
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// lookups times lookups, some with each scrape. They are timed together, since
// reading the clock takes longer than one of them does.
type lookups struct {
	keys [256]string

	mu    sync.Mutex // of scrapes that overlap
	count uint64
	took  time.Duration
}

func lookupFamily() family {
	var l lookups
	for i := range l.keys {
		l.keys[i] = "key-" + strconv.Itoa(i)
	}
	return durations("lookup_duration_seconds",
		"Time that lookups of keys took which were made for this measurement, some with each scrape.",
		func(v *view) (uint64, time.Duration) { return l.measure(v.Snapshot) })
}

// measure times lookups in a snapshot, if it can answer them, and returns how
// many were timed so far, and how long they took.
func (l *lookups) measure(s *cluster.Snapshot) (count uint64, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Table != nil {
		begin := time.Now()
		for _, key := range l.keys {
			_, _ = s.Place(key)
		}
		l.took += time.Since(begin)
		l.count += uint64(len(l.keys))
	}
	return l.count, l.took
}
