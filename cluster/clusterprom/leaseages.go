package clusterprom

import (
	"sync"
	"time"
)

// leaseAges accumulates the ages of the live leases over all scrapes. A single scrape only sees one moment,
// which is probably not the worst moment.
type leaseAges struct {
	mu     sync.Mutex
	count  uint64
	total  time.Duration
	within [8]uint64 // within[i] counts the leases that were at most i+1 eighths of the TTL old
}

func leaseAgeFamily() family {
	var l leaseAges
	return histogram("lease_age_seconds", "Ages of the live leases. Each scrape adds the current ages of all leases. The buckets are eighths of the TTL.", l.observe)
}

func (l *leaseAges) observe(v *view) (count uint64, total time.Duration, within map[time.Duration]uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	within = make(map[time.Duration]uint64)
	bound := func(i int) time.Duration { return v.cfg.LeaseTTL * time.Duration(i+1) / time.Duration(len(l.within)) }
	for _, m := range v.live() {
		age := m.Age()
		l.count++
		l.total += age
		for i := range l.within {
			if age <= bound(i) {
				l.within[i]++
			}
		}
	}
	for i, n := range l.within {
		within[bound(i)] = n
	}
	return l.count, l.total, within
}
