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

// bound returns a copy of r with a body of limited size and time. It does not change r, because the server
// must find its own body there. Otherwise it would wait for the body before it responds to a client that sent
// "Expect: 100-continue".
func (a *api) bound(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.ContentLength == 0 {
		return r
	}
	// net/http also reads a body that no endpoint reads, to reuse the connection, and would wait for it
	// without a limit.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.bodyTime))
	bounded := *r
	bounded.Body = http.MaxBytesReader(w, r.Body, maxBody)
	return &bounded
}

// guard decides who may call. It looks at the method and not at the endpoint, so that it also guards
// endpoints that are added later.
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

// Admit returns why a [Handler] with these options rejects a request because of its headers, or nil. It is
// for a server that responds before there is an agent.
func (o Options) Admit(r *http.Request) *Problem { return newGuard(o).admit(r) }

// admit returns why a request is rejected, or nil.
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
		return problem(http.StatusUnauthorized, CodeUnauthorized, "this needs the header Authorization: Bearer, with the token of the agent")
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
			"this needs the header Authorization: Bearer, with a token of the agent; in a browser the token is the password, of any user")
	case rebound(r) && public(r) && !g.named(r):
		return problem(http.StatusForbidden, CodeForbidden,
			"over plain http without a token, this is read by an IP address, localhost or a host name that the agent knows (--http-host): another name may be a web page's trick")
	}
	return nil
}

func reads(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
}

// maxFields is how many header fields a request may have. Short fields take fifteen times their size in
// memory, as long as the request lasts.
const maxFields = 100

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// throttled logs what clients cause, at most one line per second, so that a client cannot fill a disk.
type throttled struct {
	mu         sync.Mutex
	next       time.Time // when the next line is due
	suppressed int       // lines since the last one
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

// among reports whether a token is accepted. It compares hashes, so that every wrong token of any length
// takes the same time. An empty token is never accepted.
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

// operates reports whether the request shows the token for changes.
func (g *guard) operates(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	operate, _ := g.tokens()
	return among(operate, token) && strings.EqualFold(scheme, "Bearer")
}

// known reports whether the request shows a token that is valid for reads. Browsers ask their users for a
// password, and also send it with event streams. Because they send it automatically, it is not enough for
// changes.
func (g *guard) known(r *http.Request) bool {
	operate, read := g.tokens()
	if _, password, ok := r.BasicAuth(); ok {
		return among(operate, password) || among(read, password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && (among(operate, token) || among(read, token))
}

// rebound reports whether a request may be a DNS rebinding attack: the name server of an attacker resolves a
// host name to 127.0.0.1, so that the origin of the attacker's page equals our host. TLS proves the name, and
// an IP address needs no resolution. Browsers only send Sec-Fetch-Site to https and localhost, so its absence
// means plain http under a name.
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

// public reports whether an attacker may own the host's name in the public DNS, which has no single-label
// names and no names in these domains.
func public(r *http.Request) bool {
	name := strings.ToLower(strings.TrimSuffix(hostOf(r), "."))
	for _, domain := range []string{".localhost", ".local", ".internal", ".home.arpa", ".test", ".svc"} {
		if strings.HasSuffix(name, domain) {
			return false
		}
	}
	return strings.Contains(name, ".")
}

// named reports whether the host's name is one of Options.Hosts.
func (g *guard) named(r *http.Request) bool {
	return slices.ContainsFunc(g.hosts, func(name string) bool { return strings.EqualFold(name, hostOf(r)) })
}
