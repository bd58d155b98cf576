package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// sight is a fault of a node, and the text on the first screen that names it.
type sight struct {
	name     string
	fault    func(f *fake, node int)
	selector string
	text     string // with the id of the node in place of %s
	row      bool   // the node is first in the table of members
}

var sights = []sight{
	{"healthy", func(*fake, int) {}, "#health-sum", "checks pass", false},
	{"killed", func(f *fake, node int) { f.lose(lease.Crashed, node, node) }, "#health-found .finding", "lost: %s crashed 4s ago", true},
	{
		"late", func(f *fake, node int) { f.set(func() { f.members[node-1].AgeMS = 4400 }) },
		"#health-found .finding", "about to expire at 6s: %s 4.4s", false,
	},
	{
		"drained", func(f *fake, node int) { f.change(func() { f.members[node-1].State = lease.Draining }) },
		"#members-note", "%s draining", true,
	},
	{
		"unhealthy", func(f *fake, node int) {
			f.change(func() { f.members[node-1].State, f.members[node-1].Unhealthy = lease.Draining, true })
		},
		"#health-found .finding", "unhealthy: %s", true,
	},
	{
		"wrong advertise", func(f *fake, node int) { // it is not a member
			f.change(func() {
				f.members = slices.Delete(f.members, node-1, node)
				f.silence(node)
			})
		},
		"#health-found .finding", "heard only over TCP: %s at 10.0.", false,
	},
	{
		"deaf by UDP", func(f *fake, node int) {
			f.change(func() {
				f.members[node-1].State = lease.Settling
				f.silence(node)
			})
		},
		"#health-found .finding", "heard only over TCP: %s at 10.0.", true,
	},
	{
		"cut", func(f *fake, node int) { f.lose(lease.Expired, node, len(f.members)) }, "#health-found .finding",
		"lost: %s", true,
	},
	{
		"Redis down", func(f *fake, _ int) {
			f.set(func() {
				f.stats.Rooms.StoreDoubt, f.stats.Rooms.Breaker, f.stats.Rooms.StoreErrors, f.stats.Rooms.Degraded = true, "open", 12, 4
			})
		},
		"#health-found .finding", "Redis has not answered lately", false,
	},
}

// The first screen shows the fault and its node at each window size. Nothing on it overlaps or is cut off.
func TestFirstScreen(t *testing.T) {
	for _, s := range sights {
		s.look(t, 100)
	}
	for _, s := range sights[:3] { // fewer nodes leave more space
		s.look(t, 3)
	}
}

func (s sight) look(t *testing.T, nodes int) {
	t.Helper()
	f := newFake(t, nodes, 1024<<(2*(nodes/40))) // as many partitions as such a cluster needs
	f.set(func() {
		f.past.Events[0].At = time.Now().Add(-119 * time.Minute) // a long number
		for i := range f.members {
			f.members[i].Load = f.members[i].Load * 3 / 4
		}
		for i := range 180 {
			f.past.Samples = append(f.past.Samples, clusterhttp.Sample{
				At:      time.Now().Add(time.Duration(i-180) * 10 * time.Second),
				Members: nodes,
				Load:    int64(900 + 40*(i%13)),
			})
		}
	})
	node := nodes * 2 / 3
	id := fmt.Sprint("node-", node)
	s.fault(f, node)
	p := open(t, f.URL, 1366, 768)
	want := s.text
	if s.name != "healthy" && s.name != "Redis down" {
		want = fmt.Sprintf(s.text, id)
	}
	p.text(s.selector, want)
	p.until("it is live",
		`document.getElementById("link").dataset.state === "live" && document.getElementById("members-number").textContent !== "–"`)
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"laptop", 1366, 768}, {"wide", 1920, 1080}} {
		where := fmt.Sprintf("%d nodes, %s, on a %s", nodes, s.name, size.name)
		metrics := emulation.SetDeviceMetricsOverrideParams{
			Width:             size.width,
			Height:            size.height,
			DeviceScaleFactor: 1,
			Mobile:            size.name == "phone",
		}
		if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, metrics); err != nil {
			t.Fatal(err)
		}
		p.until(where+": the size", fmt.Sprintf("innerWidth === %d", size.width))
		visible := fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e =>
			e.textContent.includes(%q) && e.getBoundingClientRect().bottom <= innerHeight)`, s.selector, want)
		if !eval[bool](p, visible) {
			t.Errorf("%s: not on the first screen: %s", where, want)
		}
		first := fmt.Sprintf(`(row => row.querySelector(".id").textContent === %q && row.getBoundingClientRect().bottom <= innerHeight)(
			document.querySelector("#members-body tr"))`, id)
		if s.row && size.name != "phone" && !eval[bool](p, first) {
			t.Errorf("%s: the node is not the first row", where)
		}
		if cut := eval[string](p, `[...document.querySelectorAll(".number, h1")].filter(e => {
			const r = document.createRange();
			r.selectNodeContents(e);
			return r.getBoundingClientRect().width > e.getBoundingClientRect().width;
		}).map(e => e.id || e.tagName).join() + (document.documentElement.scrollWidth > innerWidth ? " the page" : "")`); cut != "" {
			t.Errorf("%s: wider than its place: %s", where, cut)
		}
		if eval[bool](p, `((a, b) => a.right + 16 > b.left && a.left < b.right && a.bottom > b.top && a.top < b.bottom)(
			...["health-sum", "health-passed-title"].map(id => {
			const r = document.createRange();
			r.selectNodeContents(document.getElementById(id));
			return r.getBoundingClientRect();
		}))`) {
			t.Errorf("%s: the strip overlaps", where)
		}
	}
	p.do(chromedp.Navigate("about:blank")) // it polls otherwise
}
