package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// chromium is a browser that all tests share. The first test with a page starts it.
var chromium struct {
	once sync.Once
	ctx  context.Context
	err  error
}

// atEnd contains functions that clean up after the last test.
var atEnd []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	os.Exit(code)
}

// inputs reads files of the examples, so that go test does not use a cached result after these files change. go test
// only considers files below the module, so testdata/examples is a link.
func inputs(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob("testdata/examples/" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// timeout limits each step, even on a busy machine.
const timeout = 2 * time.Minute

// tab is a page in the browser, with a record of its requests and console messages.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // console messages
	requests []string // URLs
}

// open opens a page with its own browser profile, in a window of the given size.
func open(t *testing.T, address string, width, height int64) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	chromium.once.Do(start)
	if chromium.err != nil {
		t.Fatalf("chromium (scripts/deps.sh installs it): %v", chromium.err)
	}
	return openIn(chromium.ctx, t, address, width, height, chromedp.WithNewBrowserContext())
}

// another opens the page in another window of the same profile.
func (p *tab) another(address string) *tab {
	p.t.Helper()
	return openIn(p.ctx, p.t, address, 1440, 900)
}

func openIn(parent context.Context, t *testing.T, address string, width, height int64, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, options...)
	t.Cleanup(cancel)
	p := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	console := chromedp.Console(ctx)
	go func() {
		for m, err := range console {
			if err != nil {
				return
			}
			p.mu.Lock()
			p.problems = append(p.problems, fmt.Sprintf("%s %s %s", m.Type, m.Text, m.URL))
			p.mu.Unlock()
		}
	}()
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(address))
	return p
}

// show opens the page of a fake agent, and waits for its members.
func show(t *testing.T, nodes, partitions int) (*fake, *tab) {
	t.Helper()
	f := newFake(t, nodes, partitions)
	p := open(t, f.URL, 1440, 900)
	p.ready(nodes)
	return f, p
}

func start() {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath("chromium"),
		chromedp.NoSandbox, // the sandbox does not work for root in a container
		chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
		chromedp.Flag("proxy-server", "direct://"))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(ctx)
	chromium.ctx, atEnd = ctx, append(atEnd, end, stop)
	chromium.err = chromedp.Do(ctx)
}

func (p *tab) hear(event any) {
	if r, ok := event.(*network.EventRequestWillBeSent); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests = append(p.requests, r.Request.URL)
	}
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// press presses Enter on a control. A click needs coordinates, so it misses a control that moves when the page shows
// the next response.
func press(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(selector), kb.Enter)
}

// eval runs a script and returns its value.
func eval[T any](p *tab, script string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%v in %s", err, script)
	}
	return v
}

// until waits until a script returns true.
func (p *tab) until(what, script string) {
	p.t.Helper()
	for deadline := time.Now().Add(timeout); !eval[bool](p, script); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("not seen: %s\n%s", what, eval[string](p, "document.body.innerText"))
		}
	}
}

// ready waits until the page shows this number of members, and receives events.
func (p *tab) ready(members int) {
	p.t.Helper()
	p.until("it is live", fmt.Sprintf(`document.querySelectorAll("#members-body tr:not(.gone)").length === %d &&
		document.getElementById("link").dataset.state === "live"`, members))
}

// seeMap shows the partition map.
func (p *tab) seeMap() {
	p.t.Helper()
	p.do(press("#tab-map"), chromedp.WaitVisible(chromedp.CSS("#map-canvas")))
}

// text waits until an element contains a text.
func (p *tab) text(selector, part string) {
	p.t.Helper()
	p.until(part, fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, part))
}

// clean fails the test if the page logged an error, or sent a request to another origin.
func (p *tab) clean(origin string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.problems {
		p.t.Errorf("console: %s", f)
	}
	want, _ := url.Parse(origin)
	for _, r := range p.requests {
		if u, err := url.Parse(r); err != nil || u.Host != want.Host || u.Scheme != want.Scheme {
			p.t.Errorf("request to %s", r)
		}
	}
	if len(p.requests) < 10 {
		p.t.Errorf("only %d requests were seen", len(p.requests))
	}
}
