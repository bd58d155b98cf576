package sim

import (
	"time"
	"unsafe"
)

// reading is how package time represents a time from time.Now: bit 63 is set, 33 bits are seconds since 1885,
// and 30 bits are nanoseconds. The monotonic clock follows.
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

// clock returns a time that contains both clocks, like time.Now, so that the wall clock can be set while the
// monotonic clock continues. Package time has no function for that. A test checks the layout that clock
// relies on.
func clock(wall time.Time, monotonic time.Duration) time.Time {
	seconds := wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	if seconds < 0 || seconds >= untilMaxNow {
		panic("sim: no clock of a computer reads " + wall.String())
	}
	r := reading{fromNow | uint64(seconds)<<secondsAt | uint64(wall.Nanosecond()), int64(monotonic), nil}
	return *(*time.Time)(unsafe.Pointer(&r)) //nolint:gosec // a test compares the layouts
}
