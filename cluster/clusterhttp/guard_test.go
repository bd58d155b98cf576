package clusterhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

const token = "correct horse battery staple"

var (
	readPaths = []string{
		"/v1/place?key=a", "/v1/owners?key=a", "/v1/members", "/v1/partitions", "/v1/owned", "/v1/history",
		"/healthz", "/readyz",
	}
	changePaths = []string{
		"/v1/drain", "/v1/undrain", "/v1/leave", "/v1/load", "/v1/weight", "/v1/health", "/v1/cordon", "/v1/keys",
		"/v1/rooms/x/resolve", "/v1/rooms/x/move", "/v1/rooms/x/report", "/v1/rooms/x",
	}
)

// Every change without the token is rejected and has no effect. With the token it succeeds. Reads need no token.
func TestToken(t *testing.T) {
	inTrio(t, Options{Token: token}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		open := Handler(h.agent, Options{Log: quiet})
		for _, path := range readPaths {
			expect(t, do(h, "GET", path, ""), 200, "{")
			expect(t, do(h, "HEAD", path, "", "Authorization: Bearer wrong"), 200, "")
		}
		refused := map[string]string{
			"none":             "X-None: 1",
			"another":          "Authorization: Bearer wrong",
			"one byte less":    "Authorization: Bearer " + token[:len(token)-1],
			"one byte more":    "Authorization: Bearer " + token + "x",
			"another case":     "Authorization: Bearer " + strings.ToUpper(token),
			"empty":            "Authorization: Bearer ",
			"no token":         "Authorization: Bearer",
			"no scheme":        "Authorization: " + token,
			"another scheme":   "Authorization: Basic " + token,
			"another header":   "Token: " + token,
			"long":             "Authorization: Bearer " + strings.Repeat("x", 1<<16),
			"the token's hash": fmt.Sprintf("Authorization: Bearer %x", sha256.Sum256([]byte(token))),
		}
		for _, path := range append(changePaths, "/v1/nothing", "/v1/members") {
			for name, header := range refused {
				for _, method := range []string{"POST", "DELETE", "PUT", "PATCH"} {
					w := do(h, method, path, "", header)
					if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), CodeUnauthorized) {
						t.Errorf("%s %s, token %s: %d %s", method, path, name, w.Code, w.Body)
					}
				}
			}
		}
		time.Sleep(5 * time.Second)
		if s := h.agent.Snapshot().Self; s.State.String() != "active" || s.Weight != 100 {
			t.Fatalf("a rejected request changed the node: %+v", s)
		}
		for _, header := range []string{"Authorization: Bearer " + token, "Authorization: bEARER " + token} {
			expect(t, do(h, "POST", "/v1/drain", "", header), 200, "draining")
			expect(t, do(h, "POST", "/v1/undrain", "", header), 200, "active")
			expect(t, do(h, "POST", "/v1/members", "", header), 405, CodeMethod)
		}
		expect(t, do(open, "POST", "/v1/drain", ""), 200, "draining")
		expect(t, do(open, "POST", "/v1/undrain", "", "Authorization: Bearer whatever"), 200, "active")
	})
}

// The handler calls Tokens for each request, so a fleet can change its tokens without downtime. If there is no token,
// or an empty token, no request is allowed.
func TestTokens(t *testing.T) {
	type pair struct{ operate, read []string }
	var now atomic.Pointer[pair]
	now.Store(&pair{})
	o := Options{TokenReads: true, Tokens: func() ([]string, []string) { p := now.Load(); return p.operate, p.read }}
	inTrio(t, o, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		for i, c := range []struct {
			operate, read []string
			good, looks   string // which of the tokens a to d pass
		}{
			{nil, nil, "", ""},
			{[]string{""}, []string{""}, "", ""},
			{[]string{"a"}, []string{"c"}, "a", "ac"},
			{[]string{"a", "b"}, []string{"c", "d"}, "ab", "abcd"},
			{[]string{"b"}, []string{"d"}, "b", "bd"},
		} {
			now.Store(&pair{c.operate, c.read})
			for _, token := range []string{"", "a", "b", "c", "d"} {
				header := "Authorization: Bearer " + token
				if got, want := do(h, "POST", "/v1/undrain", "", header).Code == 200, token != "" && strings.Contains(c.good, token); got != want {
					t.Errorf("step %d: token %q may change: %v", i, token, got)
				}
				if got, want := do(h, "GET", "/v1/members", "", header).Code == 200, token != "" && strings.Contains(c.looks, token); got != want {
					t.Errorf("step %d: token %q may read: %v", i, token, got)
				}
			}
		}
	})
}

