package httpproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"
)

// router is the transport of the proxy. router sends a request to the owner of its key. If the request fails,
// router sends it again if that is safe and can help.
type router struct{ *Proxy }

// mostRuns is the number of times that the proxy tries a request whose connection breaks. The number is limited because
// the request may be the cause and would crash one server after another. However, a load balancer in front of a dead
// server also breaks connections. The proxy therefore waits for lastPause before the last attempt, so that tables can
// learn of a crash.
const (
	mostRuns  = 3
	lastPause = time.Second
)

// longestDispute is the longest pause between two attempts while servers disagree about the owner of a key.
// The pause is long because an attempt makes up to Config.Hops requests, and tables need some hundred
// milliseconds to agree.
const longestDispute = time.Second

// brokenError is the error of a request that a server may have received but has not answered.
type brokenError struct{ error }

func (e *brokenError) Unwrap() error { return e.error }

// RoundTrip implements http.RoundTripper.
func (t *router) RoundTrip(r *http.Request) (*http.Response, error) {
	way := r.Context().Value(routeKey{}).(route) //nolint:forcetypeassert // ServeHTTP has set it
	b, err := t.keep(r)
	if err != nil {
		return nil, err
	}
	var e effort
	for {
		resp, again, err := t.attempt(r, way, b)
		if err == nil && (resp.StatusCode != http.StatusMisdirectedRequest || !way.first) { // only the first proxy of a request sends it again
			way.answered()
			return resp, nil
		}
		if !e.more(err, t.cfg.RetryTimeout) || !again || r.Context().Err() != nil || !b.seal() {
			if resp != nil {
				t.cfg.Log.Warn("servers disagree about the owner of a key", "path", r.URL.Path, "asked", way.addr, "tries", e.failures)
			}
			return resp, err
		}
		if resp != nil {
			discard(resp)
		}
		pause(r.Context(), e.wait)
		way = t.reroute(way)
	}
}

// discard closes a rejected response. If the rest of the response is only a line of text, discard reads it,
// so that the next attempt can reuse the connection.
func discard(resp *http.Response) {
	if n := resp.ContentLength; n > 0 && n <= 1<<10 {
		late := time.AfterFunc(leastPause, func() { _ = resp.Body.Close() })
		defer late.Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, n)
	}
	_ = resp.Body.Close()
}

// effort records the attempts of a request.
type effort struct {
	until    time.Time
	failures int
	runs     int           // attempts that broke off
	wait     time.Duration // pause before the next attempt
}

// more counts a failure and reports whether another attempt is allowed. If err is nil, the failure is a 421.
func (e *effort) more(err error, timeout time.Duration) bool {
	if e.until.IsZero() || errors.Is(err, errMoved) { // the request has not been sent to the next owner yet
		e.until = time.Now().Add(timeout)
	}
	longest := longestPause
	if err == nil {
		longest = longestDispute
	}
	e.wait = rand.N(min(leastPause<<min(e.failures, 8), longest))
	e.wait = min(e.wait, max(0, time.Until(e.until)))
	e.failures++
	if _, ok := errors.AsType[*brokenError](err); ok {
		if e.runs++; e.runs == mostRuns-1 {
			e.wait = min(lastPause, time.Until(e.until))
		}
	}
	return e.runs < mostRuns && time.Now().Before(e.until)
}

// reroute returns the destination of the next attempt. The destination is the same server until the key has
// another owner.
func (t *router) reroute(way route) route {
	if addr, _, err := t.cfg.Place(way.key); err == nil {
		way.addr = addr
	}
	return way
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attempt sends the request once. again reports whether another attempt is allowed, provided that the body
// can be sent again.
func (t *router) attempt(r *http.Request, way route, b *body) (_ *http.Response, again bool, _ error) {
	to, err := t.target(way.addr)
	if err != nil {
		return nil, true, err
	}
	stream, again := b.open()
	again = again && idempotent(r.Method)
	ctx, watched := r.Context(), (*watch)(nil)
	if again && t.cfg.RetryTimeout > 0 {
		ctx, watched = t.watch(ctx, way)
		defer watched.end(true) // needed if the transport panics
	}
	var asked, sent atomic.Bool // a transport without support for traces sets neither, and may have sent the request
	out := r.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { // net/http calls GetConn again if a connection has accepted no bytes, or if the request may run twice
			asked.Store(true)
			if !keyed(r.Header) {
				sent.Store(false)
			}
		},
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}))
	out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
	out.Body = stream
	if b.kept != nil {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.kept)), nil }
	}
	resp, err := t.cfg.Transport.RoundTrip(out)
	if watched.end(err == nil) {
		if err == nil { // the headers have just arrived, but the body cannot be read with a canceled context
			_ = resp.Body.Close()
		}
		return nil, true, fmt.Errorf("%s: %w", to.Host, errMoved)
	}
	if err == nil {
		return resp, true, nil
	}
	err = fmt.Errorf("%s: %w", to.Host, err)
	switch {
	case sent.Load():
		return nil, again, &brokenError{err}
	case asked.Load():
		return nil, true, &unavailableError{err}
	}
	return nil, again, err
}

// idempotent reports whether a request with this method may be carried out twice: RFC 9110, section 9.2.2.
func idempotent(method string) bool {
	return slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete},
		method)
}

// keyed reports whether a request has a header that allows net/http to send a request of any method twice. If net/http
// connects again for such a request, net/http may already have sent it.
func keyed(h http.Header) bool { return h["Idempotency-Key"] != nil || h["X-Idempotency-Key"] != nil }

// body is the body of a request. The proxy keeps a short body in memory, and reads a longer body only once.
// Only one goroutine uses it.
type body struct {
	stream io.ReadCloser // nil if the proxy keeps the body
	kept   []byte        // nil if there is no body
	last   *once         // the stream of the latest attempt
}

var (
	errBody   = errors.New("the client did not send its whole body")
	errSealed = errors.New("httpproxy: the request was sent again, and its body with it")
)

// keep reads a short body into memory, so that the proxy can send it again.
func (t *router) keep(r *http.Request) (*body, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return &body{}, nil
	case r.ContentLength < 0 || r.ContentLength > t.cfg.ReplayBytes:
		return &body{stream: r.Body}, nil
	}
	kept, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	return &body{kept: kept}, nil
}

// open returns the body for an attempt, and whether another attempt could send the same body.
func (b *body) open() (_ io.ReadCloser, again bool) {
	switch {
	case b.stream != nil:
		b.last = &once{stream: b.stream}
		return b.last, false
	case b.kept != nil:
		return io.NopCloser(bytes.NewReader(b.kept)), true
	}
	return http.NoBody, true
}

// seal takes the stream away from the latest attempt, so that another attempt can use the stream. seal is
// necessary because a transport may read the body even after the response. seal returns false if the attempt
// has already read from the stream.
func (b *body) seal() bool {
	return b.last == nil || b.last.state.CompareAndSwap(open, sealed) || b.last.state.Load() == sealed
}

// These are the states of a stream in one attempt.
const (
	open   = iota // another attempt can still use the stream
	read          // the attempt has read a part of the stream
	sealed        // another attempt uses the stream
)

// once is a stream that remains available for another attempt until it is read.
type once struct {
	stream io.Reader
	state  atomic.Int32
}

func (o *once) Read(p []byte) (int, error) {
	if !o.state.CompareAndSwap(open, read) && o.state.Load() == sealed {
		return 0, errSealed
	}
	n, err := o.stream.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errBody, err)
	}
	return n, err
}

// Close does nothing, because the proxy's server closes the stream with the request.
func (o *once) Close() error { return nil }
