package clusterotel_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/clusterotel"
	"github.com/roost-cluster/roost/internal/pipenet"
)

// A stream of events works if both the client and the server are traced. Each event arrives immediately, and the
// server's WriteTimeout does not end the stream. The stream has one span, or none with the filter Brief.
func TestStream(t *testing.T) {
	for name, c := range map[string]struct {
		filters []otelhttp.Option
		want    string
	}{
		"traced":   {nil, "GET /v1/events\n"},
		"left out": {[]otelhttp.Option{otelhttp.WithFilter(clusterotel.Brief)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRoomCluster(t, clusterotel.Options{})
				api := h.tracing.Handler(clusterhttp.Handler(h.Agent("a"), clusterhttp.Options{Log: quiet}))
				opts := append(c.filters, otelhttp.WithTracerProvider(h.provider))
				transport := pipenet.Serve(t, clusterhttp.NewServer(otelhttp.NewHandler(api, "roost", opts...))).Transport(t)

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent.test/v1/events", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewScanner(resp.Body)
				await := func(text string) {
					t.Helper()
					for lines.Scan() {
						if strings.HasPrefix(lines.Text(), text) {
							return
						}
					}
					t.Fatalf("the stream ended before %q: %v", text, lines.Err())
				}
				await("event: batch")
				for since := time.Now(); time.Since(since) < 5*time.Minute; {
					await(": keep-alive")
				}
				if got := h.tree(); got != "" {
					t.Errorf("traced before the stream has ended: %s", got)
				}
				cancel()
				synctest.Wait()
				h.wantTree(t, c.want)
			})
		})
	}
}

func TestBrief(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/events": false, "/roost/v1/events": false, "/healthz": false, "/readyz": false, "/metrics": false,
		"/v1/table": false, "/roost/v1/table": false, "/v1/rooms/r/follow": false, "/roost/v1/rooms/a%2Fb/follow": false,
		"/": true, "/v1/members": true, "/v1/rooms/r/resolve": true, "/v1/rooms/follow": true, "/v1/rooms/a%2Ffollow": true,
		"/v1/rooms/v1%2Ffollow": true, "/routing.mjs": true,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent.test"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := clusterotel.Brief(r); got != want {
			t.Errorf("%s: got %v", path, got)
		}
	}
}