// With TokenReads or a ReadToken, reads need a token, too, except probes and reconnect.mjs. Browsers can send the token
// as a password. Neither the ReadToken nor a password allows changes.
func TestTokenReads(t *testing.T) {
	const look = "only to look"
	basic := func(password string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+password))
	}
	inTrio(t, Options{Token: token, ReadToken: look}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		own := newAPI(h.agent, Options{Log: quiet, Token: token, TokenReads: true})
		for _, path := range append([]string{"/", "/v1/stats", "/v1/openapi.json", "/v1/nothing"}, readPaths...) {
			free := path == "/healthz" || path == "/readyz"
			for name, c := range map[string]struct {
				header     string
				looks, own bool
			}{
				"none":            {"X: 1", free, free},
				"wrong":           {"Authorization: Bearer x", free, free},
				"empty":           {"Authorization: Bearer ", free, free},
				"wrong password":  {basic("x"), free, free},
				"empty password":  {basic(""), free, free},
				"operator":        {"Authorization: Bearer " + token, true, true},
				"reader":          {"Authorization: bearer " + look, true, free},
				"password":        {basic(look), true, free},
				"operator's word": {basic(token), true, true},
			} {
				for _, method := range []string{"GET", "HEAD"} {
					w, o := do(h, method, path, "", c.header), do(own, method, path, "", c.header)
					if (w.Code != 401) != c.looks || (o.Code != 401) != c.own {
						t.Errorf("%s %s, token %s: %d, without a ReadToken %d", method, path, name, w.Code, o.Code)
					}
					if challenge := w.Header().Values("WWW-Authenticate"); w.Code == 401 && len(challenge) != 2 {
						t.Errorf("%s asks for %q", path, challenge)
					}
				}
			}
		}
		expect(t, do(h, "GET", "/reconnect.mjs", ""), 200, "export")
		for _, header := range []string{"X: 1", "Authorization: Bearer " + look, basic(look), basic(token)} {
			w := do(h, "POST", "/v1/drain", "", header)
			expect(t, w, 401, CodeUnauthorized)
			if challenge := w.Header().Values("WWW-Authenticate"); len(challenge) != 1 {
				t.Errorf("a browser would ask for a password that is not enough: %q", challenge)
			}
		}
		expect(t, do(h, "POST", "/v1/undrain", "", "Authorization: Bearer "+token), 200, "active")
	})
}

// Over plain HTTP, a host name that public DNS may contain is rejected, unless Options.Hosts lists it or the request
// has a token.
func TestHostOfReads(t *testing.T) {
	inTrio(t, Options{Hosts: []string{"Roost.example"}, Token: token}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		for host, allowed := range map[string]bool{
			"127.0.0.1:8401": true, "[::1]:8401": true, "10.1.2.3": true, "localhost": true, "node-a:8401": true,
			"a.roost.svc:8401": true, "a.roost.svc.cluster.local": true, "node-a.internal.:8401": true,
			"roost.example:8401": true, "ROOST.EXAMPLE": true,
			"evil.example": false, "evil.example:8401": false, "evil.example.:8401": false, "local.evil.example": false, "x.roost.example": false,
		} {
			for _, path := range []string{"/", "/v1/members", "/v1/events", "/v1/nothing"} {
				if w := do(h, "HEAD", path, "", "Host: "+host); (w.Code != 403) != allowed {
					t.Errorf("HEAD %s%s: %d", host, path, w.Code)
				}
			}
			if w := do(h, "GET", "/v1/members", "", "Host: "+host, "Authorization: Bearer "+token); w.Code != 200 {
				t.Errorf("%s with a token: %d", host, w.Code)
			}
			expect(t, do(h, "GET", "/healthz", "", "Host: "+host), 200, "ok")
		}
		r := httptest.NewRequest("GET", "https://evil.example/v1/members", nil) // over TLS, our certificate proves the host name
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect(t, w, 200, "members")
	})
}

