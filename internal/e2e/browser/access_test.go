package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/lease"
)

// On a page with all its parts visible, every control has a name, there are landmarks, and all text has enough contrast
// in both themes.
func TestAccess(t *testing.T) {
	f := newFake(t, 12, 128)
	f.change(func() {
		m := &f.members[0] // the page's own
		f.stats.Evacuation = &affinity.Evacuation{Left: 40, Moved: 60, Failed: 2, Why: "no node has capacity for the room"}
		m.State, m.InSync, m.ClockOffsetMS, m.AgeMS, m.Load = lease.Draining, false, 1400, 5900, 2*m.Capacity
	})
	p := open(t, f.URL, 1440, 900)
	p.ready(12)
	p.text("#health-found .fix", "raise Partitions")
	p.text("#evacuation-note", "40 left, 60 moved, 2 cannot move")
	f.leave("node-3")
	p.text("#events", "left")
	p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), "stand-up"+kb.Enter))
	p.text("#lookup-answer", "is pinned to")
	p.do(press("#lookup-answer summary"))
	p.text("#lookup-answer .relays", "node-")
	p.seeMap()
	p.text("#legend", "node-12")
	eval[any](p, `for (const e of document.querySelectorAll("[role=tabpanel]")) e.hidden = false;
		document.getElementById("token-box").open = true;
		document.getElementById("stale").hidden = false;
		document.getElementById("stale").textContent = "Not connected."; 1`)

	tree, err := chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	named := []string{
		"button", "link", "textbox", "searchbox", "combobox", "spinbutton", "image", "application", "region",
		"table", "tab", "tablist", "tabpanel", "DisclosureTriangle", "dialog",
	}
	seen := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := strings.Trim(string(n.Role.Value), `"`)
		seen[role]++
		if slices.Contains(named, role) && (n.Name == nil || strings.Trim(string(n.Name.Value), `" `) == "") {
			t.Errorf("a %s without a name: %+v", role, n.Properties)
		}
	}
	for role, n := range map[string]int{"banner": 1, "main": 1, "contentinfo": 1, "table": 1, "row": 12, "button": 20} {
		if seen[role] < n {
			t.Errorf("%d of %s, want %d: %v", seen[role], role, n, seen)
		}
	}
	for what, script := range map[string]string{
		"ids given twice":      `[...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i).join()`,
		"first-level headings": `document.querySelectorAll("h1").length === 1 ? "" : "not one"`,
		"positive tabindex":    `[...document.querySelectorAll("[tabindex]")].filter(e => e.tabIndex > 0).map(e => e.id).join()`,
		"references to nothing": `["aria-labelledby", "aria-describedby", "for"]
			.flatMap(a => [...document.querySelectorAll("[" + a + "]")].map(e => e.getAttribute(a)))
			.filter(id => !document.getElementById(id)).join()`,
		"state in colour alone": `[...document.querySelectorAll("tbody .state")]
			.filter(e => !/(active|draining)/.test(e.textContent)).map(e => e.textContent).join()`,
		"language": `document.documentElement.lang === "en" ? "" : "none"`,
		"chips that say no state": `[...document.querySelectorAll(".chip")]
			.filter(e => !e.hasAttribute("aria-pressed")).map(e => e.textContent).join()`,
		"column that is sorted by": `document.querySelectorAll("th[aria-sort]").length === 1 ? "" : "not one"`,
	} {
		if got := eval[string](p, script); got != "" {
			t.Errorf("%s: %s", what, got)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		media(p, "prefers-color-scheme", theme)
		if got := eval[string](p, contrast); got != "" {
			t.Errorf("too little contrast in %s:\n%s", theme, got)
		}
	}
	p.text("#lookup-said", "is pinned to")

	// The user can override the system's theme, which is dark at this point.
	const choose = `(() => { const s = document.getElementById("theme"); s.value = %q; s.dispatchEvent(new Event("change"));
		return getComputedStyle(document.body).colorScheme + " " + localStorage.getItem("roost-theme"); })()`
	for _, theme := range []string{"light", "dark"} {
		if got := eval[string](p, fmt.Sprintf(choose, theme)); got != theme+" "+theme {
			t.Errorf("the theme is %s, want %s", got, theme)
		}
	}
	if got := eval[string](p, fmt.Sprintf(choose, "")); got != "light dark " {
		t.Errorf("the system's theme is %q", got)
	}
	p.clean(f.URL)
}

// contrast lists the texts with a contrast below 4.5 to 1 (WCAG 2.1, 1.4.3), except large
// text and disabled controls.
const contrast = `(() => {
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (color) => {
		canvas.clearRect(0, 0, 1, 1);
		canvas.fillStyle = color;
		canvas.fillRect(0, 0, 1, 1);
		return [...canvas.getImageData(0, 0, 1, 1).data];
	};
	const ground = (e) => {
		for (; e; e = e.parentElement) {
			const c = rgba(getComputedStyle(e).backgroundColor);
			if (c[3] === 255) return c;
		}
		return [255, 255, 255];
	};
	const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
		const v = c[i] / 255;
		return sum + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	}, 0);
	const low = [];
	for (const e of document.body.querySelectorAll("*")) {
		const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
		if (!own || !e.checkVisibility() || e.closest(":disabled, .hide, noscript, option")) continue;
		const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) low.push(ratio.toFixed(2) + " " + e.textContent.slice(0, 40));
	}
	return low.join("\n");
})()`

