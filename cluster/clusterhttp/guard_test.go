package clusterhttp

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

const token = "correct horse battery staple"

var (
	readPaths   = []string{"/v1/place?key=a", "/v1/owners?key=a", "/v1/members", "/v1/partitions", "/v1/owned", "/healthz", "/readyz"}
	changePaths = []string{"/v1/drain", "/v1/undrain", "/v1/leave", "/v1/load", "/v1/weight", "/v1/rooms/x/resolve", "/v1/rooms/x/move", "/v1/rooms/x"}
)

// Every change without the token is rejected and has no effect; reads need no token. With
// the token a change succeeds.
func TestToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		a := c.Agent("a")
		locked := Handler(a, Options{Log: quiet, Token: token})
		open := Handler(a, Options{Log: quiet})
		for _, path := range readPaths {
			expect(t, do(locked, "GET", path, ""), 200, "{")
			expect(t, do(locked, "HEAD", path, "", "Authorization: Bearer wrong"), 200, "")
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
			"in place of it":   "Authorization: " + "Bearer",
			"the token's hash": fmt.Sprintf("Authorization: Bearer %x", newAPI(a, Options{Token: token}).token),
		}
		for _, path := range append(changePaths, "/v1/nothing", "/v1/members") {
			for name, header := range refused {
				for _, method := range []string{"POST", "DELETE", "PUT", "PATCH"} {
					w := do(locked, method, path, "", header)
					if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), CodeUnauthorized) {
						t.Errorf("%s %s, token %s: %d %s", method, path, name, w.Code, w.Body)
					}
				}
			}
		}
		time.Sleep(5 * time.Second)
		if s := a.Snapshot().Self; s.State.String() != "active" || s.Weight != 100 {
			t.Fatalf("a rejected request changed the node: %+v", s)
		}
		for _, header := range []string{"Authorization: Bearer " + token, "Authorization: bEARER " + token} {
			expect(t, do(locked, "POST", "/v1/drain", "", header), 200, "draining")
			expect(t, do(locked, "POST", "/v1/undrain", "", header), 200, "active")
			expect(t, do(locked, "POST", "/v1/members", "", header), 405, CodeMethod)
		}
		expect(t, do(open, "POST", "/v1/drain", ""), 200, "draining")
		expect(t, do(open, "POST", "/v1/undrain", "", "Authorization: Bearer whatever"), 200, "active")
	})
}

func TestCrossOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		handlers := map[bool]http.Handler{
			false: Handler(c.Agent("a"), Options{Log: quiet}),
			true:  Handler(c.Agent("a"), Options{Log: quiet, Token: token}),
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
				for _, path := range []string{"/v1/load", "/v1/drain", "/v1/leave", "/v1/nothing"} {
					r := httptest.NewRequest("POST", path+"?wait=bad", nil) // rejected right after the check
					r.Host = tc.host
					r.Header.Set("Authorization", "Bearer "+token)
					set(r, "Origin", tc.origin)
					set(r, "Sec-Fetch-Site", tc.site)
					if path == "/v1/leave" {
						r.ContentLength, r.Body = -1, http.NoBody
						r.Header.Set("Content-Type", "application/json")
						if allowed {
							continue
						}
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					if refused := w.Code == 403 && strings.Contains(w.Body.String(), CodeForbidden); refused == allowed {
						t.Errorf("%s: POST %s answers %d %s", name, path, w.Code, w.Body)
					}
				}
				r := httptest.NewRequest("GET", "/v1/members", nil)
				r.Host = tc.host
				set(r, "Origin", tc.origin)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				expect(t, w, 200, "members")
				if cors := w.Header().Get("Access-Control-Allow-Origin"); cors != "" {
					t.Errorf("%s: other origins may read: %q", name, cors)
				}
			}
		}
		if s := c.Agent("a").Snapshot().Self.State.String(); s != "active" {
			t.Errorf("the node is %s", s)
		}
	})
}

func set(r *http.Request, name, value string) {
	if value != "" {
		r.Header.Set(name, value)
	}
}

func TestOversizedBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		h := Handler(c.Agent("a"), Options{Log: quiet})
		fits := `{"units":7` + strings.Repeat(" ", maxBody-11) + `}`
		expect(t, do(h, "POST", "/v1/load", fits), 200, `"load":7`)
		expect(t, do(h, "POST", "/v1/load", fits+" "), 413, CodeBadRequest)
		expect(t, do(h, "POST", "/v1/drain", fits+" "), 413, CodeBadRequest)
		r := httptest.NewRequest("POST", "/v1/load", strings.NewReader(fits+" "))
		r.ContentLength = -1 // of unknown length
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		expect(t, w, 413, CodeBadRequest)
	})
}

// An escaped key of 4 KiB passes every limit; one byte more does not.
func TestLongestKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a")
		c.WaitAgreed(5 * time.Second)
		client := serve(t, NewServer(Handler(c.Agent("a"), Options{Log: quiet}))).client(t)
		key := strings.Repeat("ü", maxKey/2)
		if placed, err := client.Place(t.Context(), key); err != nil || placed.Key != key {
			t.Errorf("placed %.20q, %v", placed.Key, err)
		}
		_, err := client.Place(t.Context(), key+"x")
		expectProblem(t, err, 400, CodeBadRequest, "key has 4097 bytes")
	})
}

// The server waits for a missing body for a limited time, whether an endpoint reads the
// body or the server discards it.
func TestEndlessBody(t *testing.T) {
	for name, head := range map[string]string{
		"read":         "POST /v1/load HTTP/1.1\r\nContent-Type: application/json\r\n",
		"unauthorized": "POST /v1/load HTTP/1.1\r\nOrigin: http://evil.example\r\n",
		"of a GET":     "GET /v1/members HTTP/1.1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := trio(t)
				srv := NewServer(Handler(c.Agent("a"), Options{Log: quiet}))
				srv.ReadTimeout = 0
				conn, err := serve(t, srv).dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				begin := time.Now()
				fmt.Fprintf(conn, "%sHost: a\r\nContent-Length: 100\r\n\r\n{", head)
				buf := make([]byte, 4<<10)
				for err == nil {
					_, err = conn.Read(buf)
				}
				if took := time.Since(begin); took > bodyTime+5*time.Second {
					t.Errorf("the connection was held for %v", took)
				}
			})
		})
	}
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
