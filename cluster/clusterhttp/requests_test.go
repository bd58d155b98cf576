package clusterhttp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clustertest"
)

// asker sends requests to an API, each over its own connection. The server itself has no limits.
type asker struct {
	t     *testing.T
	pipes pipes
}

func askerOf(t *testing.T, h http.Handler) asker {
	t.Helper()
	return asker{t, serve(t, &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)})}
}

// send sends a request and does not read the response.
func (a asker) send(target string, headers ...string) *bufio.Reader {
	a.t.Helper()
	conn, err := a.pipes.Dial(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn,
		strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: a"}, headers...), "\r\n")+"\r\n\r\n"); err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
	return bufio.NewReaderSize(conn, 16) // a small buffer, so that it reads as little as possible
}

// status reads the rest of a response. It returns the status, or 0 if the response was cut off, and the code if the
// response is a Problem.
func (a asker) status(in *bufio.Reader) (status int, code string) {
	a.t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	var p Problem
	_ = json.Unmarshal(b, &p)
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		a.t.Error("no Retry-After")
	}
	return resp.StatusCode, p.Code
}

// At the limit of requests, a request without a token is rejected with a Problem. Probes and requests with a token are
// still served. When a request ends, another request is accepted.
func TestRequestsAreBounded(t *testing.T) {
	inTrio(t, Options{Token: token}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		h.requests.most = 3
		ask := askerOf(t, h)
		expect := func(what string, in *bufio.Reader, status int, code string) {
			t.Helper()
			if got, gotCode := ask.status(in); got != status || gotCode != code {
				t.Errorf("%s: %d %s, want %d %s", what, got, gotCode, status, code)
			}
		}
		var waiting []*bufio.Reader
		for range h.requests.most {
			waiting = append(waiting, ask.send("/v1/doctor?over=5s"))
		}
		expect("one too many", ask.send("/v1/members"), 503, CodeBusy)
		expect("a stream", ask.send("/v1/events"), 503, CodeBusy)
		expect("nothing", ask.send("/nothing"), 503, CodeBusy)
		expect("a wrong token", ask.send("/v1/members", "Authorization: Bearer wrong"), 503, CodeBusy)
		for _, path := range []string{"/healthz", "/readyz"} {
			expect(path, ask.send(path), 200, "")
		}
		expect("a token", ask.send("/v1/members", "Authorization: Bearer "+token), 200, "")
		for range maxRejected { // these clients do not read their rejections
			ask.send("/v1/members")
		}
		expect("no place for a rejection", ask.send("/v1/members"), 0, "")
		expect("a probe among these", ask.send("/readyz"), 200, "")
		expect("a token among these", ask.send("/v1/members", "Authorization: Bearer "+token), 200, "")
		time.Sleep(5 * time.Second)
		for _, in := range waiting {
			expect("who waited", in, 200, "")
		}
		time.Sleep(answerTime)
		synctest.Wait()
		expect("afterwards", ask.send("/v1/members"), 200, "")
		synctest.Wait()
		if n := h.requests.n.Load(); n != 0 || h.requests.held != 0 || h.requests.writing.Len() != 0 {
			t.Errorf("%d requests, %d bytes and %d answers are left", n, h.requests.held, h.requests.writing.Len())
		}
	})
}

// If too many clients do not read, the server cuts off the oldest response and logs that.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		said := new(bytes.Buffer)
		h.log = slog.New(slog.NewTextHandler(said, nil))
		h.requests.mostWriting = 2
		ask := askerOf(t, h)
		first, second, third := ask.send("/v1/partitions"), ask.send("/healthz"), ask.send("/v1/members")
		for in, want := range map[*bufio.Reader]int{first: 0, second: 200, third: 200} {
			if got, _ := ask.status(in); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		if !strings.Contains(said.String(), `msg="answer cut off" method=GET path=/v1/partitions`) {
			t.Errorf("the log: %s", said)
		}
	})
}

// Clients that request the same response share its bytes. If unread responses hold too many bytes, the server cuts off
// the oldest response, and the next client is told to try again.
func TestBytesOfAnswersAreBounded(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		ask := askerOf(t, h)
		var deaf []*bufio.Reader
		for range 10 {
			deaf = append(deaf, ask.send("/v1/partitions"))
		}
		size := do(h, "GET", "/v1/partitions", "").Body.Len()
		synctest.Wait()
		if h.requests.held != size {
			t.Errorf("%d bytes are held, want %d", h.requests.held, size)
		}
		h.requests.mostHeld = size
		if got, code := ask.status(ask.send("/v1/members")); got != 503 || code != CodeBusy {
			t.Errorf("above the limit: %d %s", got, code)
		}
		synctest.Wait()
		for _, in := range deaf {
			if got, _ := ask.status(in); got != 0 {
				t.Errorf("an old answer: %d", got)
			}
		}
		if got, _ := ask.status(ask.send("/v1/members")); got != 200 {
			t.Errorf("afterwards: %d", got)
		}
	})
}

// The ages of leases are correct in shared responses, too.
func TestSharedAnswersAreFresh(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		at := func(i int) Member {
			var m Members
			if err := json.Unmarshal(do(h, "GET", "/v1/members", "").Body.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
			return m.Members[i]
		}
		c.Crash("b")
		time.Sleep(2 * time.Second)
		before := at(1).AgeMS
		time.Sleep(agesHold)
		if after := at(1).AgeMS; after != before+agesHold.Milliseconds() {
			t.Errorf("the age of b is %d ms, and was %d", after, before)
		}
		owned := func() (n int) {
			var o Owned
			if err := json.Unmarshal(do(h, "GET", "/v1/owned", "").Body.Bytes(), &o); err != nil {
				t.Fatal(err)
			}
			return len(o.Partitions)
		}
		if owned() == 0 {
			t.Error("the node owns nothing")
		}
		if err := h.agent.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := owned(); n != 0 {
			t.Errorf("a drained node owns %d partitions", n)
		}
	})
}
