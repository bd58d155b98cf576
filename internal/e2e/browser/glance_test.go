package browser

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// A lease turns amber if a heartbeat has not arrived, and red when it has expired. The tile shows the oldest lease.
func TestLateLease(t *testing.T) {
	f, p := show(t, 3, 64) // 6 s, with a heartbeat every 2 s
	for age, level := range map[int64]string{1900: "", 3100: "warn", 6100: "bad"} {
		f.set(func() { f.members[1].AgeMS = age })
		p.until(fmt.Sprintf("%d ms are %q", age, level), fmt.Sprintf(`(row => (row.querySelector(".age").dataset.level ?? "") === %q &&
			(document.getElementById("lease-bar").dataset.level ?? "") === %q &&
			row.querySelector(".age").textContent === document.getElementById("lease-number").textContent)
			([...document.querySelectorAll("#members-body tr")].find(r => r.querySelector(".id").textContent === "node-2"))`, level, level))
	}
	p.text("#lease-note", "node-2")
	f.set(func() { f.members[1].AgeMS = 4500 })
	p.text("#health-found [data-level=warn] .finding", "about to expire at 6s: node-2")
}

// A bar disappears together with the number that it shows.
func TestBarsEnd(t *testing.T) {
	f, p := show(t, 2, 64)
	const load = `document.querySelector("#members-body tr:last-child .load").classList.contains("bar")`
	f.set(func() { f.members[1].AgeMS = 6100 })
	p.until("red bars", `document.getElementById("lease-bar").dataset.level === "bad" && `+load)
	f.set(func() { f.members[1].Capacity = 0 })
	p.until("a load without a bar", "!"+load)
	f.leave("node-2")
	p.text("#lease-note", "no other member")
	p.until("an empty bar",
		`(bar => !bar.dataset.level && Number(bar.style.getPropertyValue("--share")) === 0)(document.getElementById("lease-bar"))`)
}

