// Package sse reads and writes server-sent events. A writer does not block forever if its client stops
// reading.
package sse

import (
	"net/http"
	"time"
)

// KeepAlive is a comment in the event stream, which readers ignore.
const KeepAlive = ": keep-alive\n\n"

// Stream is the response to one client. Only one goroutine can use it at a time.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
}

// New sets the headers of the response and returns its stream. The client must read each event within the
// given time.
func New(w http.ResponseWriter, within time.Duration) *Stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // otherwise nginx delays events
	return &Stream{w, http.NewResponseController(w), within}
}

// Send writes and flushes an event. It returns an error if the client does not read the event in time. If
// event is nil, Send only sends the headers. After writing, Send removes the write deadline, because over
// HTTP/2 an expired deadline would close even an idle stream.
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

// End sets the write deadline for the end of the response, which the server sends after the handler returns.
func (s *Stream) End() { s.limit() }

func (s *Stream) limit() { _ = s.control.SetWriteDeadline(time.Now().Add(s.within)) }
