package serve

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// phases are roost's only metrics before the node has joined, because metrics that count nodes must not count it.
var phases = []string{
	`roost_node_phase{phase="active"} 0`, `roost_node_phase{phase="isolated"} 0`, `roost_node_phase{phase="joining"} 1`,
	`roost_node_phase{phase="over"} 0`, `roost_node_phase{phase="settling"} 0`,
}

// samples returns the lines of a scrape that contain roost's own metrics.
func samples(scrape string) (found []string) {
	for line := range strings.Lines(scrape) {
		if strings.HasPrefix(line, "roost_") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestJoining: until the node has joined, people get a page that waits, and programs get an error. Prometheus gets the
// metrics of the process and the phase, which the alert for a node that cannot join needs.
func TestJoining(t *testing.T) {
	a := settings.Agent{HTTP: "127.0.0.1:0", Cluster: cluster.Config{Cluster: "media"}}
	w, err := listenHTTP(t.Context(), a, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, c := range []struct {
		method, path string
		status       int
		part         string
	}{
		{"GET", "/", 200, "<title>media · roost</title>"},
		{"GET", "/dashboard/main.js", 200, "import"},
		{"GET", "/healthz", 200, `"ok"`},
		{"GET", "/readyz", 503, `"state":"joining"`},
		{"GET", "/v1/members", 503, `"code":"not_ready"`},
		{"GET", "/v1/events", 503, `"code":"not_ready"`},
		{"GET", "/metrics", 200, "\ngo_goroutines "},
		{"POST", "/metrics", 503, `"code":"not_ready"`},
	} {
		in, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+w.addr+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.DefaultClient.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != c.status || !strings.Contains(string(body), c.part) {
			t.Errorf("%s %s: %s %.300s, want %d and %s", c.method, c.path, r.Status, body, c.status, c.part)
		}
		if c.path == "/metrics" && c.status == 200 &&
			(!slices.Equal(samples(string(body)), phases) || strings.Count(string(body), "# TYPE") < 20) {
			t.Errorf("%s", body)
		}
	}
	waits := "a seed does not answer"
	w.waitsFor.Store(&waits)
	for host, trusted := range map[string]bool{w.addr: true, "attacker.example:80": false} { // this name could resolve to this machine
		for _, path := range []string{"/", "/metrics", "/dashboard/main.js", "/v1/members"} {
			in := httptest.NewRequest(http.MethodGet, path, nil)
			in.Host = host
			answer := httptest.NewRecorder()
			w.ServeHTTP(answer, in)
			if said := answer.Code == http.StatusOK || strings.Contains(answer.Body.String(), "a seed"); said != trusted {
				t.Errorf("%s of %s while joining: %d %s", path, host, answer.Code, answer.Body)
			}
		}
	}
	c := clusterhttp.Client{Base: w.addr}
	if _, err := c.Place(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "joining") {
		t.Errorf("place: %v", err)
	}
	w.options.TokenReads = true
	w.options.Tokens = func() (operate, read []string) { return []string{"secret"}, nil }
	for _, c := range []struct {
		method, path, token string
		status              int
	}{
		{"GET", "/", "", 401},
		{"GET", "/metrics", "wrong", 401},
		{"GET", "/dashboard/main.js", "", 401},
		{"GET", "/v1/members", "wrong", 401}, // not 503, after which a client would try again
		{"POST", "/v1/drain", "", 401},
		{"GET", "/v1/members", "secret", 503},
		{"POST", "/v1/drain", "secret", 503},
		{"GET", "/metrics", "secret", 200},
		{"GET", "/healthz", "", 200}, // probes have no token
		{"GET", "/readyz", "", 503},
	} {
		in := httptest.NewRequest(c.method, c.path, nil)
		if c.token != "" {
			in.Header.Set("Authorization", "Bearer "+c.token)
		}
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, in)
		if challenged := answer.Header().Get("WWW-Authenticate") != ""; answer.Code != c.status || challenged != (c.status == 401) {
			t.Errorf("%s %s with token %q while joining: %d, challenged: %v; want %d", c.method, c.path, c.token, answer.Code, challenged, c.status)
		}
	}
}
