package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

var pictures = flag.String("pictures", "", "save pictures of the page in this folder, to look at them")

// scenes are the states of a cluster that TestPictures takes pictures of.
var scenes = []struct {
	name  string
	make  func(f *fake, nodes int)
	found string // what the strip says
}{
	{"healthy", func(*fake, int) {}, "checks pass"},
	{"crash", func(f *fake, nodes int) { f.lose(lease.Crashed, nodes/2, nodes/2) }, "1 warning"},
	{"split", func(f *fake, nodes int) { f.lose(lease.Expired, nodes/3+1, nodes) }, "1 failure"},
	{"redis", func(f *fake, _ int) {
		f.set(func() {
			f.stats.Rooms.StoreDoubt, f.stats.Rooms.Breaker, f.stats.Rooms.StoreErrors, f.stats.Rooms.Degraded = true, "open", 12, 4
		})
	}, "1 failure"},
	{"unhealthy", func(f *fake, _ int) {
		f.change(func() {
			f.members[0].State, f.members[0].Unhealthy = lease.Draining, true
			f.members[2].State, f.members[2].FlappingMS = lease.Draining, 74_000
			f.stats.State, f.stats.Holds = "unhealthy", []clusterhttp.Hold{{Cause: cluster.CauseUnhealthy, Reason: "exit status 1: no disk space left"}}
		})
	}, "1 failure, 1 warning"},
	{"clock", func(f *fake, _ int) {
		f.change(func() {
			f.members[1].ClockOffsetMS, f.members[4].State, f.members[4].DrainsMS = 3100, lease.Draining, 95_000
		})
	}, "1 warning"},
}

// TestPictures saves pictures of the page at three sizes, in both themes, with few and with many nodes, healthy and
// with faults. A person looks at these pictures. To make them, run go test ./browser -run TestPictures -pictures DIR.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("it takes -pictures")
	}
	for _, nodes := range []int{6, 9, 40} {
		for _, s := range scenes {
			f := newFake(t, nodes, 1024<<(2*(nodes/40)))
			f.set(func() {
				f.plain = true
				f.past.Events[0].At = time.Now().Add(-26 * time.Hour)
				for i := range 180 {
					f.past.Samples = append(f.past.Samples, clusterhttp.Sample{
						At: time.Now().Add(time.Duration(i-180) * 10 * time.Second), Members: nodes - i%60/59, Load: int64(900 + 40*(i%13)), Moved: i % 60 / 59 * 1024 / nodes,
						Owned: 1024 / nodes,
					})
				}
			})
			f.change(func() { f.members[3].Weight = 200 })
			p := open(t, f.URL, 1280, 800)
			p.ready(nodes)
			s.make(f, nodes)
			p.text("#health-sum", s.found)
			for _, size := range []struct {
				name          string
				width, height int64
			}{{"phone", 390, 844}, {"laptop", 1280, 800}, {"desktop", 1920, 1080}} {
				for _, theme := range []string{"light", "dark"} {
					media(p, "prefers-color-scheme", theme)
					p.save(fmt.Sprintf("%d-%s-%s-%s", nodes, s.name, size.name, theme), size.width, size.height)
				}
			}
			p.do(chromedp.Navigate("about:blank")) // it polls otherwise
		}
	}
}

// save saves what a screen of the given size shows. On a phone, it saves the whole page.
func (p *tab) save(name string, width, height int64) {
	p.t.Helper()
	metrics := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500}
	if _, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, metrics); err != nil {
		p.t.Fatal(err)
	}
	p.until(name, fmt.Sprintf("innerWidth === %d && new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))", width))
	shot, err := chromedp.Call(p.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: new(width < 500)})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), shot.Data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
