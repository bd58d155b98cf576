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
	// maxCalls is how many requests may be in progress, in addition to event streams.
	maxCalls = 1024

	// maxWriting is how many responses may wait for their clients. Each may take 64 kB of the kernel's
	// memory, or more on a server without NewServer. A client that reads needs only milliseconds.
	maxWriting = 512

	// maxHeld is the maximum size of all these responses together. The longest response, with the members of
	// a cluster of lease.MaxNodes, has about 7 MB.
	maxHeld = 64 << 20

	// maxRejected and maxProbed are how many more requests may be rejected or be probes at the same time.
	// Further requests are aborted, because over HTTP/2 even a rejection may wait for a client that does not
	// read.
	maxRejected = 256
	maxProbed   = 2048

	answerTime = 30 * time.Second // for a client to read a response
)

// requests limits the requests in progress, no matter how few connections carry them, because an HTTP/2
// connection has hundreds. Requests with a token do not count.
type requests struct {
	most, mostWriting, mostHeld int

	n atomic.Int64 // requests in progress

	mu      sync.Mutex
	held    int       // total size of the bodies with holders
	writing list.List // of *request; the client of the first one has been reading longest
}

// request is a request in progress. It writes its response.
type request struct {
	http.ResponseWriter

	of      *requests
	token   bool // the request has a valid token
	probe   bool
	streams bool // the response is a stream with a deadline for each event
	begun   bool // the answer
	late    bool // the client did not read within answerTime
	body    *body
	at      *list.Element // in writing

	mu   sync.Mutex
	over bool // the handler has returned, or is about to
	cut  bool // the response was cut off to make room
}

// enter counts a request until its leave is called. It returns false if the request must be rejected, and a
// nil request if there is not even a place for the rejection.
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

// leave ends the request. It first sends the rest of the response, because otherwise net/http would wait for
// the client after the handler, where no limit counts the request.
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

// hold counts the bytes of a response, and reports whether they are within the limit. If not, it cuts off the
// requests that hold the oldest response.
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

// oldest removes the requests that hold the oldest response from the list, and returns them.
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

// begin is called with the first byte of the response. If too many clients are reading responses, it cuts off
// the one that has taken longest.
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

// cutOff ends the responses of requests. Their handlers return as soon as net/http lets them, over HTTP/2
// only when the connection accepts another frame.
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

// unread reports whether the client did not read its response. It must only be called after leave.
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

// streaming marks the response of w as a stream.
func streaming(w http.ResponseWriter) {
	if q, ok := w.(*request); ok {
		q.streams = true
	}
}

// body is an encoded response, which clients that ask for the same share.
type body struct {
	plain   []byte
	holders int // number of requests that hold it; guarded by requests.mu

	mu   sync.Mutex
	gzip []byte // nil: nobody has asked for it yet
}

// kept has the latest responses of a ring whose size grows with its table. Without it, each client that does
// not read would cost a copy.
type kept struct {
	partitions shared[partitionsKey]
	owned      shared[ownedKey]
}

// partitionsKey is what the response of /v1/partitions depends on.
type partitionsKey struct {
	table      *placement.Table
	version    uint64
	divergence int
	stale      bool
}

// ownedKey is what the response of /v1/owned depends on. A node owns the partitions of its state, or nothing
// if its own lease has expired.
type ownedKey struct {
	state *events.State
	owns  bool
}

// shared is a response, and what it depends on.
type shared[K comparable] struct {
	mu   sync.Mutex
	of   K
	made time.Time
	body *body
}

// get returns the response for a key. It makes a new one if the last is for another key or older than maxAge.
// Other clients wait for it.
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

// answerOf turns the result of get into the result of an endpoint.
func answerOf(b *body, err error) (any, *Problem) {
	if err != nil {
		return nil, internal(err)
	}
	return b, nil
}
