package lease

import "time"

// Limits that tests reach or exceed.
const (
	BucketSize        = bucketSize
	ChallengeLife     = challengeLife
	MaxAge            = maxAge
	MaxBits           = maxBits
	MaxBuckets        = maxBuckets
	MaxDiffering      = maxDiffering
	MaxDrawn          = maxDrawn
	MaxIncarnation    = maxIncarnation
	MaxLearned        = maxLearned
	MaxPullLeases     = maxPullLeases
	MaxPullRecords    = maxPullRecords
	MaxRepairs        = maxRepairs
	MaxStart          = maxStart
	MessageOverhead   = messageOverhead
	OverStream        = overStream
	MaxHeartbeatBytes = maxHeartbeatBytes
	MaxStamp          = maxStamp
	MinStart          = minStart
	RequestInterval   = requestInterval
)

// Believe makes the messages of nodes count as if each node had answered a challenge at the given time.
func (s *Set) Believe(answered map[Handle]time.Time) { s.runs = answered }

// Sizes returns the sizes of everything in a set that grows with the messages of other nodes.
func (s *Set) Sizes() map[string]int {
	return map[string]int{
		"known": len(s.known), "nodes": len(s.nodes), "requested": len(s.requested),
		"ahead": len(s.ahead), "differs": len(s.ages.differs), "reported": len(s.reported),
		"cordons": len(s.cordons.all), "cordons in force": len(s.cordons.inForce), "cordons sent": len(s.cordons.sent),
	}
}

// RowCopies returns to how many recipients a set sends the row of a node.
func (s *Set) RowCopies() int { return s.rowCopies() }

// RecordCopies returns to how many recipients a set sends the record of a node.
func (s *Set) RecordCopies() int { return s.recordCopies() }
