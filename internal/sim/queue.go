package sim

import "time"

// event is something that happens to a process at a given time: a packet arrives, or the function do runs.
type event struct {
	at     time.Time
	to     *Process
	from   *Process // sender of a packet
	packet []byte
	do     func()        // if it is not a packet; nil = the process wants to be called
	slept  time.Duration // how long the process had been suspended when the event was planned
}

// queue is a binary heap of events, earliest first. The heap itself has no pointers, because it mostly moves
// elements, and the garbage collector would have to track each move.
type queue struct {
	heap   []place
	events []event
	unused []int // indexes in events
	last   uint64
}

// place is the position of an event in time. Events at the same time happen in the order in which they were
// queued.
type place struct {
	at    int64
	turn  uint64
	event int
}

func (p place) before(o place) bool { return p.at < o.at || (p.at == o.at && p.turn < o.turn) }

func (q *queue) push(e event) {
	index := len(q.events)
	if last := len(q.unused) - 1; last >= 0 {
		index, q.unused = q.unused[last], q.unused[:last]
		q.events[index] = e
	} else {
		q.events = append(q.events, e)
	}
	q.last++
	p := place{e.at.UnixNano(), q.last, index}
	q.heap = append(q.heap, p)
	i := len(q.heap) - 1
	for ; i > 0 && p.before(q.heap[(i-1)/2]); i = (i - 1) / 2 {
		q.heap[i] = q.heap[(i-1)/2]
	}
	q.heap[i] = p
}

// next returns the time of the earliest event, or false if there is no event.
func (q *queue) next() (time.Time, bool) {
	if len(q.heap) == 0 {
		return time.Time{}, false
	}
	return q.events[q.heap[0].event].at, true
}

func (q *queue) pop() event {
	first, last := q.heap[0].event, len(q.heap)-1
	p := q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; last > 0; {
		least := 2*i + 1
		if least+1 < last && q.heap[least+1].before(q.heap[least]) {
			least++
		}
		if least >= last || p.before(q.heap[least]) {
			q.heap[i] = p
			break
		}
		q.heap[i], i = q.heap[least], least
	}
	e := q.events[first]
	q.events[first] = event{} // releases the packet
	q.unused = append(q.unused, first)
	return e
}
