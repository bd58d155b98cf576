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
	scrapeFresh = 500 * time.Millisecond // how long an answer is good for clients that share it
	fewScrapes  = 4                      // responses that may be in progress before clients share one
)

// scrapes serves GET /metrics from memory, so that a client that does not read does not block others.
// Responses that nobody reads would fill the memory. So while many are in progress, all other clients within
// half a second share one, in Prometheus's text format and uncompressed, whatever they ask for.
type scrapes struct {
	gather http.Handler

	underWay atomic.Int32

	mu     sync.Mutex
	shared *scrape
}

// scrape is a response, which is an http.ResponseWriter until it is complete.
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
	_, _ = w.Write(answer.body.Bytes()) // the client may have gone
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
