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
	// maxCalls is how many requests can be in progress at the same time, in addition to event streams.
	maxCalls = 1024

	// maxWriting is how many responses can wait for their clients at the same time. Each response can take 64
	// kB of the kernel's memory, or more if the server does not come from NewServer. A client that reads
	// normally finishes within milliseconds.
	maxWriting = 512

	// maxHeld is the maximum total size of the responses that clients are reading. The longest response lists
	// the members of a cluster of lease.MaxNodes, and has about 7 MB.
	maxHeld = 64 << 20

	// maxRejected and maxProbed are how many rejections and probes can be in progress in addition to the
	// other requests. Further requests are aborted without a response, because over HTTP/2 even a rejection
	// can wait for a client that does not read.
	maxRejected = 256
	maxProbed   = 2048

	answerTime = 30 * time.Second // how long a client can take to read a response
)

// requests limits the requests in progress. A limit on connections is not enough, because one HTTP/2
// connection carries hundreds of requests. Requests with a token are not counted.
type requests struct {
	most, mostWriting, mostHeld int

	n atomic.Int64 // requests in progress

	mu      sync.Mutex
	held    int       // total size of the bodies that have holders
	writing list.List // elements are of type *request; the first client has been reading longest
}

// request is a request in progress, and the ResponseWriter for its response.
type request struct {
	http.ResponseWriter

	of      *requests
	token   bool // the request has a valid token
	probe   bool
	streams bool // the response is a stream with a deadline for each event
	begun   bool // writing the response has begun
	late    bool // the client did not read within answerTime
	body    *body
	at      *list.Element // element in requests.writing

	mu   sync.Mutex
	over bool // the handler has returned, or is about to
	cut  bool // the response was cut off to make room
}

// enter counts a request until its leave method is called. If the request must be rejected, ok is false. If
// even the rejection would exceed the limits, q is nil.
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

// leave ends the request, but first flushes the response. Without the flush, net/http would flush the
// response after the handler has returned, and could wait for the client while no limit counts the request.
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

// forget removes q from the list of responses that clients are reading.
func (s *requests) forget(q *request) {
	if q.at != nil {
		s.writing.Remove(q.at)
		q.at = nil
	}
}

// hold adds the size of a response to the total, and reports whether the total is within the limit. Above the
// limit, hold cuts off the requests that hold the oldest response.
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

// oldest finds the oldest response that clients are reading. All requests for that response are removed from
// the list and returned.
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

// begin must be called before the first byte of the response is written. If too many clients are reading
// responses, begin cuts off the client that has taken longest.
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

// cutOff makes the pending writes of the given requests fail. Their handlers return when net/http reports the
// failure. Over HTTP/2, net/http reports the failure only when the connection accepts another frame.
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

// note records whether err means that the client did not read in time.
func (q *request) note(err error) { q.late = q.late || errors.Is(err, os.ErrDeadlineExceeded) }

// unread reports whether the client failed to read its response. Call unread only after leave.
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

// streaming marks the response of w as a stream. A stream sets its own write deadlines.
func streaming(w http.ResponseWriter) {
	if q, ok := w.(*request); ok {
		q.streams = true
	}
}

// body is an encoded response. Clients that request the same response share its body.
type body struct {
	plain   []byte
	holders int // number of requests that hold it; guarded by requests.mu

	mu   sync.Mutex
	gzip []byte // nil: no client has requested it yet
}

// kept contains the latest responses whose size grows with the table of a ring. All clients share these responses,
// because otherwise each client that does not read would cost a copy.
type kept struct {
	partitions shared[partitionsKey]
	owned      shared[ownedKey]
}

// partitionsKey contains all values that determine the response of /v1/partitions.
type partitionsKey struct {
	table      *placement.Table
	version    uint64
	divergence int
	stale      bool
}

// ownedKey contains all values that determine the response of /v1/owned. If owns is true, the node owns its
// partitions in state. If its own lease has expired, owns is false and the node owns nothing.
type ownedKey struct {
	state *events.State
	owns  bool
}

// shared caches the latest response together with its key.
type shared[K comparable] struct {
	mu   sync.Mutex
	of   K
	made time.Time
	body *body
}

// get returns the response for a key. If the cached response has another key or is older than maxAge, get
// builds a new response while other clients wait. If maxAge is 0, a response does not expire.
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

// answerOf converts the result of shared.get to the result of an endpoint.
func answerOf(b *body, err error) (any, *Problem) {
	if err != nil {
		return nil, internal(err)
	}
	return b, nil
}
