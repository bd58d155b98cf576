package httpproxy_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// owners is a table of owners that tests can change.
type owners struct {
	mu sync.Mutex
	at map[string]string
}

// move moves the key "a" to another address.
func (o *owners) move(addr string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.at["a"] = addr
}

// keyAt returns a table in which addr owns the key "a".
func keyAt(addr string) *owners { return &owners{at: map[string]string{"a": addr}} }

func (o *owners) place(key string) (string, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if addr, ok := o.at[key]; ok {
		return addr, addr == "here", nil
	}
	return "", false, errors.New("no table yet")
}

// server runs a handler on a free port, and returns the address.
func server(t *testing.T, h http.HandlerFunc) (addr string, srv *httptest.Server) {
	t.Helper()
	srv = httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), srv
}

// newProxy returns a proxy whose keys are the rooms in the paths.
func newProxy(tb testing.TB, place httpproxy.Place, change func(*httpproxy.Config)) *httpproxy.Proxy {
	tb.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	tb.Cleanup(transport.CloseIdleConnections)
	cfg := httpproxy.Config{Place: place, Key: httpproxy.FromPath(2), Transport: transport, Log: quiet}
	if change != nil {
		change(&cfg)
	}
	p, err := httpproxy.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// by returns a change that makes a proxy send requests with the given transport.
func by(send transport) func(*httpproxy.Config) {
	return func(c *httpproxy.Config) { c.Transport = send }
}

// proxyOf runs a proxy, and returns its URL.
func proxyOf(t *testing.T, o *owners, change func(*httpproxy.Config)) string {
	t.Helper()
	srv := httptest.NewServer(newProxy(t, o.place, change))
	t.Cleanup(srv.Close)
	return srv.URL
}

// ask sends a request, and returns the status, the body and the headers of the response.
func ask(t *testing.T, method, url, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// named returns a handler that responds with a name and with what it has received.
func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %q hops %s for %s", name, r.Method, r.URL, b, r.Header.Get("Roost-Hops"), r.Header.Get("X-Forwarded-For"))
	}
}

