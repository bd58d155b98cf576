package reconnect

import (
	"cmp"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Directive makes the clients of a room connect to another node. A signalling server
// sends one for each room that moved. It is also the answer of a resolve.
type Directive struct {
	Room   string       `json:"room"`
	To     lease.NodeID `json:"to"`
	Addr   string       `json:"addr"`   // of the application on To, for clients
	Reason string       `json:"reason"` // for people
	Epoch  uint64       `json:"epoch"`  // a greater one is newer; below 2^53; 0 = To is a guess, because the store of pins does not answer
}

// Pace is the number of a client's attempts and the waits between its steps. The zero
// value of each field is its default. Waits are whole milliseconds.
type Pace struct {
	// Attempts is the number of attempts at a target that accepts and then fails, before
	// the room is resolved for the last time. Default 3.
	Attempts int

	// MinWait and MaxWait bound the wait after a failed attempt. It counts from the
	// failure and is uniform, so that the clients of a node do not return in waves. A
	// connection that is lost within MaxWait counts as a failed attempt. Default 3 s and
	// 5 s; MaxWait is at least MinWait.
	MinWait, MaxWait time.Duration

	// Spread bounds the wait of the first attempt from the directive or from the loss of
	// the connection, uniform from 0, so that the clients of a node do not all arrive
	// at the same time. Default 500 ms.
	Spread time.Duration

	// MinAsk and MaxAsk bound the wait between two asks, uniform. Default 100 ms and
	// 250 ms; MaxAsk is at least MinAsk.
	MinAsk, MaxAsk time.Duration

	// AskFor is how long a client asks for another node after its connection is lost or
	// a target refuses it. Default 15 s.
	AskFor time.Duration
}

func (p Pace) withDefaults() Pace {
	p.Attempts = cmp.Or(max(p.Attempts, 0), 3)
	p.MinWait = cmp.Or(max(p.MinWait, 0), 3*time.Second)
	p.MaxWait = max(cmp.Or(p.MaxWait, 5*time.Second), p.MinWait)
	p.Spread = cmp.Or(max(p.Spread, 0), 500*time.Millisecond)
	p.MinAsk = cmp.Or(max(p.MinAsk, 0), 100*time.Millisecond)
	p.MaxAsk = max(cmp.Or(p.MaxAsk, 250*time.Millisecond), p.MinAsk)
	p.AskFor = cmp.Or(max(p.AskFor, 0), 15*time.Second)
	return p
}

// retry returns the wait after a failed attempt.
func (p Pace) retry(u float64) time.Duration { return between(p.MinWait, p.MaxWait, u) }

// refused returns the wait after the nth refusal in a row: it doubles up to MaxWait.
func (p Pace) refused(n int, u float64) time.Duration {
	wait := p.MaxAsk
	for i := 1; i < n && wait < p.MaxWait; i++ {
		wait *= 2
	}
	wait = min(wait, p.MaxWait)
	return between((wait / 2).Truncate(time.Millisecond), wait, u)
}

// between returns the point at fraction u of the way from lo to hi. It counts in
// milliseconds, like JavaScript.
func between(lo, hi time.Duration, u float64) time.Duration {
	return lo + time.Duration(u*float64((hi-lo)/time.Millisecond))*time.Millisecond
}
