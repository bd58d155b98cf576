package clusterhttp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
)

// Calls change the gossip key step by step. If a step is too early, it is refused, and the error names the members that
// are not ready. No response and no log line contains a key.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former, next := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key = former }})
		c.Start("a", "b", "c")
		c.WaitAgreed(3 * time.Second)
		var log bytes.Buffer
		saved := errors.New("disk full")
		clients := make(map[string]*Client)
		for _, id := range c.IDs() {
			h := Handler(c.Agent(id), Options{Token: token, Log: slog.New(slog.NewTextHandler(&log, nil)), SaveKeys: func() error { return saved }})
			clients[id] = serve(t, NewServer(h)).client(t)
			clients[id].Token = token
		}
		steps := map[string]func(*Client, string) (Keys, error){
			"install": func(c *Client, _ string) (Keys, error) { return c.InstallKey(t.Context(), next) },
			"use":     func(c *Client, print string) (Keys, error) { return c.UseKey(t.Context(), print) },
			"remove":  func(c *Client, print string) (Keys, error) { return c.RemoveKey(t.Context(), print) },
		}
		one, two := cluster.KeyFingerprint(former), cluster.KeyFingerprint(next)
		for _, s := range []struct {
			id, step, print string
			want            string // the fingerprints, or the code and a part of the message
		}{
			{"a", "use", two, CodeUnknownKey},
			{"a", "remove", two, one}, // the node does not have this key
			{"a", "use", one, one},    // the key is already in use
			{"a", "remove", one, CodeKeyInUse + ": this gossip key is still used to send by this node"},
			{"a", "install", "", one + " " + two},
			{"a", "install", "", one + " " + two},
			{"a", "use", two, CodeKeyLacking + ": live members do not accept this gossip key: b, c; install it"},
			{"b", "install", "", one + " " + two},
			{"b", "use", two, CodeKeyLacking + ": live members do not accept this gossip key: c"},
			{"c", "install", "", one + " " + two},
			{"c", "use", two, two + " " + one},
			{"a", "use", two, two + " " + one},
			{"c", "remove", one, CodeKeyInUse + ": this gossip key is still used to send by b"},
			{"b", "use", two, two + " " + one},
			{"a", "remove", one, two},
			{"b", "remove", one, two},
			{"c", "remove", one, two},
		} {
			k, err := steps[s.step](clients[s.id], s.print)
			time.Sleep(3 * time.Second) // the members learn of it
			if p, ok := errors.AsType[*Problem](err); ok {
				if got := p.Code + ": " + p.Message; !strings.HasPrefix(got, s.want) {
					t.Errorf("%s at %s: %s, want %s", s.step, s.id, got, s.want)
				}
				continue
			}
			got := strings.Join(k.Keys, " ")
			if err != nil || got != s.want || k.Self != c.Agent(s.id).Snapshot().Self.ID || k.Unsaved != "disk full" {
				t.Errorf("%s at %s: %+v, %v, want %s", s.step, s.id, k, err, s.want)
			}
		}
		for _, id := range c.IDs() {
			for _, m := range c.Agent(id).Snapshot().Members {
				if prints := m.KeyFingerprints(); !slices.Equal(prints, []string{two}) {
					t.Errorf("%s sees %s with %q", id, m.ID, prints)
				}
			}
		}
		c.WaitAgreed(3 * time.Second)
		for i := range byte(3) {
			if _, err := clients["a"].InstallKey(t.Context(), bytes.Repeat([]byte{10 + i}, 24)); err != nil {
				t.Error(err)
			}
		}
		if _, err := clients["a"].InstallKey(t.Context(), former); !errors.Is(err, cluster.ErrManyKeys) {
			t.Errorf("a fifth key: %v", err)
		}
		for _, key := range [][]byte{former, next} {
			if text := base64.StdEncoding.EncodeToString(key); strings.Contains(log.String(), text) || strings.Contains(log.String(), string(key)) {
				t.Errorf("a key is logged: %s", &log)
			}
		}
		if !strings.Contains(log.String(), one) {
			t.Error("no change is logged")
		}
	})
}

// Invalid steps and callers without authorization change nothing.
func TestKeysRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key = bytes.Repeat([]byte{1}, 32) }})
		c.Start("a")
		plain := clustertest.New(t, clustertest.Options{})
		plain.Start("a")
		key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{2}, 32))
		install := `{"install":"` + key + `"}`
		auth := "Authorization: Bearer " + token
		guarded, open := Handler(c.Agent("a"), Options{Token: token, Log: quiet}), Handler(c.Agent("a"), Options{Log: quiet})
		expect(t, do(open, "POST", "/v1/keys", install), 403, "only callers with a token")
		expect(t, do(guarded, "POST", "/v1/keys", install), 401, CodeUnauthorized)
		for _, body := range []string{
			"", "{}", `{"use":""}`, `{"install":"x"}`, `{"install":"eA=="}`, `{"install":5}`,
			`{"use":"0123abcd","remove":"0123abcd"}`, `{"use":"0123ABCD"}`,
			`{"remove":"0123abc"}`, `{"key":"` + key + `"}`, install + install,
		} {
			w := do(guarded, "POST", "/v1/keys", body, auth)
			expect(t, w, 400, CodeBadRequest)
			if strings.Contains(w.Body.String(), key) {
				t.Errorf("the answer has the key: %s", w.Body)
			}
		}
		first := Handler(plain.Agent("a"), Options{Token: token, Log: quiet})
		two := cluster.KeyFingerprint(bytes.Repeat([]byte{2}, 32))
		expect(t, do(first, "POST", "/v1/keys", `{"remove":"plain"}`, auth), 409, CodeKeyInUse)
		expect(t, do(first, "POST", "/v1/keys", install, auth), 200, `"keys":["plain","`+two+`"]`)
		expect(t, do(first, "POST", "/v1/keys", `{"remove":"`+two+`"}`, auth), 200, `"keys":["plain"]`)
		expect(t, do(first, "POST", "/v1/keys", install, auth), 200, two)
		expect(t, do(first, "POST", "/v1/keys", `{"use":"`+two+`"}`, auth), 200, `"keys":["`+two+`","plain"]`)
		expect(t, do(first, "POST", "/v1/keys", `{"use":"plain"}`, auth), 409, CodeSealed)
		expect(t, do(first, "POST", "/v1/keys", `{"remove":"plain"}`, auth), 200, `"keys":["`+two+`"]`)
		if n := len(c.Agent("a").Keys()); n != 1 {
			t.Errorf("%d keys", n)
		}
		// A client certificate from the CA that the server trusts is sufficient authorization.
		r := httptest.NewRequest(http.MethodPost, "/v1/keys", strings.NewReader(install))
		r.Header.Set("Content-Type", "application/json")
		r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		expect(t, w, 200, "this process does not save keys")
	})
}

// A member's metadata can contain any bytes, so /v1/members encodes it in base64.
func TestMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Meta = "\xff\x00roost" }})
		c.Start("a")
		expect(t, do(Handler(c.Agent("a"), Options{Log: quiet}), "GET", "/v1/members", ""), 200, `"meta":"/wByb29zdA=="`)
	})
}