// The proxy sends a request to the owner of its key, without changing the request.
func TestProxies(t *testing.T) {
	one, _ := server(t, named("one"))
	two, _ := server(t, named("two"))
	o := &owners{at: map[string]string{"a": one, "b/c": "http://" + two, "lost": "", "strange": "ftp://x"}}
	url := proxyOf(t, o, func(c *httpproxy.Config) { c.RetryTimeout = -1 })
	for path, want := range map[string]string{
		"/rooms/a?x=%20y":   `200 one POST /rooms/a?x=%20y "body" hops 1 for 127.0.0.1`,
		"/rooms/b%2Fc/join": `200 two POST /rooms/b%2Fc/join "body" hops 1 for 127.0.0.1`,
		"/rooms/none":       "503 no server accepts the request now: no table yet\n",
		"/rooms/lost":       "503 no server accepts the request now: the owner has no address: start its agent with --api-addr\n",
		"/rooms/strange":    "503 no server accepts the request now: the owner's address \"ftp://x\" is neither host:port nor a URL\n",
		"/rooms":            "400 the path has no segment 2, which names the key\n",
	} {
		status, body, header := ask(t, http.MethodPost, url+path, "body")
		if got := fmt.Sprint(status, " ", body); got != want || (status == 503) != (header.Get("Retry-After") != "") {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
}

// The proxy keeps the protocol and the host that a server in front of it has set, and adds the client's address.
func TestForwarded(t *testing.T) {
	addr, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Proto"], r.Header["X-Forwarded-Host"], r.Host)
	})
	url := proxyOf(t, keyAt(addr), nil)
	for _, behind := range []bool{true, false} {
		r := httptest.NewRequest(http.MethodGet, url+"/rooms/a", nil)
		r.RequestURI, r.Host = "", "media.example.org"
		want := "[127.0.0.1] [http] [media.example.org]media.example.org"
		if behind {
			r.Header = http.Header{"X-Forwarded-For": {"192.0.2.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"public.example.org"}}
			want = "[192.0.2.1, 127.0.0.1] [https] [public.example.org]media.example.org"
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(b) != want {
			t.Errorf("got %s, want %s", b, want)
		}
	}
}

// If a request may be sent again, it reaches the next owner of its key. Otherwise, the proxy sends it only once.
func TestRetries(t *testing.T) {
	down := func(t *testing.T, _ *atomic.Int64) string { // nobody listens
		addr, srv := server(t, named("down"))
		srv.Close()
		return addr
	}
	misdirected := func(t *testing.T, asked *atomic.Int64) string {
		addr, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			http.Error(w, "not mine", http.StatusMisdirectedRequest)
		})
		return addr
	}
	breaks := func(t *testing.T, asked *atomic.Int64) string { // the server receives the request, and then closes the connection
		addr, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			breakOff(w)
		})
		return addr
	}
	long := strings.Repeat("x", 1<<17)
	for name, tt := range map[string]struct {
		first  func(*testing.T, *atomic.Int64) string
		method string
		body   string
		status int
		once   bool
	}{
		"down, GET":              {down, "GET", "", 200, false},
		"down, POST":             {down, "POST", "body", 200, false},
		"down, long POST":        {down, "POST", long, 200, false},
		"misdirected, GET":       {misdirected, "GET", "", 200, false},
		"misdirected, POST":      {misdirected, "POST", "body", 200, false},
		"misdirected, long POST": {misdirected, "POST", long, 421, true},
		"breaks, GET":            {breaks, "GET", "", 200, false},
		"breaks, PUT":            {breaks, "PUT", "body", 200, false},
		"breaks, POST":           {breaks, "POST", "body", 502, true},
		"breaks, POST without":   {breaks, "POST", "", 502, true},
		"breaks, PATCH":          {breaks, "PATCH", "body", 502, true},
		"breaks, long PUT":       {breaks, "PUT", long, 502, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			o := keyAt(tt.first(t, &asked))
			next, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				_, _ = fmt.Fprint(w, r.Method, len(b))
			})
			move := time.AfterFunc(100*time.Millisecond, func() { o.move(next) })
			defer move.Stop()
			status, body, _ := ask(t, tt.method, proxyOf(t, o, nil)+"/rooms/a", tt.body)
			if status != tt.status || status == 200 && body != fmt.Sprint(tt.method, len(tt.body)) {
				t.Errorf("%d %s", status, body)
			}
			if n := asked.Load(); tt.once && n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// A server rejects a request, but does not finish its response. The proxy does not wait for the rest of the response.
func TestStalledRejection(t *testing.T) {
	t.Parallel()
	stalled, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusMisdirectedRequest)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	next, _ := server(t, named("next"))
	o := keyAt(stalled)
	move := time.AfterFunc(100*time.Millisecond, func() { o.move(next) })
	defer move.Stop()
	if status, body, _ := ask(t, "GET", proxyOf(t, o, nil)+"/rooms/a", ""); status != 200 || !strings.HasPrefix(body, "next") {
		t.Errorf("%d %s", status, body)
	}
}

// If another server has forwarded an upload, the temporary files of the upload are still removed after Local returns.
func TestUploadSentOn(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	files := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	var kept int
	url := proxyOf(t, keyAt("here"), func(c *httpproxy.Config) {
		c.Local = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if err := r.ParseMultipartForm(1); err != nil {
				t.Error(err)
			}
			kept = files()
		})
	})
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "file")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, 11<<20)) // a request may keep 10 MB more in memory than Local allows
	_ = w.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/rooms/a", &form)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Roost-Hops", "1")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if kept != 1 {
		t.Errorf("%d files of an upload", kept)
	}
	redistest.Until(t, "no file is left", func() bool { return files() == 0 })
}

