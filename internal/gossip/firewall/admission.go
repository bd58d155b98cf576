package firewall

// This is the rule for open streams. In v0.5.1, memberlist starts a goroutine for each stream that it accepts
// (streamListen), and each goroutine may keep 20 MiB for as long as TCPTimeout (handleConn). memberlist only
// limits the number of exchanges that it answers concurrently (maxPushPullRequests):
// https://github.com/hashicorp/memberlist/pull/158. With v0.5.1, 64 connections of an unauthenticated peer
// made a process use 2.8 GB. A limit on the number of streams alone is not enough, because silent streams
// would then keep members out.
//
// The rule can be removed when memberlist limits the memory of all streams together, and closes streams that
// block others.

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

// These limits bound the total memory of incoming streams to 32 MiB.
const (
	// maxStreams is the maximum number of open streams. A watch stream counts until its handshake is
	// finished.
	maxStreams = 256

	// smallStream is the maximum size of a message that does not need a budget. The limit on streams also
	// limits the total size of such messages to 2 MiB. Pings and the exchange of a joining node are smaller.
	smallStream = 8 << 10

	// readBudget is the maximum total size of the larger messages that are being read, and so also the
	// maximum size of one message. Even if the cluster has a key, the senders of these messages are not
	// authenticated yet: the key can only be checked when a message is complete.
	readBudget = 14 << 20

	// serveBudget limits the complete messages that memberlist is decoding and answering. If there is a key,
	// these messages are authenticated. Each message uses twice its own size plus twice the size of its
	// answer.
	serveBudget = 16 << 20

	// maxServed must be below 128, because memberlist closes further exchanges without an answer.
	maxServed = 32

	// A stream may use its budget for readTime or serveTime, plus the time that its bytes take at leastRate
	// bytes per second. After that, the stream is closed if other streams are waiting for the budget.
	// serveTime is longer than readTime, because the time to serve a message mainly depends on this process,
	// which may be slow.
	readTime  = time.Second
	serveTime = 2500 * time.Millisecond
	leastRate = 1 << 20

	// leastAge is the time for which a stream keeps its slot in any case. It starts when this process begins
	// to read the stream. A busy process needs this time to read the data that has arrived.
	leastAge = 100 * time.Millisecond
)

// ErrEvicted means that this node closed a stream to make room for other streams.
var ErrEvicted = errors.New("gossip: stream closed for the sake of others")

