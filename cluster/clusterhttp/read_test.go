package clusterhttp

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

func decoded[T any](t *testing.T, h http.Handler, target string) (v T) {
	t.Helper()
	w := do(h, "GET", target, "")
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
		t.Fatalf("%s: %d, %v: %.300s", target, w.Code, err, w.Body)
	}
	return v
}

// The API of each node returns the same as the node's agent.
func TestReadsAgreeWithAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := trio(t)
		for _, id := range c.IDs() {
			a := c.Agent(id)
			h := Handler(a, Options{Log: quiet})
			all := decoded[Partitions](t, h, "/v1/partitions")
			counts := make(map[lease.NodeID]int)
			for p, owner := range all.Owners {
				if m, _ := a.OwnerOf(placement.Partition(p)); m.ID != owner {
					t.Errorf("partition %d: %s, want %s", p, owner, m.ID)
				}
				counts[owner]++
			}
			if fmt.Sprint(counts) != fmt.Sprint(all.Counts) || all.Partitions != 64 || len(all.Owners) != 64 {
				t.Errorf("%d partitions, counts %v, want %v", all.Partitions, all.Counts, counts)
			}
			// The client can compute the table from the response.
			table, err := all.Table()
			if err != nil || table.Digest() != a.Snapshot().Digest() || !cmp.Equal(table.Nodes(), a.Snapshot().Table.Nodes()) {
				t.Errorf("%s returns a table that is read as %v of %v, %v", id, table.Digest(), table.Nodes(), err)
			}
			if owned := decoded[Owned](t, h, "/v1/owned"); fmt.Sprint(owned.Partitions) != fmt.Sprint(a.Owned()) || string(owned.Self) != id {
				t.Errorf("%s owns %v, want %v", owned.Self, owned.Partitions, a.Owned())
			}
			for i := range 100 {
				key := fmt.Sprintf("room %d?&%%", i)
				placed := decoded[Placed](t, h, "/v1/place?key="+url.QueryEscape(key))
				m, _ := a.Place(key)
				if placed.Key != key || placed.Owner.ID != m.ID || placed.Partition != a.Partition(key) || all.Owners[placed.Partition] != m.ID {
					t.Errorf("%q: %+v, want %s", key, placed, m.ID)
				}
				if placed.Digest != all.Digest || placed.Digest != a.Snapshot().Digest() {
					t.Errorf("digest %s", placed.Digest)
				}
				ranked := decoded[Ranked](t, h, "/v1/owners?n=2&key="+url.QueryEscape(key))
				want := a.Owners(key, 2)
				if len(ranked.Owners) != 2 || ranked.Owners[0].ID != want[0].ID || ranked.Owners[1].ID != want[1].ID {
					t.Errorf("%q: %+v", key, ranked)
				}
			}
		}
	})
}

// The API returns the agent's history in chronological order, with times in milliseconds.
func TestHistory(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		time.Sleep(1234567 * time.Nanosecond)
		c.Crash("b")
		time.Sleep(20 * time.Second)
		got, want := decoded[History](t, h, "/v1/history"), c.Agent("a").History()
		if got.Self != "a" || !got.Now.Equal(time.Now().Truncate(time.Millisecond)) ||
			len(got.Events) != len(want.Events) || len(got.Samples) != len(want.Samples) || len(got.Samples) < 2 {
			t.Fatalf("%+v, want %+v", got, want)
		}
		var kinds []string
		for i, e := range want.Events {
			at := e.At.Truncate(time.Millisecond).UTC()
			kinds = append(kinds, string(e.Kind))
			e.At = at
			if got.Events[i] != Event(e) {
				t.Errorf("%+v, want %+v", got.Events[i], e)
			}
		}
		if diff := cmp.Diff([]string{"started", "ready", "lost", "moved"}, kinds); diff != "" {
			t.Error(diff)
		}
		crash, samples := got.Events[2], got.Samples[len(got.Samples)-1]
		if crash.Member != "b" || crash.Reason != "crashed" || crash.Partitions == 0 || crash.Incarnation == 0 ||
			samples.Members != 2 || samples.Owned == 0 {
			t.Errorf("%+v, %+v", crash, samples)
		}
		if text := do(h, "GET", "/v1/history", "").Body.String(); !strings.Contains(text, `"kind":"lost","member":"b","incarnation":"`) ||
			!regexp.MustCompile(`"now":"[0-9T:-]{19}(\.[0-9]{1,3})?Z"`).MatchString(text) {
			t.Error(text)
		}
	})
}