// breakOff closes the connection of a request without a response.
func breakOff(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// If a request crashes its server or makes its handler panic, the proxy sends it three times in total, even if its key
// moves between servers.
func TestDeadlyRequest(t *testing.T) {
	for name, moves := range map[string]bool{"one server": false, "server after server": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			o, servers := keyAt(""), make([]string, 5)
			for i := range servers {
				servers[i], _ = server(t, func(w http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					if moves {
						o.move(servers[(i+1)%len(servers)])
					}
					breakOff(w)
				})
			}
			o.move(servers[0])
			if status, body, _ := ask(t, "GET", proxyOf(t, o, nil)+"/rooms/a", ""); status != 502 || asked.Load() != 3 {
				t.Errorf("%d %s after %d runs", status, body, asked.Load())
			}
		})
	}
}

// If the owner does not come back, the proxy gives up on the request after RetryTimeout.
func TestRetryTimeout(t *testing.T) {
	addr, srv := server(t, named("down"))
	srv.Close()
	began := time.Now()
	status, body, _ := ask(t, "GET",
		proxyOf(t, keyAt(addr), func(c *httpproxy.Config) { c.RetryTimeout = 300 * time.Millisecond })+"/rooms/a",
		"")
	if took := time.Since(began); status != 503 || !strings.Contains(body, "connection refused") || took < 200*time.Millisecond {
		t.Errorf("%d %s after %v", status, body, took)
	}
}

// disagreeing are two servers, each with a proxy as middleware. Each server's table names the other server as the
// owner.
type disagreeing struct {
	url    string
	tables [2]*owners
	addrs  [2]string

	mu   sync.Mutex
	hops map[string]int // number of requests for each value of Roost-Hops
}

func disagree(t *testing.T, timeout time.Duration) *disagreeing {
	t.Helper()
	d := &disagreeing{hops: make(map[string]int)}
	var handlers [2]http.Handler
	for i := range handlers {
		d.addrs[i], _ = server(t, func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			d.hops[r.Header.Get("Roost-Hops")]++
			d.mu.Unlock()
			handlers[i].ServeHTTP(w, r)
		})
	}
	for i := range handlers {
		d.tables[i] = keyAt(d.addrs[1-i])
		place := func(key string) (string, bool, error) {
			addr, _, err := d.tables[i].place(key)
			return addr, addr == d.addrs[i], err
		}
		handlers[i] = newProxy(t, place, func(c *httpproxy.Config) {
			c.Local, c.RetryTimeout = named(fmt.Sprint("server ", i)), timeout
		})
	}
	d.url = "http://" + d.addrs[0]
	return d
}

// For a moment, the tables of two servers name each other as the owner. A request is forwarded only a few times in each
// attempt, and only the first proxy sends it again. The request succeeds once the tables agree.
func TestServersDisagree(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		for owner := range 2 {
			t.Run(fmt.Sprint(method, " of server ", owner), func(t *testing.T) {
				t.Parallel()
				d := disagree(t, 5*time.Second)
				agree := time.AfterFunc(300*time.Millisecond, func() { d.tables[owner].move(d.addrs[owner]); d.tables[1-owner].move(d.addrs[owner]) })
				defer agree.Stop()
				status, body, _ := ask(t, method, d.url+"/rooms/a", "body")
				if status != 200 || !strings.HasPrefix(body, fmt.Sprintf("server %d %s", owner, method)) || !strings.Contains(body, "hops  for") {
					t.Errorf("%d %s", status, body)
				}
			})
		}
	}
}

