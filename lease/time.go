package lease

import (
	"math"
	"time"
)

// Stamp is a moment in cluster time, in milliseconds. Cluster time is a counter that all nodes share. It
// starts from the wall clock of the first nodes. Every node advances its estimate with its own monotonic
// clock, and sends the estimate in every message. A node that receives a later cluster time adopts it, as in
// Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System" (1978). So the estimates of all
// nodes differ by at most the time that a message takes. After the start, cluster time does not depend on
// wall clocks.
//
// The stamp of a heartbeat is the cluster time at which the node sent the heartbeat. Stamps order the
// heartbeats of a node and show how old they are, no matter when and via which nodes they arrive.
type Stamp int64

// Cluster time starts between minStart, the second day of 1970, and maxStart, the year 144,683. A member does not
// immediately adopt a time later than maxStart; see follow. A newcomer adopts times up to maxLearned, so that it can
// still join after a member has adopted maxStart. Because of minStart, the stamps of live leases are never negative.
// Messages are readable up to maxStamp, so cluster time can always advance.
const (
	minStart   = maxAge
	maxStart   = 1 << 52
	maxLearned = maxStart + maxStart/2
	maxStamp   = 1 << 53
)

// clusterTime is one node's estimate of cluster time.
type clusterTime struct {
	base   Stamp     // cluster time at origin
	origin time.Time // read from this node's monotonic clock
	// provisional means that the estimate comes from this node's own wall clock, because the node has not
	// received a message from a cluster yet. Members ignore the cluster time of its messages, so a newcomer's
	// wrong clock does no harm.
	provisional bool

	window time.Time // when the current window of small steps began
	small  Stamp     // sum of the small steps in the current window
}

func startTime(now time.Time) clusterTime {
	wall := min(max(minStart, Stamp(now.UnixMilli())), maxStart)
	return clusterTime{base: wall, origin: now, provisional: true}
}

func (c *clusterTime) at(now time.Time) Stamp {
	return c.base + Stamp(now.Sub(c.origin)/time.Millisecond)
}

// local converts a cluster time to this node's clock.
func (c *clusterTime) local(at Stamp) time.Time { return c.origin.Add(millis(at - c.base)) }

// since returns the time from the creation of the set to at. The argument can be centuries ago.
func (c *clusterTime) since(at time.Time) time.Duration { return max(at.Sub(c.origin), -maxClock) }

// isSmall reports whether a step of cluster time is small enough to change the age of leases. If so, isSmall
// counts the step. Within a TTL, which spans at most two windows, small steps add up to at most a sixteenth
// of the TTL. A node's own lease has this margin, because a paused node does not see the steps.
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

// millis converts s to a duration, limited to the longest possible duration, 292 years.
func millis(s Stamp) time.Duration {
	const most = math.MaxInt64 / Stamp(time.Millisecond)
	return time.Duration(min(max(s, -most), most)) * time.Millisecond
}

func stamps(d time.Duration) Stamp { return Stamp(d / time.Millisecond) }
