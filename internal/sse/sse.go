// Package sse writes server-sent events, even if clients don't read them, and reads them.
package sse

import (
	"net/http"
	"time"
)

// KeepAlive is a comment, which readers skip.
const KeepAlive = ": keep-alive\n\n"

// Stream is the response to a client. Only one goroutine may use it.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

// New returns a stream whose client must read each event within the given time, and sets its headers.
func New(w http.ResponseWriter, within time.Duration) *Stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx delays events
	return &Stream{w, http.NewResponseController(w), within}
}

// Send writes and flushes an event, and fails if the client does not read it in time. With a nil event, it
// only sends the headers. Afterwards it removes the deadline, because over HTTP/2 a deadline would end even
// an idle stream.
func (s *Stream) Send(event []byte) error {
	s.limit()
	if len(event) > 0 {
		if _, err := s.w.Write(event); err != nil {
			return err
		}
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	_ = s.control.SetWriteDeadline(time.Time{})
	return nil
}

// End sets the deadline for the end of the response, which the server sends.
func (s *Stream) End() { s.limit() }

func (s *Stream) limit() { _ = s.control.SetWriteDeadline(time.Now().Add(s.within)) }
