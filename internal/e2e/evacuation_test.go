package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/affinity/redisstore"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/redistest"
)

// The page of a node that is emptied shows how far that is, as the API and the store have it; and
// the edges of a room.
func TestEvacuationIsShown(t *testing.T) { // S6.11, S6.12
	const ttl = 10 * time.Second
	a := agent(t, ttl, "node-a")
	b := agent(t, ttl, "node-b", a.Addr())
	redis := redistest.Start(t)
	store, err := redisstore.Open(t.Context(), redisstore.Options{URL: redis.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	cfg := affinity.Config{Log: slog.New(slog.DiscardHandler)}
	rooms, err := affinity.Start(a, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rooms.Close() })
	others, err := affinity.Start(b, store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = others.Close() })
	address, client := serve(t, a, clusterhttp.Options{Rooms: rooms})
	members(t, client, "node-a", "node-b")
	<-a.Ready()
	<-b.Ready()
	wait(t, "agreement", func() bool { return a.Converged() && b.Converged() && len(b.Owned()) > 0 })
	here := 0
	for i := range 200 {
		at, err := rooms.Resolve(t.Context(), fmt.Sprint("room-", i), affinity.Demand{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		if at.Node == "node-a" {
			here++
		}
	}

	p := open(t, address, 1440, 900)
	p.ready(2)
	p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), "room-1"+kb.Enter))
	p.text("#lookup-answer", "Candidates")
	if n := rooms.Stats().Edges; n != 0 {
		t.Errorf("nobody asked for edges, and the page did %d times", n)
	}
	p.do(press("#lookup-answer summary"))
	p.text("#lookup-answer .edges", "node-")
	p.do(press("#lookup button"))
	p.until("the edges stay open in a new answer", `document.querySelector("#lookup-answer details").open`)
	p.text("#lookup-answer .edges", "node-")
	if !eval[bool](p, `document.getElementById("evacuation").hidden`) {
		t.Error("an evacuation is shown, and there was none")
	}
	// Record each text, in case the page is slow.
	eval[any](p, `window.said = []; new MutationObserver(() => said.push(document.getElementById("evacuation-note").textContent))
		.observe(document.getElementById("evacuation"), { childList: true, subtree: true, characterData: true }); 1`)
	if _, err := client.Evacuate(t.Context(), here/4, 0); err != nil {
		t.Fatal(err)
	}
	p.until("the evacuation is shown", `!document.getElementById("evacuation").hidden`)
	p.text("#evacuation-said", "All rooms have left this node")
	p.text("#evacuation-note", fmt.Sprintf("0 left, %d moved", here))
	stats, err := client.Stats(t.Context())
	if err != nil || stats.Evacuation == nil || stats.Evacuation.Moved != here || stats.Evacuation.Left != 0 {
		t.Errorf("the API says %+v, %v; want %d rooms moved", stats.Evacuation, err, here)
	}
	if left, err := others.Rooms(context.WithoutCancel(t.Context()), "node-a", 1000); err != nil || len(left) != 0 {
		t.Errorf("the store still has %d rooms of the node, %v", len(left), err)
	}
	if !eval[bool](p, fmt.Sprintf(`said.some((text) => { const [left, moved] = text.match(/\d+/g) || [0, 0]; return +left > 0 && +moved > 0 && +left + +moved === %d; })`, here)) {
		t.Errorf("the page showed no progress: %q", eval[[]string](p, `said`))
	}
	if v := eval[float64](p, `document.getElementById("evacuated").position`); v != 1 {
		t.Errorf("at the end the bar is at %v", v)
	}
	if _, err := client.Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until("the evacuation is no longer shown", `document.getElementById("evacuation").hidden`)
	p.clean(address)
}