// The response marks members whose table differs.
func TestMembersTellOfDivergence(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, c *clustertest.Cluster, h *api) {
		time.Sleep(5 * time.Second)
		if m := decoded[Members](t, h, "/v1/members"); !m.Converged || m.Diverged != 0 || len(m.Members) != 3 {
			t.Fatalf("%+v", m)
		}
		c.Pause("c")
		do(h, "POST", "/v1/drain?wait=3s", "")
		m := decoded[Members](t, h, "/v1/members")
		got := fmt.Sprint(m.Converged, m.Diverged)
		for _, member := range m.Members {
			got += fmt.Sprintf(" %s %v %v", member.ID, member.State, member.InSync)
		}
		if want := "false 1 a draining true b active true c active false"; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if all := decoded[Partitions](t, h, "/v1/partitions"); all.Diverged != 1 || all.Version != m.Version {
			t.Errorf("beside the table: diverged %d, version %d, want 1, %d", all.Diverged, all.Version, m.Version)
		}
		if age := m.Members[2].AgeMS; age < 2500 || age > 6000 {
			t.Errorf("the lease of a node that was paused 3 s ago is %d ms old", age)
		}
		c.Resume("c")
		time.Sleep(10 * time.Second)
	})
}

// If a response cannot be encoded as JSON, the request fails, and the next request succeeds.
func TestAnswerWithoutJSON(t *testing.T) {
	inTrio(t, Options{}, func(t *testing.T, _ *clustertest.Cluster, h *api) {
		values := []any{math.NaN(), "fine"}
		endpoint := h.open(http.StatusOK, func(http.ResponseWriter, *http.Request) (v any, _ *Problem) {
			v, values = values[0], values[1:]
			return v, nil
		})
		expect(t, do(endpoint, "GET", "/", ""), 500, CodeInternal)
		expect(t, do(endpoint, "GET", "/", ""), 200, "fine")
	})
}

// param returns the same as url.ParseQuery, for one parameter in a query without semicolons.
func FuzzParam(f *testing.F) {
	for _, q := range []string{
		"", "key=a", "key", "key=", "=key", "&&key=a&", "k%65y=a", "key=%", "%=1&key=a", "key=a&key=a",
		"key=a+b%20c", "key=a=b", "other=%zz&key=a",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, p := param(query, "key")
		if strings.Contains(query, ";") {
			return // a semicolon is an error in url.ParseQuery, but an ordinary byte in param
		}
		values, err := url.ParseQuery(query)
		switch want := values["key"]; {
		case p != nil && len(want) < 2 && err == nil:
			t.Errorf("%q: %v, but there is nothing wrong with it", query, p)
		case p == nil && len(want) > 1:
			t.Errorf("%q: %q, but there are %q", query, got, want)
		case p == nil && len(want) == 1 && got != want[0], p == nil && len(want) == 0 && got != "":
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	})
}

// For every query, the handler returns the agent's owner, or a Problem that names the parameter.
func FuzzPlace(f *testing.F) {
	agent := solo(f, 64)
	h := Handler(agent, Options{Log: quiet})
	for _, q := range []string{
		"key=room-1", "", "key=", "key=a&key=b", "key=%zz", "key=%ff", "key=a;b", "key=a&scope=", "key=a&scope=b",
		"scope=a&scope=b", "key=" + strings.Repeat("x", maxKey+1),
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/v1/place", RawQuery: query}, Header: http.Header{}, Body: http.NoBody}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case 200:
			var placed Placed
			if err := json.Unmarshal(w.Body.Bytes(), &placed); err != nil {
				t.Fatal(err)
			}
			want, _ := param(query, "key")
			if placed.Key != want || placed.Partition != agent.Partition(want) || placed.Owner.ID != "solo" {
				t.Errorf("%q: %+v", query, placed)
			}
		case 404: // it names a scope, and this node has none
			if name, _ := param(query, "scope"); name == "" {
				t.Errorf("%q: %s", query, w.Body)
			}
		case 400:
			var p Problem
			err := json.Unmarshal(w.Body.Bytes(), &p)
			if err != nil || p.Code != CodeBadRequest || !strings.HasPrefix(p.Message, "key") && !strings.HasPrefix(p.Message, "scope") {
				t.Errorf("%q: %v, %+v", query, err, p)
			}
		default:
			t.Errorf("%q: %d %s", query, w.Code, w.Body)
		}
	})
}

