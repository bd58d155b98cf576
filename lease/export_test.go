package lease

import "time"

// Limits that tests reach or exceed.
const (
	ChallengeLife   = challengeLife
	MaxDrawn        = maxDrawn
	MaxIncarnation  = maxIncarnation
	MaxLearned      = maxLearned
	MaxPullLeases   = maxPullLeases
	MaxPullRecords  = maxPullRecords
	MaxStart        = maxStart
	MinStart        = minStart
	RequestInterval = requestInterval
)

// Believe makes the messages of nodes count as if each had answered a challenge at an instant.
func (s *Set) Believe(answered map[Handle]time.Time) { s.runs = answered }
