package clusterhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/events"
	"github.com/roost-cluster/roost/lease"
)

func expectProblem(t *testing.T, err error, status int, code, text string) {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) || p.Status != status || p.Code != code || !strings.Contains(p.Message, text) {
		t.Errorf("got %v, want %d %s %q", err, status, code, text)
	}
}

func TestClient(t *testing.T) {
	inTrio(t, Options{Token: token}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		ctx := t.Context()
		same := func(what string, got any, err error, want any) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v\n%s", what, err, diff)
			}
		}
		placed, err := client.Place(ctx, "room 1&?/ü")
		same("Place", placed, err, decoded[Placed](t, h, "/v1/place?key=room+1%26%3f%2f%c3%bc"))
		ranked, err := client.Owners(ctx, "room", 2)
		same("Owners", ranked, err, decoded[Ranked](t, h, "/v1/owners?key=room&n=2"))
		members, err := client.Members(ctx)
		same("Members", members, err, decoded[Members](t, h, "/v1/members"))
		partitions, err := client.Partitions(ctx)
		same("Partitions", partitions, err, decoded[Partitions](t, h, "/v1/partitions"))
		owned, err := client.Owned(ctx)
		same("Owned", owned, err, decoded[Owned](t, h, "/v1/owned"))
		history, err := client.History(ctx)
		same("History", history, err, decoded[History](t, h, "/v1/history"))
		if err := client.Ready(ctx); err != nil {
			t.Error(err)
		}

		_, err = client.SetLoad(ctx, 5)
		expectProblem(t, err, 401, CodeUnauthorized, "Authorization")
		_, err = client.Leave(ctx)
		expectProblem(t, err, 401, CodeUnauthorized, "Authorization")
		client.Token = token
		load, err := client.SetLoad(ctx, 5)
		if err != nil || load.Load != 5 {
			t.Errorf("SetLoad: %+v, %v", load, err)
		}
		_, err = client.SetLoad(ctx, -5)
		expectProblem(t, err, 400, CodeBadRequest, "units is -5")
		weight, err := client.SetWeight(ctx, 50)
		same("SetWeight", weight, err, Changed{Self: "a", State: lease.Active, Weight: 50})
		_, err = client.SetWeight(ctx, 1<<31)
		expectProblem(t, err, 400, CodeBadRequest, "weight is 2147483648")
		drained, err := client.Drain(ctx)
		same("Drain", drained, err, Changed{Self: "a", State: lease.Draining, Weight: 50, Load: 5, Converged: true})
		expectProblem(t, client.Ready(ctx), 503, CodeNotReady, "draining")
		undrained, err := client.Undrain(ctx)
		same("Undrain", undrained, err, Changed{Self: "a", State: lease.Active, Weight: 50, Load: 5, Converged: true})
		_, err = client.Place(ctx, "")
		expectProblem(t, err, 400, CodeBadRequest, "key")
		_, err = client.Owners(ctx, "room", 101)
		expectProblem(t, err, 400, CodeBadRequest, `n is "101"`)

		if _, err := client.Leave(ctx); err != nil {
			t.Errorf("Leave: %v", err)
		}
		<-h.agent.Done()
		_, err = client.Place(ctx, "room")
		expectProblem(t, err, 503, CodeClosed, "left")
		if !errors.Is(err, cluster.ErrClosed) || errors.Is(err, cluster.ErrNotReady) {
			t.Errorf("not the error of an embedded agent: %v", err)
		}
	})
}

// The client asks the agent to wait for as long as the client's own deadline allows, and the agent does.
func TestClientWaitsLong(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		c.Split([]string{"a", "b"}, []string{"c"})
		heal := time.AfterFunc(3*time.Second, c.Heal) // before the lease of c ends, so c must still agree
		defer heal.Stop()
		for what, call := range map[string]func(context.Context) (bool, error){
			"drain":   func(ctx context.Context) (bool, error) { a, err := client.Drain(ctx); return a.Converged, err },
			"undrain": func(ctx context.Context) (bool, error) { a, err := client.Undrain(ctx); return a.Converged, err },
			"cordon": func(ctx context.Context) (bool, error) {
				a, err := client.Cordon(ctx, "b", time.Hour, "")
				return a.Converged, err
			},
			"uncordon": func(ctx context.Context) (bool, error) {
				a, err := client.Uncordon(ctx, "b")
				return a.Converged, err
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			if converged, err := call(ctx); err != nil || !converged {
				t.Errorf("%s: %v, %v", what, converged, err)
			}
			cancel()
		}
	})
}

