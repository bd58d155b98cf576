package clusterhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// bound returns a copy of r that limits the size of the body and the time to read it. r itself must keep its
// original body. Otherwise net/http would wait for the body before it responds to a client that sent "Expect:
// 100-continue".
func (a *api) bound(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.ContentLength == 0 {
		return r
	}
	// If an endpoint does not read the body, net/http reads it to reuse the connection. Without this
	// deadline, net/http would wait for the body without a limit.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.bodyTime))
	bounded := *r
	bounded.Body = http.MaxBytesReader(w, r.Body, maxBody)
	return &bounded
}

// guard decides which requests are admitted. The decision depends on the method instead of the endpoint, so
// that new endpoints are protected, too.
type guard struct {
	origin       http.CrossOriginProtection
	tokens       func() (operate, read []string)
	guardChanges bool
	guardReads   bool
	hosts        []string
}

func newGuard(o Options) *guard {
	tokens := o.Tokens
	if tokens == nil {
		operate, read := []string{o.Token}, []string{o.ReadToken}
		tokens = func() ([]string, []string) { return operate, read }
	}
	return &guard{
		tokens: tokens, guardChanges: o.Tokens != nil || o.Token != "", guardReads: o.TokenReads || o.ReadToken != "",
		hosts: o.Hosts,
	}
}

// Reject responds to a request that a [Handler] with these options would refuse because of its headers, and reports
// whether it did. Use Reject in a server that responds before the agent exists.
func (o Options) Reject(w http.ResponseWriter, r *http.Request) bool {
	return newGuard(o).reject(w, r) != nil
}

// reject responds to a request that is not admitted, and returns the reason, or nil if the request is admitted.
func (g *guard) reject(w http.ResponseWriter, r *http.Request) *Problem {
	p := g.admit(r)
	if p == nil {
		return nil
	}
	if p.Code == CodeUnauthorized && reads(r) {
		w.Header().Add("WWW-Authenticate", `Basic realm="roost", charset="UTF-8"`) // makes a browser ask for a password
	}
	p.write(w)
	return p
}

// admit returns nil if the request is accepted, and otherwise the reason for the rejection.
func (g *guard) admit(r *http.Request) *Problem {
	if fields(r.Header) > maxFields {
		return problem(http.StatusRequestHeaderFieldsTooLarge, CodeBadRequest, "more than %d header fields", maxFields)
	}
	if reads(r) {
		return g.admitRead(r)
	}
	if err := g.origin.Check(r); err != nil {
		return problem(http.StatusForbidden, CodeForbidden, "%s", err)
	}
	if !g.guardChanges && r.Header.Get("Origin") != "" && rebound(r) && !g.named(r) {
		return problem(http.StatusForbidden, CodeForbidden,
			"without a token, web pages may change this node only from localhost, an IP address or an https origin")
	}
	if g.guardChanges && !g.operates(r) {
		return problem(http.StatusUnauthorized, CodeUnauthorized, "this needs the header Authorization: Bearer with the agent's token")
	}
	return nil
}

func (g *guard) admitRead(r *http.Request) *Problem {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/reconnect.mjs":
		return nil
	}
	switch {
	case g.known(r):
		return nil
	case g.guardReads:
		return problem(http.StatusUnauthorized, CodeUnauthorized,
			"this needs the header Authorization: Bearer with a token of the agent; in a browser, enter the token as the password, with any user name")
	case rebound(r) && public(r) && !g.named(r):
		return problem(http.StatusForbidden, CodeForbidden,
			"over plain http without a token, use an IP address, localhost or a host name that the agent knows (--http-host): a web page could misuse any other name")
	}
	return nil
}

func reads(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// maxFields is how many header fields a request can have. While a request is in progress, a short field takes
// fifteen times its size in memory.
const maxFields = 100

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// throttled logs warnings that clients cause. At most one line is written per second, so that a client cannot
// fill the disk.
type throttled struct {
	mu         sync.Mutex
	next       time.Time // earliest time of the next line
	suppressed int       // lines suppressed since the last line
}

func (l *throttled) warn(log *slog.Logger, message string, r *http.Request, why string) {
	now := time.Now()
	l.mu.Lock()
	due, suppressed := !now.Before(l.next), l.suppressed
	l.suppressed++
	if due {
		l.next, l.suppressed = now.Add(time.Second), 0
	}
	l.mu.Unlock()
	if due {
		log.Warn(message, "method", r.Method[:min(20, len(r.Method))], "path", r.URL.Path[:min(80, len(r.URL.Path))],
			"remote", r.RemoteAddr, "why", why, "suppressed", suppressed)
	}
}

// among reports whether tokens contains token. among compares hashes, so that the duration of the comparison
// reveals nothing about a valid token. An empty token is never accepted.
func among(tokens []string, token string) (found bool) {
	sum := sha256.Sum256([]byte(token))
	for _, t := range tokens {
		want := sha256.Sum256([]byte(t))
		if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 && t != "" {
			found = true
		}
	}
	return found
}

// operates reports whether the request has a token that authorizes changes.
func (g *guard) operates(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	operate, _ := g.tokens()
	return among(operate, token) && strings.EqualFold(scheme, "Bearer")
}

// known reports whether the request has a token that is valid for reads. Basic authentication is accepted,
// because browsers ask their users for the password and also send it with event streams. Browsers send the
// password automatically, even if another page causes the request, so the password does not authorize
// changes.
func (g *guard) known(r *http.Request) bool {
	operate, read := g.tokens()
	if _, password, ok := r.BasicAuth(); ok {
		return among(operate, password) || among(read, password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && (among(operate, token) || among(read, token))
}

// rebound reports whether a request could be a DNS rebinding attack. In this attack, the attacker's name
// server resolves a host name to 127.0.0.1, so the browser treats this node as the origin of the attacker's
// page. TLS rules out the attack, because the certificate proves the name. An IP address rules it out,
// because no name server is involved. A request with the header Sec-Fetch-Site is also safe, because browsers
// send this header only to https and localhost.
func rebound(r *http.Request) bool {
	if r.TLS != nil || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	host := hostOf(r)
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return false
	}
	return !strings.EqualFold(host, "localhost")
}

func hostOf(r *http.Request) string {
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		return h
	}
	return r.Host
}

// public reports whether an attacker could own the host's name in the public DNS. The public DNS contains no
// single-label names, and no names in the domains listed below.
func public(r *http.Request) bool {
	name := strings.ToLower(strings.TrimSuffix(hostOf(r), "."))
	for _, domain := range []string{".localhost", ".local", ".internal", ".home.arpa", ".test", ".svc"} {
		if strings.HasSuffix(name, domain) {
			return false
		}
	}
	return strings.Contains(name, ".")
}

// named reports whether the host's name is in Options.Hosts.
func (g *guard) named(r *http.Request) bool {
	return slices.ContainsFunc(g.hosts, func(name string) bool { return strings.EqualFold(name, hostOf(r)) })
}