// The list shows lost members first, then members that left by themselves, and then all live members.
func TestLostRows(t *testing.T) {
	f := newFake(t, 8, 64)
	f.set(func() {
		f.lost = []clusterhttp.Lost{
			{Profile: lease.Profile{ID: "node-90"}, Reason: lease.Departed, AgoMS: 9000},
			{Profile: lease.Profile{ID: "node-91"}, Reason: lease.Crashed, AgoMS: 40_000, Partitions: 9},
			{Profile: lease.Profile{ID: "node-92"}, Reason: lease.Expired, AgoMS: 50_000},
		}
		for i := range 20 {
			f.lost = append(f.lost, clusterhttp.Lost{Profile: lease.Profile{ID: lease.NodeID(fmt.Sprint("old-", i))}, Reason: lease.Departed})
		}
	})
	p := open(t, f.URL, 1440, 900)
	p.ready(8)
	p.text("#store-note", "1.3 ms a call")
	p.text("#members-number", "8 of 10")
	p.text("#members-note", "2 lost, 8 active")
	p.text("#agreement-number", "8 agree")
	rows := eval[string](p, `[...document.querySelectorAll("#members-body tr")].map(r =>
		r.querySelector(".id").textContent + (r.matches(".left") ? " left" : r.matches(".gone") ? " lost" : "")).join()`)
	if !strings.HasPrefix(rows, "node-91 lost,node-92 lost,node-90 left,old-0 left,") ||
		!strings.HasSuffix(rows, ",node-1,node-2,node-3,node-4,node-5,node-6,node-7,node-8") {
		t.Errorf("the rows are %s", rows)
	}
	p.text("#members-more", "15 more members have gone")
	p.text("#health-found .finding", "lost: node-91 crashed 40s ago, node-92 expired 50s ago")
	p.do(press("#members-body .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
	p.text("#node-facts", "crashed 40 s ago")
	p.text("#node-facts", "owned 9; others own these since")
}

// The page says which resource of its own node is the tightest. It does not know the resources of other nodes.
func TestTightestResource(t *testing.T) {
	f, p := show(t, 3, 64)
	f.set(func() {
		f.stats.Resources = []cluster.Resource{
			{Name: "cpu", Capacity: 800, Use: 640},
			{Name: "egress_mbit", Capacity: 10_000, Use: 9300, Tightest: true},
		}
	})
	p.until("the load of this node has the resource",
		`[...document.querySelectorAll("#members-body td.load")].map(cell => cell.title.split("; ")[1] ?? "").join() === "egress_mbit 93 %,,"`)
	p.do(press("#members-body .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
	p.text("#node-facts", "egress_mbit 93 %")
}

// The page links to the page of a node if the node's address is an HTTP address.
func TestPageOfANode(t *testing.T) {
	for http, want := range map[string]string{
		"10.0.0.7:8401": "http://10.0.0.7:8401/", "https://10.0.0.7:8401": "https://10.0.0.7:8401/", "": "not known",
		"javascript:alert(1)//://": "not known",
	} {
		f := newFake(t, 3, 64, `"labels":{`, fmt.Sprintf(`"http":%q,"labels":{`, http))
		p := open(t, f.URL, 1440, 900)
		p.ready(3)
		p.do(press("#members-body .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
		p.until(want, fmt.Sprintf(`(e => (e.querySelector("a")?.href ?? e.textContent) === %q)(
			[...document.querySelectorAll("#node-facts dt")].find(e => e.textContent === "Page").nextSibling)`, want))
	}
}

// A node has the same colour in every window, whenever the window was opened, and keeps it while other nodes join and
// leave.
func TestColoursOfNodes(t *testing.T) {
	colours := func(p *tab) map[string]string {
		return eval[map[string]string](p, `Object.fromEntries([...document.querySelectorAll("#members-body tr:not(.gone)")]
			.map(r => [r.querySelector(".id").textContent, r.style.getPropertyValue("--color")]))`)
	}
	f, p := show(t, 8, 64)
	first := colours(p)
	if n := len(slices.Compact(slices.Sorted(maps.Values(first)))); n != 8 {
		t.Errorf("eight nodes have %d colours: %v", n, first)
	}
	f.leave("node-2")
	f.join(9)
	f.join(10)
	p.ready(9)
	late := p.another(f.URL)
	late.ready(9)
	second, third := colours(p), colours(late)
	if !maps.Equal(second, third) {
		t.Errorf("two windows differ:\n%v\n%v", second, third)
	}
	for id, colour := range first {
		if id != "node-2" && second[id] != colour {
			t.Errorf("%s was %s and is %s", id, colour, second[id])
		}
	}
	if n := len(slices.Compact(slices.Sorted(maps.Values(second)))); n != 9 {
		t.Errorf("nine nodes have %d colours: %v", n, second)
	}
	p.seeMap()
	p.text("#legend", "node-10")
	before := eval[string](p, `document.getElementById("map-canvas").toDataURL()`)
	p.do(press("#legend button"))
	p.until("the node is highlighted", fmt.Sprintf(`!!document.querySelector("#legend [aria-pressed=true]") &&
		document.getElementById("map-canvas").toDataURL() !== %q`, before))
	for i := range 30 { // there are not enough colours for all nodes, and too many names for the legend
		f.join(11 + i)
	}
	p.until("the legend has the zones", `[...document.querySelectorAll("#legend .chip span:nth-child(2)")].map(e => e.textContent).join() === "eu-a,eu-b,eu-c"`)
}

// The loss of most members counts as a failure. A single crash only causes a warning.
func TestLostMajority(t *testing.T) {
	f, p := show(t, 5, 64)
	f.set(func() { f.past.Samples = []clusterhttp.Sample{{At: time.Now(), Members: 5}} })
	f.lose(lease.Expired, 5, 5)
	p.text("#health[data-level=warn] .finding", "lost: node-5 expired")
	f.lose(lease.Expired, 3, 4)
	p.text("#health[data-level=bad] .finding", "most members are lost: node-5")
	p.text("#health-sum", "1 failure")
}

// The sparklines show the last half hour, as far as the agent remembers it.
func TestSparklines(t *testing.T) {
	f := newFake(t, 3, 64)
	for i := range 180 {
		f.past.Samples = append(f.past.Samples, clusterhttp.Sample{
			At:      time.Now().Add(time.Duration(i-180) * 10 * time.Second),
			Members: 3 + i/90,
			Load:    int64(i),
			Moved:   i % 7,
			Owned:   20,
		})
	}
	p := open(t, f.URL, 1440, 900)
	p.ready(3)
	for id, want := range map[string]string{
		"members-spark": "Members in the last 30 minutes: 3 to 4", "load-spark": "Load of this node in the last 30 minutes: 0 to 179",
		"change-spark": "Moved per 10 s in the last 30 minutes: 0 to 6",
	} {
		p.until(want, fmt.Sprintf(`document.querySelector("#%s svg")?.getAttribute("aria-label") === %q &&
			document.querySelector("#%[1]s polyline").points.length === 180`, id, want))
	}
	for selector, want := range map[string]string{
		"#load-spark .scale span:first-child": "179", "#load-spark .scale span:last-child": "0",
		"#load-spark .caption": "Load of this node, 30 min", "#members-spark .caption": "Members, 30 min",
	} {
		if got := eval[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector)); got != want {
			t.Errorf("%s is %q, want %q", selector, got, want)
		}
	}
}

// When a member is lost, the page shows this because of the event, before it gets the next list of members. It also
// runs the checks without delay, or as soon as it can.
func TestLossAtOnce(t *testing.T) {
	f, p := show(t, 3, 64)
	p.until("the checks pass", `document.getElementById("health").dataset.level === "good"`)
	asked := func(refused bool) (n int) {
		f.set(func() { n = f.short[refused] })
		return n
	}
	answered := asked(false)
	f.set(func() { f.silence(9) })
	wait(t, "an examination of a node that is heard over TCP alone", func() bool { return asked(false) > answered })
	answered = asked(false)
	f.set(func() { f.alone = nil })
	wait(t, "an examination once it is not", func() bool { return asked(false) > answered })
	p.until("the checks pass again", `document.getElementById("health").dataset.level === "good"`)
	f.set(func() { f.overdue = true }) // lists of members are from before the loss
	f.set(func() { f.refuses = true }) // no further examination can run
	f.lose(lease.Crashed, 2, 2)
	p.until("the lost row",
		`(row => row.matches(".gone") && /^node-2.*crashed.*owned \d+/s.test(row.textContent))(document.querySelector("#members-body tr"))`)
	p.text("#members-number", "2 of 3")
	wait(t, "a short examination", func() bool { return asked(true) > 0 })
	answered = asked(false)
	f.set(func() { f.refuses = false })
	wait(t, "another one", func() bool { return asked(false) > answered })
	p.text("#health-found .finding", "lost: node-2 crashed")
}

// Neither the strip nor the title of the page keeps showing the results of old checks.
func TestUnexamined(t *testing.T) {
	const passes = `document.getElementById("health").dataset.level === "good" && document.title === "media · roost"`
	f, p := show(t, 3, 64)
	p.until("the checks pass", passes)
	f.set(func() { f.refuses = true })
	p.text("#health-sum", "Not checked for")
	p.text("#health[data-level=warn]", "other calls are examined")
	f.set(func() { f.refuses = false })
	p.until("the checks pass again", passes)
	resume := f.pause() // the agent is not connected, so immediately and not after the 10 s for a busy agent
	p.until("it is doubted",
		`/^Not checked for \d s/.test(document.getElementById("health-sum").textContent) && document.title === "(?) media · roost"`)
	resume()
	p.until("the checks pass at last", passes)
}
