package clusterhttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// An attempt is the bytes that a client sends, and the effect. The effect lists the seconds until a response starts, if
// it is not immediate, then the statuses and codes of all responses, then the seconds until the server closes the
// connection. 120s is the timeout of an idle connection, so the server would have accepted another request.
type attempt struct {
	sent, want string
	pause      time.Duration // after each byte; 0: all bytes in one write
}

const (
	tail   = " HTTP/1.1\r\nHost: localhost\r\n"
	auth   = "Authorization: Bearer " + token + "\r\n"
	loaded = "POST /v1/load" + tail + auth + "Content-Type: application/json\r\n"
)

var (
	fits    = `{"units":7` + strings.Repeat(" ", maxBody-11) + `}` // the longest body
	longest = strings.Repeat("%C3%BC", maxKey/2)                   // a key of 4 KiB, which is 12 KiB escaped
)

// These bytes are not a request, or the request is too large.
var heads = []attempt{
	{sent: "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + strings.Repeat("\x00", 190), want: "5s: 400 5s"}, // a TLS hello
	{sent: "\x00\x01\xff\xfe\r\n\r\n", want: "400 0s"},
	{sent: "GET /v1/members\r\n\r\n", want: "400 0s"}, // HTTP/0.9
	{sent: "GET /v1/members HTTP/1.0\r\n\r\n", want: "200 0s"},
	{sent: "GET /v1/members HTTP/2.0\r\n\r\n", want: "505 0s"},
	{sent: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", want: "401 unauthorized 0s"},
	{sent: "GET /v1/members HTTP/1.1\r\n\r\n", want: "400 0s"}, // no host
	{sent: "GET /v1/members" + tail + "Host: other\r\n\r\n", want: "400 0s"},
	{sent: "GET /v1/members HTTP/1.1\r\nHost: a b\r\n\r\n", want: "400 0s"},
	{sent: "GET /v1/members" + tail + "Name : x\r\n\r\n", want: "400 0s"},
	{sent: "GET /v1/members" + tail + "Name: a\x00b\r\n\r\n", want: "400 0s"},
	{sent: "GET /v1/place?key=a b" + tail + "\r\n", want: "400 0s"},
	{sent: "GET /" + strings.Repeat("a", 64<<10) + tail + "\r\n", want: "431 0s"},
	{sent: "GET /v1/place?key=" + strings.Repeat("a", 64<<10) + tail + "\r\n", want: "431 0s"},
	{sent: "GET /v1/members" + tail + "Name: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", want: "431 0s"},
	{sent: "GET /v1/members" + tail + strings.Repeat("Name: a\r\n", 10_000) + "\r\n", want: "431 0s"},
	{sent: "GET /v1/members" + tail + strings.Repeat("Name: a\r\n", 1000) + "\r\n", want: "431 bad_request 120s"},
	{sent: "GET /v1/members" + tail + strings.Repeat("Name: a\r\n", 100) + "\r\n", want: "200 120s"},
	{sent: "GET /" + strings.Repeat("a", 14<<10) + tail + "\r\n", want: "404 not_found 120s"},
	{sent: "GET /v1/place?key=" + strings.Repeat("a", 14<<10) + tail + "\r\n", want: "400 bad_request 120s"},
	{sent: "GET /v1/place?key=" + longest + tail + "\r\n", want: "200 120s"},
	{sent: "GET /v1/place?key=" + longest + "x" + tail + "\r\n", want: "400 bad_request 120s"},
	{sent: "GET /v1/owners?key=a&n=" + strings.Repeat("9", 14<<10) + tail + "\r\n", want: "400 bad_request 120s"},
	{sent: strings.Repeat("M", 14<<10) + " /v1/drain" + tail + "\r\n", want: "401 unauthorized 120s"},
	{sent: strings.Repeat("GET /v1/members"+tail+"\r\n", 5), want: "200 200 200 200 200 120s"}, // pipelined
	{sent: "GET /v1/members" + tail + "Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n", want: "200 120s"},
}

// These bodies have a wrong length, or contain another request.
var bodies = []attempt{
	{sent: loaded + "Content-Length: -1\r\n\r\n", want: "400 0s"},
	{sent: loaded + "Content-Length: +1\r\n\r\n1", want: "400 0s"},
	{sent: loaded + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n12", want: "400 0s"},
	{sent: loaded + "Content-Length: 99999999999999999999\r\n\r\n", want: "400 0s"},
	{sent: loaded + "Content-Length: 9223372036854775807\r\n\r\n" + strings.Repeat(" ", maxBody+1), want: "413 bad_request 0s"},
	{sent: loaded + "Content-Length: 9223372036854775807\r\n\r\n{", want: "10s: 400 bad_request 10s"},
	{sent: loaded + "Content-Length: 100\r\n\r\n" + `{"units":1}`, want: "10s: 400 bad_request 10s"},
	{sent: loaded + "Content-Length: 1\r\n\r\n" + `{"units":1}`, want: "400 bad_request 400 5s"},
	{sent: loaded + "Transfer-Encoding: xchunked\r\n\r\n", want: "501 0s"},
	{sent: loaded + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", want: "501 0s"},
	{sent: loaded + "Transfer-Encoding: chunked, identity\r\n\r\n", want: "501 0s"},
	{sent: loaded + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", want: "400 bad_request 0s"},
	{sent: loaded + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", want: "400 bad_request 0s"},
	{sent: loaded + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 64<<10), want: "400 bad_request 0s"},
	{
		sent: loaded + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat(" ", 4096)+"\r\n", 17),
		want: "413 bad_request 10s",
	},
	{sent: loaded + "Expect: 100-continue\r\nContent-Length: 11\r\n\r\n" + `{"units":7}`, want: "100 200 120s"},
	{sent: loaded + "Expect: 100-continue\r\nContent-Length: 11\r\n\r\n", want: "100 400 bad_request 10s"},
	{sent: loaded + "Expect: a-miracle\r\nContent-Length: 11\r\n\r\n", want: "417 15s"},
	// These attempts exceed the size limit of a body, or do not send the whole body.
	{sent: loaded + sized(fits), want: "200 120s"},
	{sent: loaded + sized(fits+" "), want: "413 bad_request 0s"},
	{sent: loaded + "Transfer-Encoding: chunked\r\n\r\n" + chunked(fits+" "), want: "413 bad_request 0s"},
	{sent: "POST /v1/drain" + tail + auth + "Content-Type: application/json\r\n" + sized(fits+" "), want: "413 bad_request 0s"},
	{sent: "POST /v1/load" + tail + "Origin: http://evil.example\r\nContent-Length: 100\r\n\r\n{", want: "10s: 403 forbidden 10s"},
	{sent: "GET /v1/members" + tail + "Content-Length: 100\r\n\r\n{", want: "10s: 200 10s"},
	// A request that fails anyway is rejected before the client sends the body.
	{sent: "POST /v1/load" + tail + "Expect: 100-continue\r\nContent-Length: 11\r\n\r\n", want: "401 unauthorized 10s"},
	{sent: "POST /v1/nothing" + tail + auth + "Expect: 100-continue\r\nContent-Length: 11\r\n\r\n", want: "404 not_found 10s"},
	// Only the chunks determine the length of a body, not a Content-Length header or the content.
	{
		sent: loaded + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(`{"units":7}`) + "GET /healthz" + tail + "\r\n",
		want: "200 200 120s",
	},
	{
		sent: loaded + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + chunked("POST /v1/drain"+tail+auth+"\r\n"),
		want: "400 bad_request 120s",
	},
	{
		sent: "GET /v1/members" + tail + "Content-Length: 200000\r\n\r\n" + strings.Repeat(" ", 200_000) + "GET /healthz" + tail + "\r\n",
		want: "200 200 120s",
	},
}

// These attempts try to get around guarded paths and methods. All of them send the token, so a missing token cannot be
// the reason for a rejection.
var paths = []attempt{
	{sent: "POST //v1/drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1//drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/drain/" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/./drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/../v1/drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/%2e%2e/v1/drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1%2fdrain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1%5cdrain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1\\drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/drain%00" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/drain%20" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/drain;a=b" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /V1/DRAIN" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST /v1/drain%252f" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "POST v1/drain" + tail + auth + "\r\n", want: "400 0s"},
	{sent: "POST /v1/drain%zz" + tail + auth + "\r\n", want: "400 0s"},
	{sent: "POST /v1/dr\x00ain" + tail + auth + "\r\n", want: "400 0s"},
	{sent: "POST *" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "OPTIONS *" + tail + "\r\n", want: "200 120s"}, // answered by net/http, with an empty body
	{sent: "OPTIONS /v1/drain" + tail + "\r\n", want: "405 method_not_allowed 120s"},
	{sent: "TRACE /v1/members" + tail + auth + "\r\n", want: "405 method_not_allowed 120s"},
	{sent: "CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n" + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "CONNECT /v1/drain" + tail + auth + "\r\n", want: "405 method_not_allowed 120s"},
	{sent: "get /v1/members" + tail + "\r\n", want: "401 unauthorized 120s"}, // methods are case-sensitive, so this is not GET
	{sent: "post /v1/drain" + tail + auth + "\r\n", want: "405 method_not_allowed 120s"},
	{sent: "GET /v1/drain" + tail + auth + "\r\n", want: "405 method_not_allowed 120s"},
	{
		sent: "GET /v1/drain" + tail + auth + "X-HTTP-Method-Override: POST\r\nX-Method-Override: POST\r\n\r\n",
		want: "405 method_not_allowed 120s",
	},
	{sent: "GET /v1/drain?_method=POST" + tail + auth + "\r\n", want: "405 method_not_allowed 120s"},
	{sent: "GET /v1/members" + tail + "X-Original-URL: /v1/drain\r\nX-Rewrite-URL: /v1/drain\r\n\r\n", want: "200 120s"},
	{sent: "GET http://evil.example/v1/members" + tail + "\r\n", want: "403 forbidden 120s"},
	{sent: "POST http://localhost//v1/drain" + tail + auth + "\r\n", want: "404 not_found 120s"},
	{sent: "GET /v1/place/?key=a" + tail + "\r\n", want: "404 not_found 120s"},
	{sent: "GET /dashboard/../v1/members" + tail + "\r\n", want: "404 not_found 120s"},
	{sent: "GET /dashboard/%2e%2e%2fhandler.go" + tail + "\r\n", want: "404 120s"}, // not a file of the page
}

// Slow clients are disconnected in every phase of a request.
var slow = []attempt{
	{want: "5s"}, // sends nothing
	{sent: "GET /v1/members" + tail, want: "5s"},
	{sent: "GET /v1/members" + tail + "Name: value", pause: 700 * time.Millisecond, want: "5s: 400 5s"},
	{sent: "GET /v1/members" + tail + strings.Repeat("Name: value\r\n", 1000), pause: 3 * time.Millisecond, want: "5s: 400 5s"},
	{
		sent:  loaded + "Content-Length: 1000\r\n\r\n" + strings.Repeat(" ", 1000),
		pause: 20 * time.Millisecond,
		want:  "12s: 400 bad_request 12s",
	},
	{
		sent:  loaded + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 1000),
		pause: 20 * time.Millisecond,
		want:  "13s: 400 bad_request 13s",
	},
	{
		sent:  "POST /v1/load" + tail + "Content-Length: 1000\r\n\r\n" + strings.Repeat(" ", 1000),
		pause: 20 * time.Millisecond,
		want:  "11s: 401 unauthorized 11s",
	},
}

// TestHostileRequests makes all of these attempts concurrently.
func TestHostileRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{})
		c.Start("a")
		c.WaitAgreed(5 * time.Second)
		said := new(bytes.Buffer)
		logger := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
		srv := NewServer(Handler(c.Agent("a"), Options{Log: logger, Token: token}))
		srv.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelDebug)
		p := serve(t, srv)
		var attempts sync.WaitGroup
		for _, group := range [][]attempt{heads, bodies, paths, slow, tokens()} {
			for _, a := range group {
				attempts.Go(func() {
					if got := a.on(t, p); got != a.want {
						t.Errorf("%.300q\ncomes to %s, want %s", a.sent, got, a.want)
					}
				})
			}
		}
		attempts.Wait()
		if s := c.Agent("a").Snapshot().Self; s.State.String() != "active" || s.Weight != 100 || s.Load != 7 {
			t.Errorf("the node has been changed: %+v", s)
		}
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, "battery") || len(line) > 1000 {
				t.Errorf("it is logged: %.2000s", line)
			}
		}
	})
}

