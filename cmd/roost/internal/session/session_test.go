package session

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/spf13/pflag"
)

// TestRest: a view that is expensive is not requested again immediately, however often there is news.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := &Viewer{
			Every: time.Second, watch: true,
			Ask: func(context.Context, *Session) (View, error) { asked++; return View{Rest: 5 * time.Second}, nil },
			News: func(ctx context.Context, _ *Session, changed chan<- struct{}) {
				for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
					Touch(changed)
				}
			},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 22*time.Second)
		defer cancel()
		s := &Session{Client: new(clusterhttp.Client), JSON: true, Timeout: time.Second, Out: io.Discard, Err: io.Discard}
		if err := f.Run(ctx, s); err != nil || asked != 5 {
			t.Errorf("asked %d times in 22 s, %v", asked, err)
		}
		time.Sleep(time.Second) // News ends
	})
}

// TestWithheld: if an agent requires the token but it was not sent, the error explains why it was not sent.
func TestWithheld(t *testing.T) {
	o := &Options{addr: "https://node-a:8401", token: "sesame"}
	s, err := o.Open(nil, settings.Sources{Getenv: func(string) string { return "" }}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for other, want := range map[*Session]string{
		s:                                     "and this token is wrong",
		s.At("http://node-b:8401", true):      "which the network could read on its way there: see --insecure",
		s.At("https://node-b:8401", false):    "because only agents without the token report its address",
		s.At("https://localhost.:8401", true): "because its reported address is on this machine",
	} {
		text := other.Explain(&clusterhttp.Problem{Code: clusterhttp.CodeUnauthorized}).Error()
		if !strings.Contains(text, "requires a token, "+want) || (other != s && other.Token != "") {
			t.Errorf("%q with token %q, want %q", text, other.Token, want)
		}
	}
}

// TestConnectionsAreKept: connections stay open for the next round, however many agents there are.
func TestConnectionsAreKept(t *testing.T) {
	o := new(Options)
	from := settings.Sources{Flags: new(pflag.FlagSet), Getenv: func(string) string { return "" }}
	s, err := o.Open(o.Settings(), from, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	const agents = 120
	var opened atomic.Int64
	var urls []string
	for range agents {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		server.Start()
		t.Cleanup(server.Close)
		t.Cleanup(server.CloseClientConnections)
		urls = append(urls, server.URL)
	}
	for range 2 {
		for _, url := range urls {
			if _, err := s.At(url, false).Members(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := opened.Load(); n > agents+agents/10 { // on a starved machine, some connections may be lost
		t.Errorf("%d connections to %d agents", n, agents)
	}
}