// sink is a response writer with minimal cost.
type sink struct {
	header http.Header
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// BenchmarkPlace compares a lookup with a constant response. Unlike BenchmarkServe, it has no connection.
func BenchmarkPlace(b *testing.B) {
	api := Handler(solo(b, 1024), Options{})
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"bare", constant(do(api, "GET", "/v1/place?key=room-1", "").Body.Bytes())}, {"place", api}} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("GET", "http://localhost/v1/place?key=room-1", nil)
			w := &sink{header: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				c.h.ServeHTTP(w, r)
			}
		})
	}
}

// A valid body is one JSON object with known fields. For any other body, the caller gets a Problem of one line.
func FuzzBody(f *testing.F) {
	for _, b := range []string{
		"", "{}", `{"size":3}`, `{"size":-1}`, `{"size":1e99}`, `{"size":"3"}`, `{"touch":1}`, `{"more":1}`,
		`{}{}`, `[]`, "null", "{", "\xff",
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/rooms", bytes.NewReader(b))
		r.Header.Set("Content-Type", "application/json")
		var d roomDemand
		switch p := decode(r, &d); {
		case p == nil && len(b) > 0 && !json.Valid(b):
			t.Errorf("%q is taken", b)
		case p != nil && (p.Status < 400 || p.Status >= 500 || strings.ContainsAny(p.Message, "\r\n\x1b")):
			t.Errorf("%q: %+v", b, p)
		}
		_ = checkDemand(d.Demand)
	})
}

// A large response is compressed if the client accepts that. A small response is not compressed, nor is any response
// while all compressors are busy.
func TestCompressedAnswers(t *testing.T) {
	h := newAPI(solo(t, 16_384), Options{Log: quiet})
	const large, small = "/v1/partitions", "/v1/place?key=k"
	plain := do(h, "GET", large, "").Body.Bytes()
	if len(plain) < 100_000 {
		t.Fatalf("%d bytes are not much", len(plain))
	}
	for accept, want := range map[string]bool{
		"gzip": true, "deflate, GZip;q=0.5": true, "gzip ; q=1": true, "br,gzip": true,
		"gzip;q=0": false, "gzip; q=0.000": false, "gzip;q=x": false, "identity": false, "*": false, "": false, "xgzip": false,
	} {
		w := do(h, "GET", large, "", "Accept-Encoding: "+accept)
		got := w.Body.Bytes()
		if (w.Header().Get("Content-Encoding") == "gzip") != want || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %v", accept, w.Header())
			continue
		}
		if want {
			if len(got) > len(plain)/10 {
				t.Errorf("%d bytes of %d", len(got), len(plain))
			}
			r, err := gzip.NewReader(bytes.NewReader(got))
			if err != nil {
				t.Fatal(err)
			}
			if got, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, plain) {
			t.Errorf("%q: another answer", accept)
		}
	}
	if w := do(h, "GET", small, "", "Accept-Encoding: gzip"); w.Header().Get("Content-Encoding") != "" || w.Header().Get("Vary") != "" {
		t.Errorf("a small answer has %v", w.Header())
	}
	h = newAPI(h.agent, Options{Log: quiet}) // a new API, because h keeps compressed responses
	for range cap(h.compressors) {
		<-h.compressors
	}
	if w := do(h, "GET", large, "", "Accept-Encoding: gzip"); !bytes.Equal(w.Body.Bytes(), plain) || w.Header().Get("Content-Encoding") != "" {
		t.Errorf("in a rush: %v", w.Header())
	}
}