func media(p *tab, name, value string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: name, Value: value}},
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// The page can be used with the keyboard only: the map announces the partition under its cursor, a heading sorts, and
// the focus is visible.
func TestKeyboard(t *testing.T) {
	f, p := show(t, 12, 256)
	reached := map[string]int{}
	visit := func() {
		for range 40 {
			p.do(chromedp.KeyEvent(kb.Tab))
			at := eval[string](p, `(() => { const e = document.activeElement, s = getComputedStyle(e);
				if (e === document.body) return "";
				const unseen = s.outlineStyle === "none" || parseFloat(s.outlineWidth) < 1;
				return (e.id || e.textContent) + (unseen ? " unseen" : ""); })()`)
			if strings.HasSuffix(at, " unseen") {
				t.Errorf("the focus is invisible on %s", at)
			}
			reached[at]++
			switch at {
			case "map-canvas":
				p.do(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.End))
				p.text("#map-said", "Partition ")
				p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#map-tip")))
			case "Node": // the heading of the first column
				for range 6 {
					p.do(chromedp.KeyEvent(kb.ArrowRight))
				}
				p.do(chromedp.KeyEvent(kb.Enter))
				p.until("sorted, the greatest first", `(() => {
					const n = [...document.querySelectorAll("tbody .partitions")].map(e => parseInt(e.textContent));
					return n.length === 12 && n.every((v, i) => i === 0 || v <= n[i - 1]) &&
						document.querySelector("[data-column=partitions]").ariaSort === "descending"; })()`)
				p.do(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.Enter))
			case "drain":
				return
			}
		}
	}
	visit()
	for _, want := range []string{
		"Skip to the content", "theme", "tab-members", "Node", "members-filter", "node-1", "lookup-name",
		"Look up", "events", "drain",
	} {
		if reached[want] != 1 {
			t.Errorf("the keyboard stops %d times at %s", reached[want], want)
		}
	}
	if n := reached["node-2"] + reached["State"] + reached["tab-map"]; n != 0 {
		t.Errorf("a group of controls has more than one stop: %v", reached)
	}

	// Enter on a row shows the facts of its node, and Escape returns to the row.
	eval[any](p, `document.querySelector("#members-body [tabindex='0']").focus(); 1`)
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("#node")))
	p.text("#node-title", "node-2")
	p.text("#node-facts", "rack=r2")
	p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#node")))
	p.until("the focus is back", `document.activeElement.textContent === "node-2"`)

	// The arrow keys change the tab. On the map, nodes are sorted by zone and name.
	eval[any](p, `document.getElementById("tab-members").focus(); 1`)
	p.do(chromedp.KeyEvent(kb.ArrowRight), chromedp.WaitVisible(chromedp.CSS("#map-canvas")))
	p.text("#legend", "node-11")
	reached = map[string]int{}
	visit()
	if reached["map-canvas"] != 1 || reached["map-focus"] != 1 {
		t.Errorf("the keyboard does not reach the map: %v", reached)
	}
	for key, owner := range map[string]string{"Home": "node-3", "End": "node-11"} { // the first of eu-a, the last of eu-c
		p.until(owner, fmt.Sprintf(`(() => {
			document.getElementById("map-canvas").dispatchEvent(new KeyboardEvent("keydown", { key: %q }));
			return document.getElementById("map-tip").textContent.endsWith(": %s"); })()`, key, owner))
	}
	p.clean(f.URL)
}

// Nothing is animated if the user prefers reduced motion.
func TestReducedMotion(t *testing.T) {
	for motion, want := range map[string]bool{"no-preference": true, "reduce": false} {
		f := newFake(t, 4, 256)
		p := open(t, f.URL, 1440, 900)
		media(p, "prefers-reduced-motion", motion)
		p.ready(4)
		p.seeMap()
		f.leave("node-3")
		p.text("#map-moved", "moved within the last minute")
		if got := eval[bool](p, "document.getAnimations().length > 0"); got != want {
			t.Errorf("%s: animated: %v", motion, got)
		}
	}
}

// On a phone no element is wider than the screen, even with the longest ids.
func TestNarrow(t *testing.T) {
	long := strings.Repeat("w", 58)
	f := newFake(t, 30, 1024, "node-", long)
	for _, width := range []int64{390, 320} {
		p := open(t, "about:blank", width, 844)
		p.do(chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile), chromedp.Navigate(f.URL))
		p.ready(30)
		p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), long+kb.Enter))
		p.text("#lookup-answer", "is pinned to")
		p.do(press("#lookup-answer summary"))
		p.text("#lookup-answer .relays", long)
		f.join(31)
		p.text("#events", long+"31 joined")
		f.leave("node-31")
		p.text("#events", long+"31 left")
		p.until("nothing covers a name", `(b => {
			b.scrollIntoView({block: "center"});
			const r = b.getBoundingClientRect();
			return b.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2));
		})(document.querySelector("#members-body .name button"))`)
		p.do(press("#members-body .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
		wide := fmt.Sprintf(`[...document.querySelectorAll("body *")].filter(e =>
			e.checkVisibility() && !e.closest(".hide, .skip, #self") && e.getBoundingClientRect().right > %d
		).map(e => e.outerHTML.slice(0, 120)).join("\n")`, width)
		if got := eval[string](p, wide); got != "" || eval[int64](p, "document.documentElement.scrollWidth") > width {
			t.Errorf("wider than %d: %.2000s", width, got)
		}
	}
}
