package clusterhttp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/lease"
)

// parameterRule says whether a parameter's value is valid. A missing parameter has the value "".
type parameterRule struct {
	name string
	good func(string) bool
}

func wholeNumber(from, to int) func(string) bool {
	return func(s string) bool {
		n, err := strconv.Atoi(s)
		return s == "" || err == nil && from <= n && n <= to
	}
}

// FuzzQuery: for every query, an endpoint returns the requested value, or a Problem that
// names the first wrong parameter.
func FuzzQuery(f *testing.F) {
	agent := solo(f, 64)
	rooms, err := affinity.Start(agent, pinstore.NewMemory(), affinity.Config{Log: quiet})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = rooms.Close() })
	if _, err := agent.Scope("all", func(*cluster.Member) bool { return true }); err != nil {
		f.Fatal(err)
	}
	h := Handler(agent, Options{Log: quiet, Rooms: rooms})
	key := parameterRule{"key", func(s string) bool { return 0 < len(s) && len(s) <= maxKey && utf8.ValidString(s) }}
	node := parameterRule{"node", func(s string) bool { return s == "" || lease.NodeID(s).Validate() == nil }}
	wait := parameterRule{"wait", func(s string) bool {
		d, err := time.ParseDuration(s)
		return s == "" || err == nil && 0 <= d && d <= maxWait
	}}
	scope := parameterRule{"scope", func(s string) bool { return s == "" || s == "all" }}
	endpoints := []struct {
		method, path, body string
		rules              []parameterRule
	}{
		{"GET", "/v1/place", "", []parameterRule{scope, key}},
		{"GET", "/v1/owners", "", []parameterRule{scope, key, {"n", wholeNumber(1, 100)}}},
		{"GET", "/v1/owned", "", []parameterRule{scope}},
		{"GET", "/v1/rooms", "", []parameterRule{node, {"limit", wholeNumber(1, 10_000)}}},
		{"GET", "/v1/rooms/x", "", []parameterRule{{"size", wholeNumber(0, pinstore.MaxSize)}}},
		{"GET", "/v1/rooms/x/relays", "", []parameterRule{{"n", wholeNumber(1, 100)}, {"size", wholeNumber(0, pinstore.MaxSize)}}},
		// The body is invalid. It is checked after the parameters, so the node never drains.
		{"POST", "/v1/drain", "[]", []parameterRule{wait, {"the body", func(string) bool { return false }}}},
		{"POST", "/v1/undrain", "[]", []parameterRule{wait, {"the body", func(string) bool { return false }}}},
		{"GET", "/v1/members", "", nil},
	}
	for _, q := range []string{
		"", "key=room-1", "key=a&n=3", "key=a&n=0", "n=1&key=%ff", "key=a;n=2", "key=a&key=b", "node=solo&limit=10", "node=%20", "limit=-1",
		"limit=1e3", "size=5", "size=1000001", "size=0x10", "size=99999999999999999999", "wait=10s", "wait=91s",
		"wait=601s", "wait=-0s", "wait=-1s", "KEY=a&key=b&Key=c", "wait=%zz", "n=+5",
		"wait=1h&wait=1s", "&&=&=a&key", "scope=all&key=a", "key=a&scope=some", "scope=all&key=a&scope=all",
		"key=a&scope=", "key=a&scope", "key=a&scope=%zz", "key=%00%0d%0a", "key=a#b", "k%65y=a",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, e := range endpoints {
			wrong, unknown := "", false
			rules := e.rules
			if _, found, _ := lookUp(query, "scope"); found && (len(rules) == 0 || rules[0].name != "scope") {
				wrong, rules = "scope does not apply", nil
			}
			for _, rule := range rules {
				value, found, ok := lookUp(query, rule.name)
				if !ok || !rule.good(value) || found && value == "" && rule.name == "scope" {
					wrong, unknown = rule.name, rule.name == "scope" && ok && value != ""
					break
				}
			}
			r := httptest.NewRequest(e.method, "http://localhost"+e.path, strings.NewReader(e.body))
			r.URL.RawQuery = query
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
				t.Fatalf("%s?%q: %d %s", e.path, query, w.Code, w.Body)
			}
			if wrong == "" && w.Code == http.StatusOK {
				continue
			}
			if unknown {
				expect(t, w, http.StatusNotFound, CodeNoScope)
				continue
			}
			var p Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || wrong == "" ||
				w.Code != http.StatusBadRequest || p.Code != CodeBadRequest || !strings.HasPrefix(p.Message, wrong) {
				t.Errorf("%s?%q: %d %s, but %q is wrong", e.path, query, w.Code, w.Body, wrong)
			}
		}
	})
}

// lookUp finds a parameter by calling url.ParseQuery for each pair. It is not ok if the parameter is malformed or
// appears twice. A semicolon is an ordinary byte.
func lookUp(query, name string) (value string, found, ok bool) {
	times := 0
	for pair := range strings.SplitSeq(strings.ReplaceAll(query, ";", "%3B"), "&") {
		before, _, _ := strings.Cut(pair, "=")
		if names, err := url.ParseQuery(before); err != nil || !names.Has(name) {
			continue
		}
		values, err := url.ParseQuery(pair)
		if err != nil {
			return "", true, false
		}
		value = values.Get(name)
		times++
	}
	return value, times > 0, times < 2
}
