package firewall

// The rule for open streams. In v0.5.1, memberlist starts a goroutine for each stream that it accepts (streamListen), and
// each may keep 20 MiB for as long as TCPTimeout (handleConn). It bounds nothing but the exchanges that it answers at a
// time (maxPushPullRequests): https://github.com/hashicorp/memberlist/pull/158. So 64 connections of an unauthenticated
// peer took a process to 2.8 GB. If only their number were bounded, silent ones would keep members out.
//
// The rule can go when memberlist bounds the memory of all streams together, and closes those that others wait for.

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds of incoming streams: 32 MiB together.
const (
	// maxStreams is how many have not ended. A watch stream counts until its handshake is over.
	maxStreams = 256

	// smallStream is the size of a message that waits for no budget: the slots bound these, to
	// 2 MiB. A ping is smaller, and the exchange of a node that joins.
	smallStream = 8 << 10

	// readBudget is how many bytes may be announced by the larger messages that are being
	// read, and so the size of the largest one. With a key, these have proven nothing yet.
	readBudget = 14 << 20

	// serveBudget is for messages that are complete, and authentic if there is a key, while
	// memberlist decodes and answers them: twice the bytes of a message and its answer.
	serveBudget = 16 << 20

	// maxServed is below 128: memberlist hangs up on further exchanges without an answer.
	maxServed = 32

	// A stream that has its budget for longer than this, and for longer than its bytes take at
	// leastRate a second, is closed if others wait for the budget. Serving it is mostly up to
	// this process, which may be slow.
	readTime  = time.Second
	serveTime = 2500 * time.Millisecond
	leastRate = 1 << 20

	// leastAge is how long a stream may use its slot in any case, from when this process begins
	// to read: a busy one needs time to read what has arrived.
	leastAge = 100 * time.Millisecond
)

// ErrEvicted means that this node closed a stream to make room for others.
var ErrEvicted = errors.New("gossip: stream closed for the sake of others")

// admission decides which streams are open, and which of them may use memory. Where there is
// too little of both, the source address with the most loses, and there the stream that has
// waited longest.
type admission struct {
	evicted *atomic.Uint64
	answer  atomic.Int64 // bytes of a full state of this node, about

	mu     sync.Mutex
	open   []*place // in the order of their arrival
	left   chan struct{}
	toRead pool
	served pool
}

func newAdmission(evicted *atomic.Uint64) *admission {
	return &admission{
		evicted: evicted,
		left:    make(chan struct{}, 1),
		toRead:  pool{bytes: readBudget, most: 2 * maxStreams, time: readTime},
		served:  pool{bytes: serveBudget, most: maxServed, time: serveTime},
	}
}

// place is what one stream holds.
type place struct {
	all    *admission
	conn   net.Conn
	from   netip.Addr
	since  time.Time    // when this node began to read; zero = it has not
	until  time.Time    // when a wait for budget ends; zero = never
	proven bool         // it has shown the key
	moved  atomic.Int64 // bytes since the grant

	pool    *pool         // which it is in; nil = none
	bytes   int           // there
	at      time.Time     // when it came into the pool, or got its bytes
	granted bool          // it has them
	kept    int           // bytes of toRead, for a message that waits to be served
	ready   chan struct{} // closed then
	gone    chan struct{} // closed when the stream is expelled
	written atomic.Int32  // what this node has begun to write
}

// What this node writes to a stream: one of the two, so that neither spoils the other.
const (
	writesNothing int32 = iota
	writesMessage       // a request or an answer
	writesBusy
)

// begins reports whether this node may write that: it does so already, or has written nothing.
func (p *place) begins(what int32) bool {
	return p.written.CompareAndSwap(writesNothing, what) || p.written.Load() == what
}

// enter makes room for an incoming stream. It waits while all others wait for this node alone,
// as in a mass start, or are new, and returns nil if the context ends.
func (s *admission) enter(ctx context.Context, conn net.Conn, timeout time.Duration) *place {
	p := s.outgoing(conn)
	p.until = time.Now().Add(timeout)
	for !s.enters(p) {
		select {
		case <-s.left:
		case <-time.After(leastAge / 5): // one may have been here for long enough
		case <-ctx.Done():
			return nil
		}
	}
	return p
}

