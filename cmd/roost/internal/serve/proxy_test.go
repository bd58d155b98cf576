package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cluster/routing"
	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/agentproc"
)

// TestProxyWaitsForWebSockets: a proxy that shuts down waits for a WebSocket as for any other request, until the
// WebSocket closes or the time for requests is over.
func TestProxyWaitsForWebSockets(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, in)
	}))
	defer app.Close()
	agent, err := cluster.Start(t.Context(), cluster.Config{
		ID:        "a",
		Bind:      "127.0.0.1:0",
		APIAddr:   app.Listener.Addr().String(),
		Bootstrap: true,
		Network:   cluster.Local,
		LeaseTTL:  time.Minute,
		Log:       quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Close() }()
	api := httptest.NewServer(clusterhttp.Handler(agent, clusterhttp.Options{Log: quiet}))
	defer api.Close()

	key, err := httpproxy.ParseKey("path:1")
	if err != nil {
		t.Fatal(err)
	}
	for name, grace := range map[string]time.Duration{"that closes": time.Hour, "that does not close": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			var log agentproc.Log
			p := Proxy{Listen: "127.0.0.1:0", Agents: routing.Config{Agents: []string{api.URL}, Log: quiet}, grace: grace}
			p.Key, p.Log = key, slog.New(slog.NewTextHandler(&log, nil))
			ctx, end := context.WithCancel(t.Context())
			defer end()
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			conn, in := upgraded(t, &log)
			end()
			ending := time.Now()
			for time.Since(ending) < 300*time.Millisecond { // a server without requests shuts down at once
				if _, err := conn.Write([]byte("word\n")); err != nil {
					t.Fatal(err)
				}
				if line, err := in.ReadString('\n'); line != "word\n" || err != nil {
					t.Fatalf("%q, %v", line, err)
				}
				select {
				case err := <-ended:
					t.Fatalf("ended after %v with a WebSocket in progress: %v", time.Since(ending), err)
				case <-time.After(10 * time.Millisecond):
				}
			}
			if grace > time.Minute {
				_ = conn.Close()
			}
			select {
			case err := <-ended:
				if broken := strings.Contains(log.String(), "requests broken off"); err != nil || broken != (grace < time.Minute) {
					t.Errorf("%v\n%s", err, &log)
				}
			case <-time.After(time.Minute):
				t.Error("it does not end")
			}
		})
	}
}

// upgraded returns an upgraded connection through the proxy, as soon as the proxy has a table.
func upgraded(t *testing.T, log fmt.Stringer) (net.Conn, *bufio.Reader) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		addr := regexp.MustCompile(`msg="proxy running" listen=(\S+)`).FindStringSubmatch(log.String())
		if addr == nil {
			continue
		}
		conn, err := net.Dial("tcp", addr[1])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: proxy.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return conn, in
		}
		_ = resp.Body.Close()
		_ = conn.Close()
	}
	t.Fatalf("no connection\n%s", log)
	return nil, nil
}
