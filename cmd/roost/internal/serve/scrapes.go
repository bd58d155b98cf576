package serve

import (
	"bytes"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	scrapeFresh = 500 * time.Millisecond // how long an answer is good for clients that share it
	fewScrapes  = 4                      // answers that may be under way before clients share them
	maxFormats  = 8                      // for which an answer is kept
)

// scrapes answers GET /metrics from memory, so a client that does not read keeps others from nothing. While many answers are under
// way, all that ask for the same format within half a second share one: those that nobody reads would fill the memory.
type scrapes struct {
	gather http.Handler

	mu       sync.Mutex
	underWay int
	answers  map[string]*scrape // the latest one, by the format that was asked for
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
	answer := s.answer(r)
	defer s.written()
	maps.Copy(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body.Bytes()) // the client may have gone
}

func (s *scrapes) written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
}

func (s *scrapes) answer(r *http.Request) *scrape {
	format := r.Header.Get("Accept") + "\n" + r.Header.Get("Accept-Encoding")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay++
	if a := s.answers[format]; a != nil && s.underWay > fewScrapes && time.Since(a.at) < scrapeFresh {
		return a
	}
	if s.answers == nil || len(s.answers) >= maxFormats {
		s.answers = make(map[string]*scrape)
	}
	a := &scrape{header: make(http.Header), status: http.StatusOK, at: time.Now()}
	s.gather.ServeHTTP(a, r)
	s.answers[format] = a
	return a
}
