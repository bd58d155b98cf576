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

// bound returns r with a body that is limited in size and time. It is a copy, since
// the server has to know its own body again: else it waits for it before it answers
// a client that sends none until told to, by "Expect: 100-continue".
func (a *api) bound(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.ContentLength == 0 {
		return r
	}
	// Even a body that no endpoint reads is read by net/http, to reuse the
	// connection, and would be waited for without end.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.bodyTime))
	bounded := *r
	bounded.Body = http.MaxBytesReader(w, r.Body, maxBody)
	return &bounded
}

// admit returns why a request is refused, or nil. It judges by method, not by
// endpoint: what is added later is guarded too.
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

// maxFields is how many header fields a request may have. Short ones take fifteen
// times the bytes that were sent, for as long as the request is answered.
const maxFields = 100

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// refusals logs what is refused, a line a second: whoever can reach the listener
// must not be able to fill a disk.
type refusals struct {
	mu     sync.Mutex
	next   time.Time // when the next line is due
	unsaid int       // since the last one
}

func (f *refusals) tell(log *slog.Logger, r *http.Request, p *Problem) {
	now := time.Now()
	f.mu.Lock()
	due, unsaid := !now.Before(f.next), f.unsaid
	f.unsaid++
	if due {
		f.next, f.unsaid = now.Add(time.Second), 0
	}
	f.mu.Unlock()
	if due {
		log.Warn("refused a request", "method", r.Method[:min(20, len(r.Method))], "path", r.URL.Path[:min(80, len(r.URL.Path))],
			"remote", r.RemoteAddr, "why", p.Message, "unsaid", unsaid)
	}
}

// authorized takes the same time whatever is wrong with the token, its length
// included.
func (a *api) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.token[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// rebound reports whether a page may be talking to us under a name of its own: an
// attacker's name server can have it lead to 127.0.0.1, and then the page's
// origin equals our host. Browsers send Sec-Fetch-Site to https and to localhost
// only, so its absence marks plain http under a name; an https origin has proved
// its name, and an address cannot be led elsewhere.
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
