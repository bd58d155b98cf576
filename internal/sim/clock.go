package sim

import (
	"time"
	"unsafe"
)

// reading is what package time keeps of a moment that time.Now returned: bit 63 says so,
// 33 bits are seconds since 1885, 30 are nanoseconds; then comes the monotonic clock.
type reading struct {
	wall      uint64
	monotonic int64
	zone      *time.Location
}

const (
	fromNow     = 1 << 63
	secondsAt   = 30
	untilMaxNow = 1 << 33 // seconds: the year 2157
)

// clock returns a moment with both clocks, as time.Now does: only so can the wall clock be
// set while the monotonic clock runs on. Package time has no way to make one. A test
// compares with the layout that it relies on.
func clock(wall time.Time, monotonic time.Duration) time.Time {
	seconds := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	if seconds < 0 || seconds >= untilMaxNow {
		panic("sim: no clock of a computer reads " + wall.String())
	}
	r := reading{fromNow | uint64(seconds)<<secondsAt | uint64(wall.Nanosecond()), int64(monotonic), nil}
	return *(*time.Time)(unsafe.Pointer(&r)) //nolint:gosec // a test compares the layouts
}
