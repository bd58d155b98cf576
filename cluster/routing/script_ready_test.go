package routing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/tablewire"
)

// While no agent answers, a program that only waits for routing.mjs does not exit. A table may take longer than twice
// the idle timeout to arrive. If one watcher throws, the other watchers still get the change, and the application gets
// the error.
func TestScriptReady(t *testing.T) {
	text := event(t, nil, &tablewire.State{Table: tableOf(t, 2048, "n1")})
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) <= 3 {
			w.Header().Set("Connection", "close")
			http.Error(w, `{"error": "joining"}`, http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		pace := time.NewTicker(250 * time.Millisecond)
		defer pace.Stop()
		for piece := range slices.Chunk([]byte(text), 1+len(text)/6) {
			_, _ = w.Write(piece)
			_ = http.NewResponseController(w).Flush()
			<-pace.C
		}
		<-r.Context().Done()
	}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "testdata/ready.mjs", srv.URL)
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if want := `{"thrown":"a problem of the callback","moved":2048,"errors":{}}` + "\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v after %d requests; want %s\n%s", out, err, asked.Load(), want, &problem)
	}
}
