package routing_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/tablewire"
)

// answers runs a handler until the test ends, and returns its host:port.
func answers(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return srv.Listener.Addr().String()
}

// awaits waits until the status of the script satisfies a condition, and returns the status.
func (s *script) awaits(what string, condition func(answer) bool) (a answer) {
	s.t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if a = s.ask(map[string]any{"ask": "status"}); condition(a) {
			return a
		}
		if time.Now().After(until) {
			s.t.Fatalf("not %s: %+v", what, a)
		}
	}
}

// fails waits until the script's only agent has an error that contains text.
func (s *script) fails(name, text string) {
	s.t.Helper()
	a := s.awaits("failed: "+text, func(a answer) bool { return strings.Contains(a.Status.Errors[name], text) })
	if a.Status.Agent != "" {
		s.t.Errorf("it follows %+v", a)
	}
}

// routing.mjs sends the user and the password in the address of an agent, or the token if there is one. It shows
// neither the credentials nor the token.
func TestScriptCredentials(t *testing.T) {
	text := event(t, nil, &tablewire.State{Table: tableOf(t, partitions, "n1")})
	host := answers(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if (user != "mé" || password != "sec:r@t") && r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, "who is it?", http.StatusUnauthorized)
			return
		}
		sends(text)(w, r)
	})
	shown := "http://…@" + host
	follows := func(a answer) bool { return a.Status.Agent == shown }
	startScript(t, "http://mé:sec:r%40t@"+host+"/").awaits("logged in", follows)
	startScript(t, "m%C3%A9:sec:r%40t@"+host).awaits("logged in", follows)
	startScript(t, "mé:other@"+host).fails(shown, "401")
	t.Setenv("TOKEN", "token")
	startScript(t, "http://mé:other@"+host).awaits("logged in by its token", follows)

	for addr, shown := range map[string]string{
		"http://me:sec/ret@a:1": "http://…@a:1", "ftp://me:secret@a:1": "ftp://…@a:1", "http://me:secret@a:1?x": "http://…@a:1?x",
	} {
		out, err := exec.CommandContext(t.Context(), "node", "testdata/routing.mjs", addr).CombinedOutput()
		want := fmt.Sprintf("%q is neither host:port nor the URL of an agent", shown)
		if err == nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "sec") {
			t.Errorf("a refused address: %v\n%s\nwant %s", err, out, want)
		}
	}
}

// routing.mjs does not follow redirects, because a redirect could send the token to another server.
func TestScriptRedirected(t *testing.T) {
	text := event(t, nil, &tablewire.State{Table: tableOf(t, partitions, "n1")})
	var asked atomic.Int64
	elsewhere := answers(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		sends(text)(w, r)
	})
	host := answers(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+elsewhere, http.StatusFound)
	})
	startScript(t, host).fails("http://"+host, "302: is it a roost agent")
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests were led elsewhere", n)
	}
}

// If the digest of an update does not match the table, routing.mjs does not use the update, even if the update moves
// nothing.
func TestScriptDigest(t *testing.T) {
	first := &tablewire.State{Table: tableOf(t, partitions, "n1", "n2")}
	other := &tablewire.State{Table: tableOf(t, partitions, "n1")}
	lost := strings.Replace(event(t, first, first), first.Table.Digest().String(), other.Table.Digest().String(), 1)
	host := answers(t, sends(event(t, nil, first)+event(t, first, first)+lost))
	startScript(t, host).fails("http://"+host,
		fmt.Sprintf("its digest is %s, but the digest of its content is %s", other.Table.Digest(), first.Table.Digest()))
}

// routing.mjs limits the size of an event that it keeps in memory.
func TestScriptLongEvent(t *testing.T) {
	for name, line := range map[string]string{"one line": strings.Repeat("x", 1<<20), "many lines": strings.Repeat("x", 1<<20) + "\ndata: "} {
		t.Run(name, func(t *testing.T) {
			host := answers(t, sends("event: update\ndata: "+strings.Repeat(line, 33)))
			startScript(t, host).fails("http://"+host, "an event has more than 32 MiB")
		})
	}
}