// A quarter of the streams is reserved for clients with a token.
func TestStreamsForTokens(t *testing.T) {
	inTrio(t, Options{Token: token, MaxStreams: 8}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		ctx, cancel := context.WithCancel(t.Context())
		var open sync.WaitGroup
		defer open.Wait()
		defer cancel()
		begin := func(authorization string) (refused bool) {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/v1/events", nil)
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			open.Go(func() { h.ServeHTTP(w, r) })
			synctest.Wait()
			return w.Code == 503
		}
		for _, step := range []struct {
			who     string
			n       int
			refused bool
		}{{"", 6, false}, {"", 2, true}, {"Bearer wrong", 1, true}, {"Bearer " + token, 2, false}, {"Bearer " + token, 1, true}} {
			for range step.n {
				if begin(step.who) != step.refused {
					t.Fatalf("%q is refused: %v", step.who, !step.refused)
				}
			}
		}
	})
}

func TestCrossOrigin(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		handlers := map[bool]http.Handler{
			false: h,
			true:  Handler(h.agent, Options{Log: quiet, Token: token}),
		}
		const none = ""
		for _, tc := range []struct {
			host, origin, site string
			free, withToken    bool // allowed, without and with a token
		}{
			{"localhost:8401", none, none, true, true}, // curl
			{"node-a:8401", none, none, true, true},    // curl in a container network
			{"localhost:8401", "http://localhost:8401", "same-origin", true, true},
			{"127.0.0.1:8401", "http://127.0.0.1:8401", none, true, true},
			{"[::1]:8401", "http://[::1]:8401", none, true, true},
			{"[::1]", "http://[::1]", none, true, true},
			{"LOCALHOST", "http://LOCALHOST", none, true, true},
			{"roost.example", "https://roost.example", "same-origin", true, true}, // behind a proxy
			{"localhost:8401", none, "none", true, true},

			{"localhost:8401", "https://evil.example", none, false, false},
			{"localhost:8401", "https://evil.example", "cross-site", false, false},
			{"localhost:8401", "http://localhost:3000", "same-site", false, false},
			{"localhost:8401", "http://localhost:3000", none, false, false},
			{"localhost:8401", "null", none, false, false},
			{"localhost:8401", none, "cross-site", false, false},

			// An attacker's DNS lets these names resolve to 127.0.0.1.
			{"evil.example:8401", "http://evil.example:8401", none, false, true},
			{"localhost.evil.example", "http://localhost.evil.example", none, false, true},
			{"127.0.0.1.evil.example:8401", "http://127.0.0.1.evil.example:8401", none, false, true},
		} {
			for locked, h := range handlers {
				allowed := tc.free
				if locked {
					allowed = tc.withToken
				}
				name := fmt.Sprintf("%s from %q, site %q, token %v", tc.host, tc.origin, tc.site, locked)
				from := []string{"Host: " + tc.host, "Origin: " + tc.origin, "Sec-Fetch-Site: " + tc.site, "Authorization: Bearer " + token}
				for _, path := range []string{"/v1/load", "/v1/drain", "/v1/leave", "/v1/nothing"} {
					w := do(h, "POST", path, "[]", from...) // rejected right after the check
					if refused := w.Code == 403 && strings.Contains(w.Body.String(), CodeForbidden); refused == allowed {
						t.Errorf("%s: POST %s answers %d %s", name, path, w.Code, w.Body)
					}
				}
				w := do(h, "GET", "/v1/members", "", from[:3]...)
				if trick := strings.Contains(tc.host, "evil"); trick {
					expect(t, w, 403, CodeForbidden)
				} else {
					expect(t, w, 200, "members")
				}
				expect(t, do(h, "GET", "/readyz", "", from[:3]...), 200, "{")
				if cors := w.Header().Get("Access-Control-Allow-Origin"); cors != "" {
					t.Errorf("%s: other origins may read: %q", name, cors)
				}
			}
		}
		if s := h.agent.Snapshot().Self.State.String(); s != "active" {
			t.Errorf("the node is %s", s)
		}
	})
}

// Rejections are logged, but many rejections do not fill the disk.
func TestRefusalsAreLoggedSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := Handler(trio(t).Agent("a"), Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Token: "secret"})
		for range 25 {
			for range 100 {
				expect(t, do(h, "POST", "/v1/drain", ""), 401, "unauthorized")
			}
			time.Sleep(100 * time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.HasSuffix(lines[0], "suppressed=0") ||
			!strings.HasSuffix(lines[1], "suppressed=999") || !strings.HasSuffix(lines[2], "suppressed=999") {
			t.Errorf("2,500 rejections in 2.5 s make %d lines: %.600q", len(lines), lines)
		}
	})
}
