package clusterhttp

import (
	"container/list"
	"errors"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/placement"
)

const (
	// maxCalls is how many requests are in progress at a time, besides event streams.
	maxCalls = 1024

	// maxWriting bounds the answers that wait for their clients: each one may take 64 kB of
	// the kernel's memory, and more on a server without NewServer. A client that reads takes milliseconds.
	maxWriting = 512

	// maxHeld bounds the bytes of these answers. The longest answer, with the members of a
	// cluster of lease.MaxNodes, has about 7 MB.
	maxHeld = 64 << 20

	// maxRejected and maxProbed are how many more requests are rejected, or are probes, at a time. Any more
	// are aborted: over HTTP/2, even a rejection may wait for a client that does not read.
	maxRejected = 256
	maxProbed   = 2048

	answerTime = 30 * time.Second // for a client to read an answer
)

// requests bounds the requests in progress, however few connections carry them: each HTTP/2 connection
// has hundreds. Requests with a token do not count.
type requests struct {
	most, mostWriting, mostHeld int

	n atomic.Int64 // in progress

	mu      sync.Mutex
	held    int       // bytes of bodies with holders
	writing list.List // of *request; the request whose client has been reading longest comes first
}

// request is a request in progress, and writes its answer.
type request struct {
	http.ResponseWriter

	of      *requests
	token   bool // it shows a valid token
	probe   bool
	streams bool // its answer is a stream, with a deadline for each event
	begun   bool // the answer
	late    bool // the client did not read within answerTime
	body    *body
	at      *list.Element // in writing

	mu   sync.Mutex
	over bool // the handler has returned, or is about to
	cut  bool // the answer was cut off, to make room
}

// enter counts a request, until it calls leave. It returns false for a request that must be
// rejected, and no request if there is no place even for the rejection.
func (s *requests) enter(w http.ResponseWriter, token, probe bool) (q *request, ok bool) {
	q = &request{ResponseWriter: w, of: s, token: token, probe: probe}
	if token {
		return q, true
	}
	n := int(s.n.Add(1))
	switch {
	case n <= s.most, probe && n <= s.most+maxRejected+maxProbed:
		return q, true
	case n <= s.most+maxRejected:
		return q, false
	}
	s.n.Add(-1)
	return nil, false
}

// leave ends the request. It first has the rest of the answer sent: otherwise net/http would wait for the client
// after the handler, where no limit counts the request.
func (q *request) leave() {
	if q.begun {
		q.note(http.NewResponseController(q.ResponseWriter).Flush())
	}
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	if q.token {
		return
	}
	s := q.of
	s.n.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(q)
	if q.body != nil {
		if q.body.holders--; q.body.holders == 0 {
			s.held -= len(q.body.plain)
		}
	}
}

// forget takes q out of the list.
func (s *requests) forget(q *request) {
	if q.at != nil {
		s.writing.Remove(q.at)
		q.at = nil
	}
}

// hold counts the bytes of an answer, and reports whether they are within the limit. Otherwise it cuts off the
// requests that hold the oldest answer.
func (q *request) hold(b *body) bool {
	if q.token {
		return true
	}
	s := q.of
	s.mu.Lock()
	var cut []*request
	ok := b.holders > 0 || s.held == 0 || s.held+len(b.plain) <= s.mostHeld
	if ok {
		if b.holders++; b.holders == 1 {
			s.held += len(b.plain)
		}
		q.body = b
	} else {
		cut = s.oldest()
	}
	s.mu.Unlock()
	cutOff(cut)
	return ok
}

// oldest removes the requests from the list that hold the oldest answer, and returns them.
func (s *requests) oldest() (all []*request) {
	var of *body
	for at := s.writing.Front(); at != nil; {
		q := at.Value.(*request)
		at = at.Next()
		if of == nil {
			of = q.body
		}
		if q.body == of && of != nil {
			s.forget(q)
			all = append(all, q)
		}
	}
	return all
}

// begin is called with the first byte of the answer. If too many clients read theirs, it cuts off the answer
// that has taken longest.
func (q *request) begin() {
	if q.begun || q.streams {
		return
	}
	q.begun = true
	_ = http.NewResponseController(q.ResponseWriter).SetWriteDeadline(time.Now().Add(answerTime))
	if q.token {
		return
	}
	s := q.of
	var cut []*request
	s.mu.Lock()
	q.at = s.writing.PushBack(q)
	if s.writing.Len() > s.mostWriting {
		first := s.writing.Front().Value.(*request)
		s.forget(first)
		cut = append(cut, first)
	}
	s.mu.Unlock()
	cutOff(cut)
}

// cutOff ends the answers of requests. Their handlers return as soon as net/http lets them: over HTTP/2 not
// before the connection takes another frame.
func cutOff(all []*request) {
	for _, q := range all {
		q.mu.Lock()
		if !q.over {
			q.cut = true
			_ = http.NewResponseController(q.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
		}
		q.mu.Unlock()
	}
}

// note remembers that the client did not read in time.
func (q *request) note(err error) { q.late = q.late || errors.Is(err, os.ErrDeadlineExceeded) }

// unread reports whether the client did not read its answer. It is for the time after leave.
func (q *request) unread() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cut || q.late
}

// WriteHeader implements http.ResponseWriter.
func (q *request) WriteHeader(status int) {
	q.begin()
	q.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (q *request) Write(b []byte) (int, error) {
	q.begin()
	n, err := q.ResponseWriter.Write(b)
	q.note(err)
	return n, err
}

// Unwrap is for http.ResponseController.
func (q *request) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// streaming marks the answer that w writes as a stream.
func streaming(w http.ResponseWriter) {
	if q, ok := w.(*request); ok {
		q.streams = true
	}
}

// body is an encoded answer. Clients that ask for the same share it.
type body struct {
	plain   []byte
	holders int // requests; guarded by requests.mu

	mu   sync.Mutex
	gzip []byte // nil: nobody has asked for it yet
}

// kept has the latest answers of a ring that grow with its table: without it, each client that does not read
// would cost a copy.
type kept struct {
	partitions shared[partitionsKey]
	owned      shared[ownedKey]
}

// partitionsKey has what /v1/partitions is made of.
type partitionsKey struct {
	table      *placement.Table
	version    uint64
	divergence int
	stale      bool
}

// ownedKey has what /v1/owned is made of. A node owns partitions by its state, or nothing once its own lease
// has expired.
type ownedKey struct {
	state *events.State
	owns  bool
}

// shared is one answer, and what it is made of.
type shared[K comparable] struct {
	mu   sync.Mutex
	of   K
	made time.Time
	body *body
}

// get returns the answer for a key. It makes one if the last is for another key, or older than
// maxAge. Other clients wait for it.
func (s *shared[K]) get(of K, maxAge time.Duration, answer func() any) (*body, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.body != nil && s.of == of && (maxAge == 0 || time.Since(s.made) < maxAge) {
		return s.body, nil
	}
	plain, err := encoded(answer())
	if err != nil {
		return nil, err
	}
	s.of, s.made, s.body = of, time.Now(), &body{plain: plain}
	return s.body, nil
}

// answerOf makes the result of get the result of an endpoint.
func answerOf(b *body, err error) (any, *Problem) {
	if err != nil {
		return nil, internal(err)
	}
	return b, nil
}