// tokens are attempts to get access without the token.
func tokens() (all []attempt) {
	for _, header := range []string{
		"Authorization: Bearer battery\r\n" + auth,
		"Authorization:\r\n" + auth,
		"Authorization: Bearer " + token + ", Bearer " + token,
		"Authorization: Bearer  " + token,
		"Authorization: Bearer\t" + token,
		"Authorization: Bearer " + token + "\u00a0",
		"Authorization: Bearer " + token + "\xff",
		"Authorization: Bearer %63orrect horse battery staple",
		"Authorization: Bearer \"" + token + "\"",
		"Authorization: Token " + token,
		"Authorization: Digest " + token,
		"Proxy-Authorization: Bearer " + token,
		"X-Authorization: Bearer " + token,
		"X-Forwarded-Authorization: Bearer " + token,
		"Cookie: token=" + token + "; Authorization=Bearer " + token,
		"X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1",
	} {
		all = append(all, attempt{sent: "POST /v1/drain" + tail + header + "\r\n\r\n", want: "401 unauthorized 120s"})
	}
	escaped := strings.ReplaceAll(token, " ", "+")
	return append(
		all,
		attempt{sent: "POST /v1/drain?token=" + escaped + "&access_token=" + escaped + tail + "\r\n", want: "401 unauthorized 120s"},
		attempt{sent: "POST http://" + escaped + "@localhost/v1/drain" + tail + "\r\n", want: "401 unauthorized 120s"},
		attempt{
			sent: "POST /v1/drain" + tail + "Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n0\r\n" + auth + "\r\n",
			want: "401 unauthorized 120s",
		},
	)
}

