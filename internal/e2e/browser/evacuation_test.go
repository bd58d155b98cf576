package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// While a node is emptied, its page shows the progress as the API and the store report it. The page also shows the
// relays of a room.
func TestEvacuationIsShown(t *testing.T) {
	n := startTwo(t)
	here := 0
	for i := range 200 {
		if n.resolve(t, i, 2).Node == "node-a" {
			here++
		}
	}
	p := n.open(t)
	p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), "room-1"+kb.Enter))
	p.text("#lookup-answer", "Candidates")
	if asked := n.rooms.Stats().Relays; asked != 0 {
		t.Errorf("nobody asked for relays, and the page did %d times", asked)
	}
	p.do(press("#lookup-answer summary"))
	p.text("#lookup-answer .relays", "node-")
	p.do(press("#lookup button"))
	p.until("the relays stay open in a new answer", `document.querySelector("#lookup-answer details").open`)
	p.text("#lookup-answer .relays", "node-")
	if !eval[bool](p, `document.getElementById("evacuation").hidden`) {
		t.Error("an evacuation is shown, and there was none")
	}
	// Record each text, in case the page is slow.
	eval[any](p, `window.said = []; new MutationObserver(() => said.push(document.getElementById("evacuation-note").textContent))
		.observe(document.getElementById("evacuation"), { childList: true, subtree: true, characterData: true }); 1`)
	if _, err := n.client.Evacuate(t.Context(), here/4, 0); err != nil {
		t.Fatal(err)
	}
	p.until("the evacuation is shown", `!document.getElementById("evacuation").hidden`)
	p.text("#evacuation-said", "All rooms have left this node")
	p.text("#evacuation-note", fmt.Sprintf("0 left, %d moved", here))
	stats, err := n.client.Stats(t.Context())
	if err != nil || stats.Evacuation == nil || stats.Evacuation.Moved != here || stats.Evacuation.Left != 0 {
		t.Errorf("the API says %+v, %v; want %d rooms moved", stats.Evacuation, err, here)
	}
	if left, err := n.other.Rooms(context.WithoutCancel(t.Context()), "node-a", 1000); err != nil || len(left) != 0 {
		t.Errorf("the store still has %d rooms of the node, %v", len(left), err)
	}
	progress := fmt.Sprintf(`said.some((text) => {
		const [left, moved] = text.match(/\d+/g) || [0, 0];
		return +left > 0 && +moved > 0 && +left + +moved === %d;
	})`, here)
	if !eval[bool](p, progress) {
		t.Errorf("the page showed no progress: %q", eval[[]string](p, `said`))
	}
	if v := eval[float64](p, `document.getElementById("evacuated").position`); v != 1 {
		t.Errorf("at the end the bar is at %v", v)
	}
	if _, err := n.client.Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until("the evacuation is no longer shown", `document.getElementById("evacuation").hidden`)
	p.clean(n.address)
}
