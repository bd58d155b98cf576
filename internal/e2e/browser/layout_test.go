package browser

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// The events are below the members for every number of nodes. Otherwise, the space beside the events would be empty.
func TestNoEmptyThird(t *testing.T) {
	for _, nodes := range []int{6, 9, 12, 40} {
		f := newFake(t, nodes, 1024)
		f.set(func() { f.plain = true })
		for _, size := range [][2]int64{{1280, 800}, {1920, 1080}} {
			p := open(t, f.URL, size[0], size[1])
			p.ready(nodes)
			// Check a grid of points below the tiles and above the end of the content.
			share := eval[float64](p, `(() => {
				const end = Math.min(innerHeight, document.querySelector("footer").getBoundingClientRect().top);
				const start = document.querySelector(".columns").getBoundingClientRect().top;
				let empty = 0, all = 0;
				for (let x = 5; x < innerWidth; x += 10) for (let y = 5; y < innerHeight; y += 10) {
					all++;
					if (y > start && y < end && !document.elementFromPoint(x, y)?.closest(".card")) empty++;
				}
				return empty / all;
			})()`)
			if share > 1./3 {
				t.Errorf("%d nodes, %d wide: %.0f %% of the screen are empty", nodes, size[0], 100*share)
			}
			if !eval[bool](p, `(([v, e]) => e.top >= v.bottom && e.left === v.left && e.right === v.right)(
				["views", "log"].map(id => document.getElementById(id).getBoundingClientRect()))`) {
				t.Errorf("%d nodes, %d wide: the events are not below the members", nodes, size[0])
			}
			p.do(chromedp.Navigate("about:blank")) // it polls otherwise
		}
	}
}

// On a phone in either orientation, nothing inside the page scrolls. Long lists show only their beginning until the
// user asks for the rest.
func TestListsOfPhones(t *testing.T) {
	f := newFake(t, 40, 1024)
	for _, size := range [][2]int64{{390, 844}, {844, 390}} {
		p := open(t, "about:blank", size[0], size[1])
		p.do(chromedp.EmulateViewport(size[0], size[1], chromedp.EmulateMobile), chromedp.Navigate(f.URL))
		p.ready(40)
		for i := range 12 {
			f.join(41 + i)
			p.text("#events", fmt.Sprintf("node-%d joined", 41+i))
		}
		p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), "stand-up"+kb.Enter))
		p.text("#lookup-answer", "is pinned to")
		for _, list := range []string{"#members-body", "#events", "#lookup-answer .ranking"} {
			visible := fmt.Sprintf(`[...document.querySelector(%q).children].filter(e => e.checkVisibility()).length`, list)
			all := fmt.Sprintf(`document.querySelector(%q).children.length`, list)
			if n := eval[int](p, visible); n != 10 {
				t.Errorf("%s shows %d of %d", list, n, eval[int](p, all))
			}
			p.until("all of "+list, fmt.Sprintf(`(() => {
				const e = document.querySelector(%q), more = (e.closest(".scroll") ?? e).nextElementSibling;
				if (!e.matches(".whole") && more.checkVisibility() && more.textContent.startsWith("Show all")) more.click();
				return %s === %s;
			})()`, list, visible, all))
		}
		inner := eval[string](p, `[...document.querySelectorAll("main *")].filter(e => e.checkVisibility() && e.scrollHeight > e.clientHeight + 1 &&
			["auto", "scroll"].includes(getComputedStyle(e).overflowY)).map(e => e.id || e.className).join()`)
		if inner != "" {
			t.Errorf("%d wide: %s scroll inside of the page", size[0], inner)
		}
		for i := range 12 {
			f.leave(member(41 + i).ID)
		}
		p.do(chromedp.Navigate("about:blank"))
	}
}

// A click anywhere on a row shows the facts of its node, and the pointer indicates this. Selecting text does not count
// as a click.
func TestRowsOpen(t *testing.T) {
	_, p := show(t, 3, 64)
	for _, cell := range []string{".load", ".zone", ".name .badge"} {
		p.do(chromedp.Click(chromedp.CSS("#members-body tr:first-child "+cell)), chromedp.WaitVisible(chromedp.CSS("#node")))
		p.text("#node-title", "node-1")
		p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#node")))
	}
	if got := eval[string](p, `getComputedStyle(document.querySelector("#members-body .load")).cursor`); got != "pointer" {
		t.Errorf("the cursor over a row is %s", got)
	}
	if eval[bool](p, `(cell => {
		getSelection().selectAllChildren(cell);
		cell.click();
		return document.getElementById("node").open;
	})(document.querySelector("#members-body .load"))`) {
		t.Error("a selection of text opened the facts")
	}
}

// The footer contains the version, how long the agent has run, and links that work.
func TestFooter(t *testing.T) {
	a := agent(t, time.Minute, "node-a")
	<-a.Ready()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("roost_members 1\n")) })
	address, _ := serve(t, a, clusterhttp.Options{Metrics: metrics})
	p := open(t, address, 1440, 900)
	p.ready(1)
	p.until("for how long it has run", `/^roost · up [\d.]+ m?s$/.test(document.getElementById("about").textContent)`)
	for _, link := range []string{"Metrics", "API", "members", "partitions", "owned"} {
		status := eval[int](p, fmt.Sprintf(`(async () => {
			const link = [...document.querySelectorAll("footer a")].find(a => a.textContent === %q);
			return link.checkVisibility() ? (await fetch(link.href)).status : 0;
		})()`, link))
		if status != http.StatusOK {
			t.Errorf("%s: %d", link, status)
		}
	}
	p.clean(address)
	without, _ := serve(t, a, clusterhttp.Options{})
	p.do(chromedp.Navigate(without))
	p.text("#about", "up")
	if !eval[bool](p, `!document.querySelector("[data-needs=metrics]").checkVisibility()`) {
		t.Error("a link to metrics that this server does not have")
	}

	f, p := show(t, 3, 64)
	for version, docs := range map[string]string{"v1.4.0": "v1.4.0", "v1.4.1-0.20260102030405-abcdef012345": "main"} {
		f.set(func() { f.members[0].RoostVersion = version })
		p.text("#about", "roost · "+version+" · up 26 h")
		if got, want := eval[string](p, `document.getElementById("docs").href`), "https://github.com/roost-cluster/roost/blob/"+docs+"/docs/README.md"; got != want {
			t.Errorf("the documentation of %s is at %s", version, got)
		}
	}
}