// A duration shorter than 1 ms is rejected, because it would be sent as 0, which has a special meaning.
func TestClientShortTimes(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)
		for _, d := range []time.Duration{1, 500 * time.Microsecond, time.Millisecond - 1, -time.Microsecond} {
			_, health := client.ReportHealth(t.Context(), d)
			_, cordon := client.Cordon(t.Context(), "b", d, "")
			_, evacuate := client.Evacuate(t.Context(), 10, d)
			for what, err := range map[string]error{"health": health, "cordon": cordon, "evacuate": evacuate} {
				if err == nil || !strings.Contains(err.Error(), "it must be 0 or at least 1ms") {
					t.Errorf("%s with %v: %v", what, d, err)
				}
			}
		}
		if _, err := client.Cordon(t.Context(), "b", time.Millisecond, ""); err != nil {
			t.Error(err)
		}
		if _, err := client.ReportHealth(t.Context(), 0); err != nil {
			t.Error(err)
		}
	})
}

// The table lists the response for each error, and the error that each code matches.
func TestProblemIs(t *testing.T) {
	all := []struct {
		err     error
		status  int
		code    string
		message string
	}{
		{cluster.ErrNotReady, 503, CodeNotReady, "this node has not computed a table yet; try again in a second"},
		{cluster.ErrNoMembers, 503, CodeNoMembers, "no member can own anything: r1"},
		{cluster.ErrClosed, 503, CodeClosed, "the agent has left or was closed"},
		{
			cluster.ErrStalled, 503, CodeStalled,
			"the agent's loop is stuck: a strategy does not return, or the process gets no CPU; the change may still take effect",
		},
		{cluster.ErrNotMember, 404, CodeNotMember, "no member has this id; /v1/members lists the members"},
		{
			cluster.ErrLastCandidate, 409, CodeLastCandidate,
			"no other member could own anything: all are draining, settling or cordoned, or have weight 0",
		},
		{cluster.ErrCordons, 409, CodeCordons, "too many nodes are cordoned: end a cordon, or wait until one ends"},
		{
			cluster.ErrLoadComputed, 409, CodeLoadComputed,
			"this agent computes its load from its rooms (--report-load), so it does not accept units: do not post units, or restart the agent without --report-load",
		},
		{cluster.ErrSealed, 409, CodeSealed, "this node encrypts, and can send or accept plain text only after a restart"},
		{cluster.ErrUnknownKey, 404, CodeUnknownKey, "this node has no gossip key with this fingerprint: install it first: r1"},
		{
			cluster.ErrKeyLacking, 409, CodeKeyLacking,
			"live members do not accept this gossip key: r1; install it there first, or wait until their records have spread",
		},
		{cluster.ErrKeyInUse, 409, CodeKeyInUse, "this gossip key is still used to send: r1"},
		{cluster.ErrManyKeys, 409, CodeManyKeys, "a node can have at most 4 gossip keys: remove one first: r1"},
		{affinity.ErrNoPin, 404, CodeNoPin, "the room is not pinned: r1"},
		{affinity.ErrNotLive, 409, CodeNotLive, "node accepts no rooms: r1"},
		{affinity.ErrChanged, 409, CodeChanged, "pin changed concurrently: r1; resolve the room again"},
		{affinity.ErrNoCapacity, 503, CodeNoCapacity, "no node has the capacity: r1"},
		{affinity.ErrRequire, 503, CodeRequire, "no node meets the requirement: r1"},
		{pinstore.ErrStore, 503, CodeStore, "the store does not answer: r1"},
		{affinity.ErrSettings, 503, CodeSettings, "settings differ from other nodes: r1"},
		// These errors have no code of their own.
		{
			affinity.ErrFenced, 503, CodeNotReady,
			"this node's own lease expired, because the process was paused or could not send; it rejoins by itself; try again in a second",
		},
		{affinity.ErrClosed, 503, CodeClosed, "this node is leaving and no longer hosts rooms"},
		{
			fmt.Errorf("%w: %w", pinstore.ErrStore, cluster.ErrNotReady), 503, CodeStore,
			"the store does not answer: " + cluster.ErrNotReady.Error() + ": r1",
		},
		{io.EOF, 500, CodeInternal, "EOF: r1"},
		{io.EOF, 400, CodeBadRequest, ""},
	}
	a := &api{agent: new(cluster.Agent)}
	for _, c := range all {
		if p := a.problemOf(fmt.Errorf("%w: r1", c.err)); c.message != "" && *p != (Problem{Status: c.status, Code: c.code, Message: c.message}) {
			t.Errorf("%v is answered by %d %v", c.err, p.Status, p)
		}
		for i, other := range all {
			if got := errors.Is(fmt.Errorf("wrapped: %w", &Problem{Code: c.code}), other.err); got != (c.code == other.code && i < 20) {
				t.Errorf("%s is %v: %v", c.code, other.err, got)
			}
		}
	}
}

