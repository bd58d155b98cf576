package lease

import "time"

// The tests inside the package need these helpers, because helper_test.go is outside of it. Only tests of the wire
// format and of single types are inside the package.

// epoch is the start of most tests. It is a whole millisecond, as on the wire.
var epoch = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

// rec returns a valid record.
func rec(id NodeID, incarnation uint64) *Record {
	return &Record{
		Profile: Profile{ID: id, Incarnation: incarnation, Addr: string(id) + ":7946", Weight: 1}, Version: 1,
	}
}

// stampAt returns the cluster time at a time of the tests' clock.
func stampAt(at time.Time) Stamp { return Stamp(at.UnixMilli()) }
