package clusterhttp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

const token = "correct horse battery staple"

var (
	readPaths   = []string{"/v1/place?key=a", "/v1/owners?key=a", "/v1/members", "/v1/partitions", "/v1/owned", "/healthz", "/readyz"}
	changePaths = []string{"/v1/drain", "/v1/undrain", "/v1/leave", "/v1/load", "/v1/weight", "/v1/health", "/v1/evict", "/v1/rooms/x/resolve", "/v1/rooms/x/move", "/v1/rooms/x/report", "/v1/rooms/x"}
)

// Every change without the token is rejected and has no effect; reads need no token. With
// the token a change succeeds.
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
			"the token's hash": fmt.Sprintf("Authorization: Bearer %x", h.token),
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

			// Names that currently resolve to 127.0.0.1.
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
				w := do(h, "GET", "/v1/members", "", from[:2]...)
				expect(t, w, 200, "members")
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

// Rejections in a loop do not fill the disk, but appear in the log.
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
		if len(lines) != 3 || !strings.HasSuffix(lines[0], "suppressed=0") || !strings.HasSuffix(lines[1], "suppressed=999") || !strings.HasSuffix(lines[2], "suppressed=999") {
			t.Errorf("2,500 rejections in 2.5 s make %d lines: %.600q", len(lines), lines)
		}
	})
}