// outgoing returns the place of a stream that this node opened, which takes no slot.
func (s *admission) outgoing(conn net.Conn) *place {
	return &place{all: s, conn: conn, from: source(conn), gone: make(chan struct{})}
}

// begin notes that this node reads the stream from now on.
func (p *place) begin() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.since = time.Now()
}

func (s *admission) enters(p *place) bool {
	s.mu.Lock()
	var victim *place
	if len(s.open) >= maxStreams {
		if victim = s.victim(time.Now()); victim == nil {
			s.mu.Unlock()
			return false
		}
		s.expel(victim)
	}
	s.open = append(s.open, p)
	s.mu.Unlock()
	s.evict(victim)
	return true
}

// victim returns the stream to close when all slots are taken, or nil. It considers only streams that this
// node is waiting for. It prefers streams that have not proven the key. Among those, it takes the source with
// the most streams and returns that source's oldest stream.
func (s *admission) victim(now time.Time) *place {
	for _, proven := range []bool{false, true} {
		may := func(p *place) bool {
			return p.proven == proven && p.begunBefore(now.Add(-leastAge)) && (p.pool != &s.served || p.overdue(now))
		}
		from := make(map[netip.Addr]int)
		for _, p := range s.open {
			if may(p) {
				from[p.from]++
			}
		}
		var v *place
		for _, p := range s.open {
			if may(p) && (v == nil || from[p.from] > from[v.from]) {
				v = p
			}
		}
		if v != nil {
			return v
		}
	}
	return nil
}

func (p *place) begunBefore(at time.Time) bool { return !p.since.IsZero() && !p.since.After(at) }

// overdue reports whether a stream has waited for its budget for long, or has it for longer than it
// needs.
func (p *place) overdue(now time.Time) bool {
	return now.Sub(p.at) > p.pool.time+time.Duration(p.moved.Load())*time.Second/leastRate
}

// drop takes all from a stream.
func (s *admission) drop(p *place) {
	s.release(p)
	s.open = slices.DeleteFunc(s.open, func(other *place) bool { return other == p })
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// expel takes all from a stream, for good. The caller evicts it, without the lock.
func (s *admission) expel(p *place) {
	s.drop(p)
	close(p.gone)
}

func (s *admission) release(p *place) {
	s.toRead.used -= p.kept
	p.kept = 0
	if p.pool == nil {
		return
	}
	is := func(other *place) bool { return other == p }
	p.pool.waiting = slices.DeleteFunc(p.pool.waiting, is)
	if p.granted {
		p.pool.granted = slices.DeleteFunc(p.pool.granted, is)
		p.pool.used -= p.bytes
	}
	p.pool, p.granted = nil, false
}

// evict closes streams that were expelled, and says that they may come again.
func (s *admission) evict(victims ...*place) {
	for _, p := range victims {
		if p == nil {
			continue
		}
		s.evicted.Add(1)
		p.closeBusy()
	}
}

// closeBusy closes a stream of which the other side may think that this is another cluster. It says
// so, unless an answer has begun. The byte fits into the send buffer, which is empty. Two that close
// the stream at once may both say so: the other side reads the first byte.
func (p *place) closeBusy() {
	if p.begins(writesBusy) {
		_ = p.conn.SetWriteDeadline(time.Now().Add(readTime))
		_, _ = p.conn.Write([]byte{Busy})
	}
	_ = p.conn.Close()
}

// leave gives back what a stream holds. It may be called again.
func (p *place) leave() {
	s := p.all
	s.mu.Lock()
	s.drop(p)
	victims := s.grantAll(time.Now())
	s.mu.Unlock()
	s.evict(victims...)
}

// prove notes that a stream has shown the key.
func (p *place) prove() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.proven = true
}

