package clusterprom

import (
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// lookups times a batch of lookups at each scrape, because reading the clock takes longer than a single
// lookup.
type lookups struct {
	keys [256]string

	mu    sync.Mutex // scrapes may overlap
	count uint64
	took  time.Duration
}

func lookupFamily() family {
	var l lookups
	for i := range l.keys {
		l.keys[i] = "key-" + strconv.Itoa(i)
	}
	return durations("lookup_duration_seconds",
		"Duration of key lookups, measured with extra lookups at each scrape.",
		func(v *view) (uint64, time.Duration) { return l.measure(v.Snapshot) })
}

// measure times lookups in a snapshot with a table, and returns the number and the duration
// of all lookups so far.
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
