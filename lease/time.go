package lease

import (
	"math"
	"time"
)

// Stamp is a moment in cluster time, in milliseconds. Cluster time is a counter that
// all nodes share: it starts from the wall clock of the first nodes, every node
// advances it with its own monotonic clock, and every message carries it. A node that
// hears a later time takes it over, as in Lamport, "Time, Clocks, and the Ordering of
// Events in a Distributed System" (1978), so all nodes agree on it to within the time
// that a message takes. No wall clock is compared after the start.
//
// The stamp of a heartbeat is when the heartbeat was sent. It orders the heartbeats of a node, and
// says how old they are, however late and by any way they arrive.
type Stamp int64

// Cluster time starts between minStart, the second day of 1970, and maxStart, the year
// 144,683. A member takes over no later time from others at once; see follow. A newcomer does, up to
// maxLearned: it can still join after a member took over maxStart. No row of a live lease
// is from before 0, and maxStamp is readable, so cluster time can always advance.
const (
	minStart   = maxAge
	maxStart   = 1 << 52
	maxLearned = maxStart + maxStart/2
	maxStamp   = 1 << 53
)

// clusterTime is one node's estimate of cluster time.
type clusterTime struct {
	base   Stamp     // cluster time at origin
	origin time.Time // by the monotonic clock
	// provisional means that the estimate is this node's own wall clock: the node has
	// not heard from a cluster yet. Members ignore its messages, so a wrong clock of a
	// newcomer costs nothing.
	provisional bool

	window time.Time // when the present window of small steps began
	small  Stamp     // the small steps in it, together
}

func startTime(now time.Time) clusterTime {
	wall := min(max(minStart, Stamp(now.UnixMilli())), maxStart)
	return clusterTime{base: wall, origin: now, provisional: true}
}

func (c *clusterTime) at(now time.Time) Stamp {
	return c.base + Stamp(now.Sub(c.origin)/time.Millisecond)
}

// local returns when cluster time was at, by this node's clock.
func (c *clusterTime) local(at Stamp) time.Time { return c.origin.Add(millis(at - c.base)) }

// since returns the time between the beginning of the set and an instant, which may be
// centuries ago.
func (c *clusterTime) since(at time.Time) time.Duration { return max(at.Sub(c.origin), -maxClock) }

// isSmall reports whether a step of cluster time may make leases older, and counts it. In a
// TTL, two windows at most, such steps come to a sixteenth of the TTL together: the own lease
// has that much of a margin, and a paused node does not see steps.
func (c *clusterTime) isSmall(now time.Time, by Stamp, ttl time.Duration) bool {
	if now.Sub(c.window) >= ttl {
		c.window, c.small = now, 0
	}
	if millis(c.small+max(by, -by)) > ttl/32 {
		return false
	}
	c.small += max(by, -by)
	return true
}

// millis returns s as a duration: at most 292 years, as no duration is longer.
func millis(s Stamp) time.Duration {
	const most = math.MaxInt64 / Stamp(time.Millisecond)
	return time.Duration(min(max(s, -most), most)) * time.Millisecond
}

func stamps(d time.Duration) Stamp { return Stamp(d / time.Millisecond) }
