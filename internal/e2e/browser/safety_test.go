package browser

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster/clusterhttp/dashboard"
)

// The content security policy is in force: the browser does not run an injected script or markup that a script wrote,
// and sends no request to another origin.
func TestPolicy(t *testing.T) {
	f := newFake(t, 3, 64)
	page := dashboard.Handler(dashboard.Info{})
	injecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			page.ServeHTTP(w, r)
			return
		}
		plain := httptest.NewRecorder()
		page.ServeHTTP(plain, r)
		maps.Copy(w.Header(), plain.Header())
		const scripts = `<script>window.hacked = "inline"</script>` +
			`<img src="none.png" onerror="window.hacked = 'handler'">` +
			`<a id="trap" href="javascript:window.hacked='link'">x</a>`
		_, _ = io.WriteString(w, strings.Replace(plain.Body.String(), "<header", scripts+"<header", 1))
	}))
	defer injecting.Close()
	p := open(t, "about:blank", 1440, 900)
	p.do(chromedp.Navigate(injecting.URL+"/?"), chromedp.WaitReady(chromedp.CSS("#trap")))
	p.until("the page's own scripts run", `document.querySelectorAll("#members-head button").length > 0`)
	const click = `new Promise(done => {
		document.addEventListener("securitypolicyviolation", () => done(String(window.hacked)), { once: true });
		document.getElementById("trap").click();
	})`
	if got := eval[string](p, click); got != "undefined" {
		t.Errorf("injected code ran: %s", got)
	}

	// The following checks use the unmodified page.
	p.do(chromedp.Navigate(f.URL))
	p.ready(3)
	const inline = `[...document.scripts].filter(s => !s.src).length +
		document.querySelectorAll("[style]:not(.swatch, tr, td, canvas, .tip, .cursor, .meter)").length`
	if n := eval[int](p, inline); n != 0 {
		t.Errorf("%d inline scripts or styles", n)
	}
	for what, script := range map[string]string{
		"markup": `try {
			document.body.insertAdjacentHTML("beforeend", "<img src=x onerror=hacked()>"); "was read"
		} catch (e) { "refused" }`,
		"another origin":  `violation("connect-src", fetch("http://127.0.0.1:1/"))`,
		"another's image": `violation("img-src", (() => { const i = new Image(); i.src = "http://127.0.0.1:1/x.png"; return i.decode(); })())`,
	} {
		const violation = `var violation = (directive, tried) => new Promise(done => {
			const violated = e => done(e.effectiveDirective === directive ? "refused" : e.effectiveDirective);
			document.addEventListener("securitypolicyviolation", violated, { once: true });
			const failed = () => setTimeout(done, 5000, "it was tried");
			tried.then(failed, failed);
		}); `
		if got := eval[string](p, violation+script); got != "refused" {
			t.Errorf("%s: %s", what, got)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	refused := 0
	for _, problem := range p.problems {
		if strings.Contains(problem, "Content Security Policy") {
			refused++
		}
	}
	if refused < 3 { // the script, the handler and the link
		t.Errorf("not refused: %q", p.problems)
	}
}

// Untrusted values are shown as plain text: the id, zone and labels of a node, a key, a room, and reasons that the
// agent gives.
func TestHostile(t *testing.T) {
	const evil = `<img src=x onerror=hacked()><script>hacked()</script>`
	f := newFake(t, 3, 64, "node-3", evil, "eu-a", evil+"zone", "r3", evil, "no headroom", evil)
	p := open(t, f.URL, 1440, 900)
	eval[any](p, `window.hacked = () => { window.was = "hacked" }; 1`)
	p.ready(3)
	p.text("#members-body .id", evil)
	p.text("#members-body .zone", evil+"zone")
	p.seeMap()
	p.text("#legend", evil)
	p.text("#map-focus", evil)
	p.do(chromedp.SendKeys(chromedp.CSS("#lookup-name"), evil+kb.Enter))
	p.text("#lookup-answer q", evil)
	p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), `"/../`+kb.Enter))
	p.text("#lookup-answer q", evil+`"/../`)
	p.text("#lookup-answer .because", evil)
	f.leave("node-3")
	p.text("#events", evil+" left")
	got := eval[string](p, `String(window.was) + document.querySelectorAll("img, script").length`)
	if got != "undefined3" { // the brand and two scripts
		t.Errorf("got %s", got)
	}
	p.clean(f.URL)
}
