package reconnect

import (
	"cmp"
	"time"

	"github.com/roost-cluster/roost/lease"
)

// Directive tells the clients of a room to connect to another node. A signalling server sends a Directive for
// each room that has moved. A resolve also returns a Directive.
type Directive struct {
	Room   string       `json:"room"`
	To     lease.NodeID `json:"to"`
	Addr   string       `json:"addr"`   // address of the application on To, for clients
	Reason string       `json:"reason"` // for people
	Epoch  uint64       `json:"epoch"`  // a greater epoch is newer; below 2^53; 0 = To is a guess, because the store of pins does not answer
}

// Pace configures the number of a client's attempts and the waits between its steps. A zero field has its
// default value. Waits are whole milliseconds.
type Pace struct {
	// Attempts is the maximum number of failed attempts at a target that accepts the client. After that, the
	// client resolves the room one last time. Default 3.
	Attempts int

	// MinWait and MaxWait limit the wait after a failed attempt. The wait starts with the failure. The wait
	// is uniformly random, so that the clients of a node do not return in waves. A connection that is lost
	// within MaxWait is considered a failed attempt. MaxWait is at least MinWait. Default 3 s and 5 s.
	MinWait, MaxWait time.Duration

	// Spread is the maximum wait before the first attempt after a directive or the loss of the connection.
	// The wait is uniformly random from 0, so that the clients of a node do not all arrive at the same time.
	// Default 500 ms.
	Spread time.Duration

	// MinAsk and MaxAsk limit the wait between two asks. The wait is uniformly random. MaxAsk is at least
	// MinAsk. Default 100 ms and 250 ms.
	MinAsk, MaxAsk time.Duration

	// AskFor is how long a client asks for another node after it has lost its connection or a target has
	// refused it. Default 15 s.
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

// refused returns the wait after the nth refusal in a row. The wait doubles with each refusal, up to MaxWait.
func (p Pace) refused(n int, u float64) time.Duration {
	wait := p.MaxAsk
	for i := 1; i < n && wait < p.MaxWait; i++ {
		wait *= 2
	}
	wait = min(wait, p.MaxWait)
	return between((wait / 2).Truncate(time.Millisecond), wait, u)
}

// between returns the value at fraction u between lo and hi, truncated to whole milliseconds like in
// reconnect.mjs.
func between(lo, hi time.Duration, u float64) time.Duration {
	return lo + time.Duration(u*float64((hi-lo)/time.Millisecond))*time.Millisecond
}
