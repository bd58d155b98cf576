package tour

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/lease"
)

// TestFrontGuard checks which requests may press a button, and when.
func TestFrontGuard(t *testing.T) {
	f, err := openFront(t.Context(), "127.0.0.1:0", dashboard.Info{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := openFront(t.Context(), f.addr, dashboard.Info{}); err == nil || !strings.Contains(err.Error(), "--http 127.0.0.1:0 ") {
		t.Errorf("an address that is taken: %v", err)
	}
	obey := func(action string, id lease.NodeID) (stage, *clusterhttp.Problem) {
		if action == "dance" {
			return stage{}, &clusterhttp.Problem{Status: http.StatusConflict, Code: clusterhttp.CodeBadRequest, Message: "no action"}
		}
		return stage{Nodes: []staged{{id, action}}}, nil
	}
	for _, staying := range []bool{false, true} {
		if staying {
			f.obey.Store(&obey)
		}
		for _, c := range []struct {
			method, path, body, header string
			early, status              int
			text                       string
		}{
			{"GET", "/demo", "", "", 200, 200, ""},
			{"POST", "/demo/kill", `{"id":"a"}`, "", 409, 200, `{"id":"a","state":"kill"}`},
			{"POST", "/demo/dance", `{"id":"a"}`, "", 409, 409, "no action"},
			{"POST", "/demo/kill", `{"id":"a"}`, "Origin: http://evil.example", 403, 403, "forbidden"},
			{"POST", "/demo/kill", `{"id":"a"}`, "Sec-Fetch-Site: cross-site", 403, 403, "forbidden"},
			{"POST", "/demo/kill", `{"id":"a"}`, "Host: evil.example:8400", 400, 400, "IP address"},
			{"POST", "/demo/kill", `{"id":"a"}`, "Content-Type: text/plain", 400, 400, "JSON"},
			{"POST", "/demo/kill", `{"id":"a"}`, "Content-Type: application/json; charset=utf-8", 409, 200, `{"id":"a","state":"kill"}`},
			{"POST", "/demo/kill", `{"id":"a"}`, "Content-Type: text/plain; x=application/json", 400, 400, "JSON"},
			{"POST", "/demo/kill", `{"id":`, "", 400, 400, "the body"},
			{"POST", "/demo/kill", `{"id":"` + strings.Repeat("a", 2000) + `"}`, "", 400, 400, "too large"},
			{"GET", "/demo/kill", "", "", 503, 503, "no agent"}, // GET requests are forwarded, but there is no agent
			{"GET", "/v1/members", "", "", 503, 503, "no agent"},
		} {
			r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			r.Host = f.addr
			r.Header.Set("Content-Type", "application/json")
			if name, value, ok := strings.Cut(c.header, ": "); ok {
				r.Header.Set(name, value)
				if name == "Host" {
					r.Host = value
				}
			}
			w := httptest.NewRecorder()
			f.server.Handler.ServeHTTP(w, r)
			want := c.early
			if staying {
				want = c.status
			}
			if w.Code != want || (staying && !strings.Contains(w.Body.String(), c.text)) {
				t.Errorf("staying %v, %s %s %s %s: %d %s", staying, c.method, c.path, c.body[:min(20, len(c.body))], c.header, w.Code, w.Body)
			}
		}
	}
}

// TestFrontAims: when the page switches to another agent, open streams end so that their readers reconnect.
func TestFrontAims(t *testing.T) {
	f, err := openFront(t.Context(), "127.0.0.1:0", dashboard.Info{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	serve := func(id lease.NodeID) *node {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "%s at %s\n", id, r.Host)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done() // a paused agent says no more
		}))
		t.Cleanup(s.Close)
		return &node{id: id, Addrs: agentproc.Addrs{HTTP: s.Listener.Addr().String()}}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, id := range []lease.NodeID{"a", "b"} {
		f.aim(serve(id))
		r, err := client.Get("http://" + f.addr + "/v1/events")
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s at %s\n", id, f.addr)
		got := make([]byte, len(line))
		if _, err := io.ReadFull(r.Body, got); err != nil || string(got) != line {
			t.Errorf("%q, %v; want %q", got, err, line)
		}
		f.aim(nil)
		_, _ = io.Copy(io.Discard, r.Body) // it ends
		_ = r.Body.Close()
	}
}

// TestFrontIsQuiet: if an agent is killed while it answers, Go's HTTP server prints nothing on the user's terminal.
func TestFrontIsQuiet(t *testing.T) {
	f, err := openFront(t.Context(), "127.0.0.1:0", dashboard.Info{})
	if err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the first half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer agent.Close()
	logged := new(agentproc.Log)
	log.SetOutput(logged)
	defer log.SetOutput(os.Stderr)
	f.aim(&node{id: "a", Addrs: agentproc.Addrs{HTTP: agent.Listener.Addr().String()}})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if r, err := client.Get("http://" + f.addr + "/v1/events"); err == nil {
		_, _ = io.Copy(io.Discard, r.Body) // until it ends
		_ = r.Body.Close()
	}
	f.close()
	if logged.String() != "" {
		t.Errorf("logged: %s", logged)
	}
}