// After an agent has failed, its responses contain the reason.
func TestProblemOfAFailure(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		c.Start("a") // two processes with one id: the older one stops
		<-h.agent.Done()
		expect(t, do(h, "GET", "/v1/place?key=x", ""), 503, `the agent has stopped: cluster: two processes use the node id \"a\": this process at `)
		if p := h.problemOf(affinity.ErrClosed); p.Message != "this node is leaving and no longer hosts rooms" {
			t.Error(p)
		}
	})
}

func TestClientEvents(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		client := serve(t, NewServer(h)).client(t)

		var first events.Batch // then break, so the next range starts from the beginning
		for range 2 {
			for b, err := range client.Events(t.Context()) {
				if len(b.Acquired) != len(h.agent.Owned()) || err != nil {
					t.Errorf("first batch %+v, %v", b, err)
				}
				first = b
				break
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		for b, err := range client.Events(ctx) { // ends with ctx, without an error
			if n++; err != nil || (n == 1 && cmp.Diff(b, first) != "") || (n == 2 && len(b.Released) == 0) {
				t.Errorf("batch %d: %+v, %v", n, b, err)
			}
			if n == 1 {
				go func() { _ = h.agent.Drain(ctx) }()
			}
		}
		if n != 2 || ctx.Err() == nil {
			t.Errorf("%d batches", n)
		}

		var last error
		closed := make(chan struct{})
		for _, err := range client.Events(t.Context()) {
			if last = err; err == nil {
				go func() {
					_ = h.agent.Close()
					close(closed)
				}()
			}
		}
		<-closed
		if !errors.Is(last, io.EOF) {
			t.Errorf("the agent has ended: %v", last)
		}
		for _, err := range client.Events(t.Context()) {
			expectProblem(t, err, 503, CodeClosed, "")
		}
	})
}

// For every kind of broken response, the error names the address and the problem.
func TestClientMeetsOutsiders(t *testing.T) {
	hijack := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, _ := w.(http.Hijacker).Hijack()
			_, _ = rw.WriteString(answer)
			_ = rw.Flush()
			_ = conn.Close()
		}
	}
	text := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, tc := range map[string]struct {
		h      http.HandlerFunc
		want   string // part of the error of Members
		stream string // part of the error of Events
	}{
		"a web page":    {text(200, "text/html", "<html>"), "unexpected response from agent.test:8401", `of type "text/html"`},
		"an error page": {text(502, "text/html", "<html>"), "unexpected response from agent.test:8401: 502 Bad Gateway", "502"},
		"another error": {text(500, "application/json", `{"error":true}`), "500", "500"},
		"a Problem":     {text(503, "application/json", `{"error":"later","code":"not_ready"}`), "later (not_ready)", "later (not_ready)"},
		"no end":        {func(w http.ResponseWriter, _ *http.Request) { flood(w) }, "more than 32 MB", "too long"},
		"a Problem of no end": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); flood(w) }, "unexpected response",
			"unexpected response",
		},
		"an end": {hijack(""), "no agent answers at agent.test:8401", "no agent answers"},
		"an end in the middle": {
			hijack("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata"),
			"unexpected EOF", "unexpected EOF",
		},
		"bad events": {
			text(200, "text/event-stream", "event: batch\ndata: {\n\n"), "unexpected response",
			"unexpected event from agent.test:8401",
		},
		"no events":        {text(200, "text/event-stream", ""), "unexpected response", "has closed the stream of events: EOF"},
		"another protocol": {hijack("SSH-2.0-OpenSSH_9.2\r\n"), "no agent answers at agent.test:8401", "no agent answers"},
	} {
		t.Run(name, func(t *testing.T) {
			client := serve(t, &http.Server{Handler: tc.h}).client(t)
			if _, err := client.Members(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Members: %v\nwant %q", err, tc.want)
			}
			n := 0
			for b, err := range client.Events(t.Context()) {
				if n++; err == nil || !strings.Contains(err.Error(), tc.stream) {
					t.Errorf("Events: %+v, %v\nwant %q", b, err, tc.stream)
				}
			}
			if n != 1 {
				t.Errorf("Events ended with %d errors", n)
			}
		})
	}
}

