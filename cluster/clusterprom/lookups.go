package clusterprom

import (
	"strconv"
	"sync"
	"time"

	"github.com/roost-cluster/roost/cluster"
)

// lookups measures a batch of lookups at each scrape. It does not measure a single lookup, because reading the clock
// takes longer than a lookup.
type lookups struct {
	keys [256]string

	mu    sync.Mutex // needed because scrapes can overlap
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

// measure performs and times a batch of lookups if the snapshot has a table. measure returns the number and
// the total duration of all lookups since the collector was created.
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
