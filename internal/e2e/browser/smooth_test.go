package browser

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/lease"
)

// A hundred nodes share 16,384 partitions. After nodes leave and join, the map shows the right content. The duration of
// frames is only logged.
func TestSmooth(t *testing.T) {
	f, p := show(t, 100, 16384)
	p.seeMap()
	eval[any](p, `window.times = []; window.long = 0;
		new PerformanceObserver(list => { for (const e of list.getEntries()) long = Math.max(long, e.duration); }).observe({ type: "longtask" });
		(function frame(last) { requestAnimationFrame(now => { if (last) times.push(now - last); frame(now); }); })(0); 1`)
	p.until("half a second of frames", "times.reduce((sum, t) => sum + t, 0) > 500")
	frames(p, "while nothing changes")
	for i := range 10 {
		f.leave(lease.NodeID(fmt.Sprintf("node-%d", 40+i)))
		p.text("#events", fmt.Sprintf("node-%d left", 40+i))
		f.join(40 + i)
		p.text("#events", fmt.Sprintf("node-%d joined", 40+i))
	}
	for i := range 10 { // permanently, so that the map differs at the end
		f.leave(lease.NodeID(fmt.Sprintf("node-%d", 60+i)))
	}
	p.ready(90)
	p.until("frames after the last change", "times.reduce((sum, t) => sum + t, 0) > 1500")
	frames(p, "while 30 changes moved some 160 partitions each")

	// While node-1 is highlighted, exactly its cells are drawn without transparency.
	p.do(chromedp.SetValue(chromedp.CSS("#map-focus"), "nnode-1"))
	p.until("the map shows the table", fmt.Sprintf(`(() => {
		document.getElementById("map-focus").dispatchEvent(new Event("change"));
		const canvas = document.getElementById("map-canvas"), copy = document.createElement("canvas");
		Object.assign(copy, { width: canvas.width, height: canvas.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(canvas, 0, 0);
		const { data } = context.getImageData(0, 0, copy.width, copy.height);
		const columns = %d, rows = Math.ceil(16384 / columns);
		let mine = 0, all = 0;
		for (let p = 0; p < 16384; p++) {
			const x = Math.floor((p %% columns + 0.5) * copy.width / columns), y = Math.floor((Math.floor(p / columns) + 0.5) * copy.height / rows);
			const alpha = data[4 * (y * copy.width + x) + 3];
			all += alpha > 0;
			mine += alpha > 60;
		}
		return all === 16384 && mine === %d;
	})()`, eval[int](p, `Math.floor(document.getElementById("map").clientWidth / 4)`), f.state.Table.Balance().Counts["node-1"]))
	p.clean(f.URL)
}

// frames logs the duration of the frames since its last call.
func frames(p *tab, when string) {
	p.t.Helper()
	times := eval[[]float64](p, "times.splice(0)")
	slices.Sort(times)
	at := func(share float64) time.Duration {
		return time.Duration(times[int(share*float64(len(times)-1))] * 1e6).Round(100 * time.Microsecond)
	}
	p.t.Logf("%s, %d frames: p50 %v, p95 %v, p99 %v, max %v; longest task %.0f ms",
		when, len(times), at(0.5), at(0.95), at(0.99), at(1), eval[float64](p, "long"))
}