// move waits until the stream has so many bytes of another pool, and none of the former one. Until then it
// keeps those of its message, unless that is small.
func (p *place) move(ctx context.Context, to *pool, bytes, message int) error {
	s := p.all
	s.mu.Lock()
	select {
	case <-p.gone: // its slot has another one
		s.mu.Unlock()
		return ErrEvicted
	default:
	}
	kept, now := 0, time.Now()
	if p.pool == &s.toRead && message > smallStream {
		kept = min(message, p.bytes)
	}
	s.release(p)
	p.kept = kept
	s.toRead.used += kept
	p.pool, p.bytes, p.at, p.ready = to, min(bytes, to.bytes), now, make(chan struct{})
	p.moved.Store(0)
	to.waiting = append(to.waiting, p)
	victims := s.grantAll(now)
	s.mu.Unlock()
	s.evict(victims...)
	return p.await(ctx)
}

func (p *place) await(ctx context.Context) error {
	look := time.NewTicker(readTime / 10)
	defer look.Stop()
	for {
		select {
		case <-p.ready:
			return nil
		default:
		}
		select {
		case <-p.ready:
			return nil
		case <-p.gone:
			return ErrEvicted
		case <-ctx.Done():
			return net.ErrClosed
		case now := <-look.C:
			if !p.until.IsZero() && now.After(p.until) {
				return os.ErrDeadlineExceeded
			}
			p.all.mu.Lock()
			victims := p.all.grantAll(now)
			p.all.mu.Unlock()
			p.all.evict(victims...)
		}
	}
}

// pool is a budget of bytes.
type pool struct {
	bytes, most int
	time        time.Duration // that a stream has in any case
	used        int
	granted     []*place // in the order of the grants
	waiting     []*place
}

// grantAll begins with the streams that wait to be served: they give back what they keep to read.
func (s *admission) grantAll(now time.Time) (victims []*place) {
	return append(s.grant(&s.served, now), s.grant(&s.toRead, now)...)
}

// grant gives budget to the streams that wait for it, and takes it from those that are
// overdue. The next one is of the source that uses least, small, and early.
func (s *admission) grant(in *pool, now time.Time) (victims []*place) {
	for len(in.waiting) > 0 {
		next := s.next(in)
		if in.used+next.bytes > in.bytes || len(in.granted) >= in.most {
			users := s.users(in)
			i := slices.IndexFunc(users, func(p *place) bool { return p.overdue(now) })
			if i < 0 {
				return victims
			}
			victims = append(victims, users[i])
			s.expel(users[i])
			continue
		}
		s.toRead.used -= next.kept
		next.kept = 0
		in.waiting = slices.DeleteFunc(in.waiting, func(p *place) bool { return p == next })
		in.granted = append(in.granted, next)
		in.used += next.bytes
		next.at, next.granted = now, true
		close(next.ready)
	}
	return victims
}

// users returns the streams that have bytes of a pool.
func (s *admission) users(in *pool) []*place {
	if in != &s.toRead {
		return in.granted
	}
	return append(slices.Clone(in.granted), slices.DeleteFunc(slices.Clone(s.served.waiting), func(p *place) bool { return p.kept == 0 })...)
}

func (s *admission) next(in *pool) *place {
	uses := make(map[netip.Addr]int)
	for _, p := range s.users(in) {
		if p.pool == in {
			uses[p.from] += p.bytes
		} else {
			uses[p.from] += p.kept
		}
	}
	return slices.MinFunc(in.waiting, func(a, b *place) int { // the first one of equals
		if d := uses[a.from] - uses[b.from]; d != 0 {
			return d
		}
		return a.bytes - b.bytes
	})
}

// sent notes the size of a message of this node, which may be its full state.
func (s *admission) sent(bytes int) {
	if most := s.answer.Load(); int64(bytes) > most {
		s.answer.Store(int64(bytes))
	} else if bytes > smallStream {
		s.answer.Store(most - (most-int64(bytes))/16)
	}
}

// nodeBytes is half of what memberlist keeps for each node of an exchange, besides the bytes that were sent.
const nodeBytes = 128

// costs returns the bytes of the budget for a message that memberlist handles.
func (s *admission) costs(message, nodes int) int {
	return 2 * (message + nodes*nodeBytes + int(s.answer.Load()))
}