// If the servers never agree, they reject the request.
func TestLoop(t *testing.T) {
	t.Parallel()
	d := disagree(t, time.Second)
	status, body, _ := ask(t, "GET", d.url+"/rooms/a", "")
	if status != http.StatusMisdirectedRequest || !strings.Contains(body, "forwarded 3 times") {
		t.Errorf("%d %s", status, body)
	}
	tries := d.hops["1"]
	if want := map[string]int{"": 1, "1": tries, "2": tries, "3": tries}; tries < 2 || tries > 20 || !maps.Equal(d.hops, want) {
		t.Errorf("requests by hops: %v, want %v", d.hops, want)
	}
	r := httptest.NewRequest(http.MethodGet, "/rooms/a", nil)
	r.Header.Set("Roost-Hops", "-1")
	w := httptest.NewRecorder()
	if newProxy(t, d.tables[0].place, nil).ServeHTTP(w, r); w.Code != http.StatusMisdirectedRequest {
		t.Errorf("a made-up number of hops: %d", w.Code)
	}
}

// With Local and Redirect, a server handles requests for its own keys, and redirects all others.
func TestLocalAndRedirect(t *testing.T) {
	o := &owners{at: map[string]string{"mine": "here", "theirs": "media-2.example.org:9000"}}
	url := proxyOf(t, o, func(c *httpproxy.Config) { c.Local, c.Redirect, c.Scheme = named("local"), true, "https" })
	if status, body, _ := ask(t, "PUT", url+"/rooms/mine", "x"); status != 200 || !strings.HasPrefix(body, `local PUT /rooms/mine "x"`) {
		t.Errorf("%d %s", status, body)
	}
	status, _, header := ask(t, "PUT", url+"/rooms/theirs?a=b", "x")
	want := "https://media-2.example.org:9000/rooms/theirs?a=b"
	if status != 307 || header.Get("Location") != want || header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v", status, header)
	}
}

// The proxy passes on WebSocket messages and events as they arrive.
func TestStreams(t *testing.T) {
	addr, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "data: one\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = buffered.Flush()
		_, _ = io.Copy(conn, buffered)
	})
	url := strings.TrimPrefix(proxyOf(t, keyAt(addr), nil), "http://")
	for upgrade, want := range map[string]string{"": "data: one\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n": "ping\n"} {
		conn, err := net.Dial("tcp", url)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET /rooms/a HTTP/1.1\r\nHost: x\r\n%s\r\n", upgrade)
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the connection is closed
		if err != nil {
			t.Fatal(err)
		}
		body := io.Reader(resp.Body)
		if upgrade != "" {
			_, _ = fmt.Fprint(conn, "ping\n")
			body = in
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if line, err := bufio.NewReader(body).ReadString('\n'); line != want || err != nil {
			t.Errorf("got %d %q, %v; want %q", resp.StatusCode, line, err, want)
		}
		_ = conn.Close()
	}
}

// A key can come from different parts of a request. If a request has no key, the function returns an error.
func TestKeys(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/rooms/a%2Fb/x?room=q", nil)
	r.Header.Set("X-Room", "h")
	r.AddCookie(&http.Cookie{Name: "room", Value: "c"})
	for text, want := range map[string]string{
		"path:1": "rooms", "path:2": "a/b", "query:room": "q", "header:X-Room": "h", "cookie:room": "c",
	} {
		key, err := httpproxy.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := key(r); got != want || err != nil {
			t.Errorf("%s: %q, %v", text, got, err)
		}
		if got, err := key(httptest.NewRequest(http.MethodGet, "/", nil)); got != "" || err == nil {
			t.Errorf("%s of a request without one: %q", text, got)
		}
	}
	for _, text := range []string{"", "path", "path:0", "path:x", "query", "query:", "body:x"} {
		if _, err := httpproxy.ParseKey(text); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
	for _, cfg := range []httpproxy.Config{
		{},
		{Place: (&owners{}).place, Key: httpproxy.FromPath(1), Scheme: "ftp"},
		{Place: (&owners{}).place, Key: httpproxy.FromPath(1), Hops: -1},
	} {
		if _, err := httpproxy.New(cfg); err == nil {
			t.Errorf("%+v is valid", cfg)
		}
	}
}
