package serve

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	scrapeFresh = 500 * time.Millisecond // how long an answer is good
	maxScrapes  = 8                      // answers in different formats
)

// scrapes answers GET /metrics from memory, one answer for all clients that ask for the same format within half a second. So a
// client that does not read keeps others from nothing.
type scrapes struct {
	gather http.Handler

	mu      sync.Mutex
	answers map[string]*scrape // by the format that was asked for
}

// scrape is an answer, which is an http.ResponseWriter until it is complete.
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
	answer := s.latest(r)
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // the client may have gone
}

func (s *scrapes) latest(r *http.Request) *scrape {
	format := r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answers[format]; a != nil && time.Since(a.at) < scrapeFresh {
		return a
	}
	if s.answers == nil || len(s.answers) >= maxScrapes {
		s.answers = make(map[string]*scrape)
	}
	a := &scrape{header: make(http.Header), status: http.StatusOK, at: time.Now()}
	s.gather.ServeHTTP(a, r)
	s.answers[format] = a
	return a
}
