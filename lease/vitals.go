package lease

import "time"

// vitals is the part of an entry that most messages read or write, for all live nodes.
type vitals struct {
	at          Stamp         // of the latest beat that is known of; rounded down if only its age was received
	grace       Stamp         // how much later the lease ends here, because cluster time has stepped
	clock       time.Duration // the node's wall clock minus this node's
	agesSent    int           // copies of the latest age sent by this node
	rowsSent    int           // copies of the latest row with news sent by this node
	recordsSent int           // copies of the record sent by this node
	table       uint32        // of the latest beat whose table is known
	state       State         // in the latest beat that was received whole, as clock
	inDigest    bool          // the news in the row is part of digests
	status      status
}

// renewed returns when the lease was renewed.
func (v *vitals) renewed() Stamp { return v.at + v.grace }

// gather puts the vitals of live nodes next to each other, in the order in which messages
// go through them: a message about a thousand nodes then waits far less for memory.
func (s *Set) gather() {
	if !s.scattered {
		return
	}
	s.scattered = false
	together := make([]vitals, len(s.live))
	for i, e := range s.live {
		together[i] = *e.vitals
		e.vitals, s.vitals[i] = &together[i], &together[i]
	}
}