// admission decides which streams are open, and which of them may use memory. If slots or memory run out,
// admission closes a stream of the source address that uses the most. Of that address's streams, it closes
// the one that has waited longest.
type admission struct {
	evicted *atomic.Uint64
	answer  atomic.Int64 // approximate size of this node's full state in bytes

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

// place contains the resources that one stream uses.
type place struct {
	all    *admission
	conn   net.Conn
	from   netip.Addr
	since  time.Time    // when this node began to read; zero = it has not
	until  time.Time    // when a wait for budget ends; zero = never
	proven bool         // the sender has proven that it has the key
	moved  atomic.Int64 // bytes since the grant

	pool    *pool         // the pool that the stream is in; nil = none
	bytes   int           // its budget in that pool
	at      time.Time     // when the stream entered the pool, or when its bytes were granted
	granted bool          // the bytes have been granted
	kept    int           // bytes of toRead, for a message that waits to be served
	ready   chan struct{} // closed when the bytes are granted
	gone    chan struct{} // closed when the stream is expelled
	written atomic.Int32  // what this node has started to write
}

// These constants specify what this node has written to a stream. It never writes both a message and Busy,
// because one would corrupt the other.
const (
	writesNothing int32 = iota
	writesMessage       // a request or an answer
	writesBusy
)

// begins reports whether this node may write the given kind of data: it has not written anything yet, or is
// already writing this kind.
func (p *place) begins(what int32) bool {
	return p.written.CompareAndSwap(writesNothing, what) || p.written.Load() == what
}

// enter waits until there is room for an incoming stream, and makes room by closing another stream if
// possible. No stream is closed while all open streams are new or are only waiting for this node, as in a
// mass start. enter returns nil if the context is done.
func (s *admission) enter(ctx context.Context, conn net.Conn, timeout time.Duration) *place {
	p := s.outgoing(conn)
	p.until = time.Now().Add(timeout)
	for !s.enters(p) {
		select {
		case <-s.left:
		case <-time.After(leastAge / 5): // a stream may have been here for long enough by then
		case <-ctx.Done():
			return nil
		}
	}
	return p
}

// outgoing returns the place of a stream that this node opened. Such a stream does not take a slot.
func (s *admission) outgoing(conn net.Conn) *place {
	return &place{all: s, conn: conn, from: source(conn), gone: make(chan struct{})}
}

// begin records that this node starts to read the stream.
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

// victim returns the stream to close when all slots are taken, or nil. It considers only streams that this node is
// waiting for, and streams that are being served for too long. It prefers streams that have not proven the key. Among
// those, it takes the source with the most streams and returns that source's oldest stream.
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

// overdue reports whether a stream waited too long for its budget, or kept it too long for the number of bytes that it
// has transferred.
func (p *place) overdue(now time.Time) bool {
	return now.Sub(p.at) > p.pool.time+time.Duration(p.moved.Load())*time.Second/leastRate
}

// drop releases everything that a stream uses.
func (s *admission) drop(p *place) {
	s.release(p)
	s.open = slices.DeleteFunc(s.open, func(other *place) bool { return other == p })
	select {
	case s.left <- struct{}{}:
	default:
	}
}

// expel permanently releases everything that a stream uses. The caller must then call evict without holding
// the lock.
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

// evict closes streams that were expelled, and tells the other sides that they may retry.
func (s *admission) evict(victims ...*place) {
	for _, p := range victims {
		if p == nil {
			continue
		}
		s.evicted.Add(1)
		p.closeBusy()
	}
}

// closeBusy sends the byte Busy and closes the stream. Without this byte, the other side might conclude that
// this node belongs to another cluster. If an answer has begun, the byte is not sent. The byte fits into the
// send buffer, which is empty. If two goroutines close the stream at the same time, both may send the byte,
// which is harmless because the other side only reads the first byte.
func (p *place) closeBusy() {
	if p.begins(writesBusy) {
		_ = p.conn.SetWriteDeadline(time.Now().Add(readTime))
		_, _ = p.conn.Write([]byte{Busy})
	}
	_ = p.conn.Close()
}

// leave releases everything that a stream uses. It may be called more than once.
func (p *place) leave() {
	s := p.all
	s.mu.Lock()
	s.drop(p)
	victims := s.grantAll(time.Now())
	s.mu.Unlock()
	s.evict(victims...)
}

// prove records that the sender of a stream has proven that it has the key.
func (p *place) prove() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.proven = true
}

// move releases the bytes of the stream's previous pool, and waits until the stream has the given number of
// bytes in another pool. While the stream waits, it keeps the bytes of its message, unless the message is
// small.
func (p *place) move(ctx context.Context, to *pool, bytes, message int) error {
	s := p.all
	s.mu.Lock()
	select {
	case <-p.gone: // its slot belongs to another stream now
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
	time        time.Duration // how long a stream may use its bytes in any case
	used        int
	granted     []*place // in the order of the grants
	waiting     []*place
}

// grantAll first grants budget to the streams that wait to be served, because this releases the read budget
// that they still hold.
func (s *admission) grantAll(now time.Time) (victims []*place) {
	return append(s.grant(&s.served, now), s.grant(&s.toRead, now)...)
}

// grant gives budget to waiting streams, and takes it from streams that are overdue. It picks the stream
// whose source uses the fewest bytes, then the smallest message, and then the earliest stream.
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

// users returns the streams that use bytes of a pool.
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
	return slices.MinFunc(in.waiting, func(a, b *place) int { // the earliest stream wins a tie
		if d := uses[a.from] - uses[b.from]; d != 0 {
			return d
		}
		return a.bytes - b.bytes
	})
}

// sent records the size of a message that this node sends, to estimate the size of its full state.
func (s *admission) sent(bytes int) {
	if most := s.answer.Load(); int64(bytes) > most {
		s.answer.Store(int64(bytes))
	} else if bytes > smallStream {
		s.answer.Store(most - (most-int64(bytes))/16)
	}
}

// nodeBytes is half of the memory that memberlist keeps for each node of an exchange, in addition to the
// bytes that were sent.
const nodeBytes = 128

// costs returns how many bytes of the budget a message uses while memberlist handles it.
func (s *admission) costs(message, nodes int) int {
	return 2 * (message + nodes*nodeBytes + int(s.answer.Load()))
}