func flood(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	block := make([]byte, 1<<20)
	for range 2 * maxAnswer >> 20 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestClientBase(t *testing.T) {
	asked := ""
	h := func(_ http.ResponseWriter, r *http.Request) { asked = r.Host + r.URL.Path }
	client := serve(t, &http.Server{Handler: http.HandlerFunc(h)}).client(t)
	for base, want := range map[string]string{
		"":                       DefaultBase + "/v1/owned",
		"10.1.2.3:80":            "10.1.2.3:80/v1/owned",
		"[::1]:8401":             "[::1]:8401/v1/owned",
		"localhost:8401":         "localhost:8401/v1/owned",
		"http://node-a:1/roost/": "node-a:1/roost/v1/owned",
		"http://node-a":          "node-a/v1/owned",
		"http://":                "",
		"://x":                   "",
		"a b":                    "",
		"http://a:b:c":           "",
		"http://a/?key=b":        "",
	} {
		asked, client.Base = "", base
		_, err := client.Owned(t.Context())
		if asked != want {
			t.Errorf("%q: asked %q, want %q", base, asked, want)
		}
		if want == "" && !strings.Contains(err.Error(), "is neither host:port nor the URL of an agent") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

// A client's error shows which URL it requested, without the password.
func TestClientPassword(t *testing.T) {
	c := &Client{Base: "http://me:correct-horse@127.0.0.1:1"}
	_, err := c.Members(t.Context())
	if err == nil || strings.Contains(err.Error(), "correct-horse") || !strings.Contains(err.Error(), "…@127.0.0.1:1") {
		t.Error(err)
	}
}

// If the caller's deadline passes, the error wraps it, and does not blame the agent.
func TestClientContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		client := serve(t, &http.Server{Handler: http.HandlerFunc(h)}).client(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Members(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no response yet from agent.test:8401") {
			t.Error(err)
		}
		for b, err := range client.Events(ctx) {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// The client ends a stream that falls silent, but not a stream with comments or with a slow reader.
func TestClientEventsOfStoppedAgent(t *testing.T) {
	for name, tc := range map[string]struct {
		comments int // one every 15 s, until the server stops sending; -1: not even headers
		pause    time.Duration
		want     time.Duration // time until the error
	}{
		"it never answers":          {-1, 0, maxIdle},
		"it stops at once":          {0, 0, maxIdle},
		"it stops later":            {10, 0, 150*time.Second + maxIdle},
		"the reader takes its time": {10, 10 * time.Minute, 10*time.Minute + 9*15*time.Second + maxIdle}, // a pipe does not buffer comments
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := func(w http.ResponseWriter, r *http.Request) {
					if tc.comments >= 0 {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = w.Write(encode("run", events.Batch{Version: 1}))
						_ = http.NewResponseController(w).Flush()
					}
					for range tc.comments {
						time.Sleep(15 * time.Second)
						_, _ = io.WriteString(w, ": keep-alive\n\n")
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				}
				client := serve(t, &http.Server{Handler: http.HandlerFunc(h)}).client(t)
				begin := time.Now()
				var last error
				for _, err := range client.Events(t.Context()) {
					if last = err; err == nil {
						time.Sleep(tc.pause)
					}
				}
				if took := time.Since(begin); !errors.Is(last, errSilent) || took != tc.want {
					t.Errorf("%v after %v, want that after %v", last, took, tc.want)
				}
			})
		})
	}
}

// The client derives the wait that it requests from the caller's deadline.
func TestClientTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for within, want := range map[time.Duration]string{
			0:               "10s",
			time.Second:     "900ms",
			5 * time.Minute: "4m30s",
			time.Hour:       "10m0s",
			-time.Second:    "0s",
		} {
			ctx := t.Context()
			if within != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, within)
				defer cancel()
			}
			if got := waitWithin(ctx); got != want {
				t.Errorf("with %v left: %s, want %s", within, got, want)
			}
		}
	})
}
