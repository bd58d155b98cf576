package lease

import (
	"math"
	"time"
)

// Stamp is a moment in cluster time, in milliseconds. Cluster time is a counter that all nodes share. It
// starts from the wall clock of the first nodes, every node advances it with its own monotonic clock, and
// every message carries it. A node that hears a later time adopts it, as in Lamport, "Time, Clocks, and the
// Ordering of Events in a Distributed System" (1978). So all nodes agree on it to within the time that a
// message takes. After the start, wall clocks are not compared.
//
// The stamp of a heartbeat is when the heartbeat was sent. It orders the heartbeats of a node and shows how
// old they are, no matter when and via which nodes they arrive.
type Stamp int64

// Cluster time starts between minStart, the second day of 1970, and maxStart, the year 144,683. A member does
// not adopt a time later than maxStart at once; see follow. A newcomer adopts times up to maxLearned, so that
// it can still join after a member has adopted maxStart. With minStart, no row of a live lease is from before
// 0. Messages are readable up to maxStamp, so cluster time can always advance.
const (
	minStart   = maxAge
	maxStart   = 1 << 52
	maxLearned = maxStart + maxStart/2
	maxStamp   = 1 << 53
)

// clusterTime is one node's estimate of cluster time.
type clusterTime struct {
	base   Stamp     // cluster time at origin
	origin time.Time // by this node's monotonic clock
	// provisional means that the estimate is this node's own wall clock, because the node has not heard from
	// a cluster yet. Members ignore the cluster time of its messages, so a newcomer's wrong clock does no
	// harm.
	provisional bool

	window time.Time // when the present window of small steps began
	small  Stamp     // sum of the small steps in this window
}

func startTime(now time.Time) clusterTime {
	wall := min(max(minStart, Stamp(now.UnixMilli())), maxStart)
	return clusterTime{base: wall, origin: now, provisional: true}
}

func (c *clusterTime) at(now time.Time) Stamp {
	return c.base + Stamp(now.Sub(c.origin)/time.Millisecond)
}

// local returns when cluster time was or will be at, by this node's clock.
func (c *clusterTime) local(at Stamp) time.Time { return c.origin.Add(millis(at - c.base)) }

// since returns the time from the beginning of the set to at, which may be centuries ago.
func (c *clusterTime) since(at time.Time) time.Duration { return max(at.Sub(c.origin), -maxClock) }

// isSmall reports whether a step of cluster time may make leases older, and counts it. Within a TTL, which
// spans at most two windows, such steps add up to at most a sixteenth of the TTL. A node's own lease has this
// margin, because a paused node does not see the steps.
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

// millis returns s as a duration, at most the longest duration of 292 years.
func millis(s Stamp) time.Duration {
	const most = math.MaxInt64 / Stamp(time.Millisecond)
	return time.Duration(min(max(s, -most), most)) * time.Millisecond
}

func stamps(d time.Duration) Stamp { return Stamp(d / time.Millisecond) }
