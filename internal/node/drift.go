package node

import "time"

// drift counts how often, and for how long, a node with a table saw members with
// another one.
type drift struct {
	members int       // that differ, as of the last count
	since   time.Time // until then drift is counted; zero = there is none
	times   uint64
	total   time.Duration
}

// count notes how many members differ now. Without a table the node knows nothing
// about the time since the last count.
func (d *drift) count(now time.Time, hasTable bool, members int) {
	d.members = members
	drifting, did := hasTable && members > 0, !d.since.IsZero()
	switch {
	case drifting && !did:
		d.times++
	case did && hasTable:
		d.total += now.Sub(d.since)
	}
	d.since = time.Time{}
	if drifting {
		d.since = now
	}
}
