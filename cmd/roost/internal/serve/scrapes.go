package serve

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	scrapeFresh = 500 * time.Millisecond // how long clients can share an answer
	fewScrapes  = 4                      // responses in progress before clients have to share one
)

// scrapes serves GET /metrics from memory, so that a client that does not read its response cannot block the
// others. To limit that memory, clients share responses while more than four responses are in progress. A
// shared response is reused for half a second. Shared responses are always in Prometheus's text format and
// uncompressed, regardless of what the client accepts.
type scrapes struct {
	gather http.Handler

	underWay atomic.Int32

	mu     sync.Mutex
	shared *scrape
}

// scrape is a response to a scrape. While the response is being written, scrape acts as the
// http.ResponseWriter.
type scrape struct {
	header http.Header
	status int
	body   bytes.Buffer
	at     time.Time
}

func (s *scrape) Header() http.Header         { return s.header }
func (s *scrape) WriteHeader(status int)      { s.status = status }
func (s *scrape) Write(b []byte) (int, error) { return s.body.Write(b) }

// ServeHTTP implements http.Handler.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	few := s.underWay.Add(1) <= fewScrapes
	defer s.underWay.Add(-1)
	var answer *scrape
	if few {
		answer = s.scrape(r)
	} else {
		answer = s.share()
	}
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // the client may be gone
}

func (s *scrapes) scrape(r *http.Request) *scrape {
	a := &scrape{header: make(http.Header), status: http.StatusOK, at: time.Now()}
	s.gather.ServeHTTP(a, r)
	return a
}

func (s *scrapes) share() *scrape {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil || time.Since(s.shared.at) >= scrapeFresh {
		s.shared = s.scrape(&http.Request{Method: http.MethodGet, URL: &url.URL{}, Header: http.Header{}})
	}
	return s.shared
}
