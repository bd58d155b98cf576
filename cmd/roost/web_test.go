package main

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster"
)

// Until the node has joined, people get a page that waits, and programs an error.
func TestWebWhileJoining(t *testing.T) {
	o := agentOptions{http: "127.0.0.1:0", cluster: cluster.Config{Cluster: "media"}}
	w, err := listenHTTP(t.Context(), o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	for _, c := range []struct {
		path   string
		status int
		part   string
	}{
		{"/", 200, "<title>media · roost</title>"},
		{"/dashboard/main.js", 200, "import"},
		{"/healthz", 200, `"ok"`},
		{"/readyz", 503, `"state":"joining"`},
		{"/v1/members", 503, `"code":"not_ready"`},
		{"/v1/events", 503, `"code":"not_ready"`},
	} {
		r, err := http.Get("http://" + w.addr + c.path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != c.status || !strings.Contains(string(body), c.part) {
			t.Errorf("%s: %s %.300s, want %d and %s", c.path, r.Status, body, c.status, c.part)
		}
	}
}
