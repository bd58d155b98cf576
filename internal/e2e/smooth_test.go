package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// With a hundred nodes and 16,384 partitions, while nodes leave and join, the map ends with
// the right content. The duration of frames is only logged.
func TestSmooth(t *testing.T) {
	f, p := show(t, 100, 16384)
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
	for i := range 10 { // for good, so that the map differs at the end
		f.leave(lease.NodeID(fmt.Sprintf("node-%d", 60+i)))
	}
	p.ready(90)
	p.until("the last of them has flashed", "times.reduce((sum, t) => sum + t, 0) > 1500")
	frames(p, "while 30 changes moved some 160 partitions each")

	// Node-1 has the first colour. All of its cells, and no other cells, have that colour.
	p.until("the map shows the table", fmt.Sprintf(`(() => {
		const canvas = document.getElementById("map-canvas"), copy = document.createElement("canvas");
		Object.assign(copy, { width: canvas.width, height: canvas.height });
		const context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(canvas, 0, 0);
		const { data } = context.getImageData(0, 0, copy.width, copy.height);
		const columns = %d, rows = Math.ceil(16384 / columns);
		return %s.every((mine, p) => {
			const x = Math.floor((p %% columns + 0.5) * copy.width / columns), y = Math.floor((Math.floor(p / columns) + 0.5) * copy.height / rows);
			const at = 4 * (y * copy.width + x);
			return mine === (data[at] === 0 && data[at + 1] === 0x72 && data[at + 2] === 0xb2);
		});
	})()`, eval[int](p, `Math.floor(document.getElementById("map").clientWidth / 4)`), f.ownedBy("node-1", 16384)))
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

// ownedBy returns which of the first n partitions a node owns, as a JavaScript array.
func (f *fake) ownedBy(id lease.NodeID, n int) string {
	list := "["
	for p := range n {
		owner, _ := f.state.Table.Owner(placement.Partition(p))
		list += fmt.Sprintf("%t,", owner == id)
	}
	return list + "]"
}
