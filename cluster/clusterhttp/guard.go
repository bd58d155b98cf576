package clusterhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// bound returns a copy of r with a body of limited size and time. The server must find
// its own body in r: otherwise it waits for the body before it responds to a client that
// sent "Expect: 100-continue".
func (a *api) bound(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.ContentLength == 0 {
		return r
	}
	// net/http reads even a body that no endpoint reads, to reuse the connection, and
	// would wait for it without a limit.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.bodyTime))
	bounded := *r
	bounded.Body = http.MaxBytesReader(w, r.Body, maxBody)
	return &bounded
}

// admit returns why a request is rejected, or nil. It decides by method, not by endpoint,
// so that it also guards endpoints that are added later.
func (a *api) admit(r *http.Request) *Problem {
	if fields(r.Header) > maxFields {
		return &Problem{
			Status: http.StatusRequestHeaderFieldsTooLarge, Code: CodeBadRequest,
			Message: fmt.Sprintf("more than %d header fields", maxFields),
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return nil
	}
	if err := a.origin.Check(r); err != nil {
		return &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Message: err.Error()}
	}
	if !a.locked && rebound(r) {
		return &Problem{
			Status: http.StatusForbidden, Code: CodeForbidden,
			Message: "without a token, web pages may change this node only from localhost, an IP address or an https origin",
		}
	}
	if a.locked && !a.authorized(r) {
		return &Problem{
			Status: http.StatusUnauthorized, Code: CodeUnauthorized,
			Message: "this needs the header Authorization: Bearer, with the token that the agent was started with",
		}
	}
	return nil
}

// maxFields is how many header fields a request may have. Short fields take fifteen times
// their bytes in memory, for as long as the request lasts.
const maxFields = 100

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// refusals logs rejected requests, at most one line a second: a client must not be able to
// fill a disk.
type refusals struct {
	mu         sync.Mutex
	next       time.Time // when the next line is due
	suppressed int       // since the last line
}

func (f *refusals) log(log *slog.Logger, r *http.Request, p *Problem) {
	now := time.Now()
	f.mu.Lock()
	due, suppressed := !now.Before(f.next), f.suppressed
	f.suppressed++
	if due {
		f.next, f.suppressed = now.Add(time.Second), 0
	}
	f.mu.Unlock()
	if due {
		log.Warn("request rejected", "method", r.Method[:min(20, len(r.Method))], "path", r.URL.Path[:min(80, len(r.URL.Path))],
			"remote", r.RemoteAddr, "why", p.Message, "suppressed", suppressed)
	}
}

// authorized takes the same time for every wrong token, of any length.
func (a *api) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// rebound reports whether a request may be a DNS rebinding attack: the name server of an
// attacker resolves a host name to 127.0.0.1, and then the origin of the page equals our
// host. Browsers send Sec-Fetch-Site to https and to localhost only, so its absence marks
// plain http under a name. An https origin has proved its name, and an IP address needs no
// resolution.
func rebound(r *http.Request) bool {
	if r.Header.Get("Origin") == "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return false
	}
	return !strings.EqualFold(host, "localhost")
}