// on makes the attempt and returns its effect.
func (a attempt) on(t *testing.T, p pipes) string {
	conn, err := p.Dial(t.Context())
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	sent := time.Now()
	go func() { // the server may close the connection at any byte
		if a.pause == 0 {
			_, _ = io.WriteString(conn, a.sent)
		}
		for i := 0; i < len(a.sent) && a.pause > 0; i++ {
			if _, err := io.WriteString(conn, a.sent[i:i+1]); err != nil {
				return
			}
			time.Sleep(a.pause)
		}
	}()
	var said []byte
	var begun time.Duration
	for err == nil {
		b, n := make([]byte, 4<<10), 0
		n, err = conn.Read(b)
		if n > 0 && len(said) == 0 {
			begun = time.Since(sent).Truncate(time.Second)
		}
		said = append(said, b[:n]...)
	}
	ended := time.Since(sent).Truncate(time.Second)
	var got strings.Builder
	if begun > 0 {
		fmt.Fprintf(&got, "%.0fs: ", begun.Seconds())
	}
	for r := bufio.NewReader(bytes.NewReader(said)); ; {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%.300q is answered by %q", a.sent, said)
			}
			return fmt.Sprintf("%s%.0fs", &got, ended.Seconds())
		}
		fmt.Fprint(&got, answer.StatusCode, " ")
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		var p Problem
		if json.Unmarshal(body, &p) == nil && p.Code != "" {
			fmt.Fprint(&got, p.Code, " ")
		}
	}
}

// sized returns a body with its Content-Length header.
func sized(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }

// chunked returns a body that consists of one chunk.
func chunked(s string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s), s) }
