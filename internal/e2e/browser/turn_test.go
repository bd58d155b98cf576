package browser

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// A browser opens at most six connections to the agent, but nine windows work nevertheless. At any time, only the page
// that was last shown or focused has the event stream, and a hidden page keeps no connection.
func TestManyWindows(t *testing.T) {
	a := agent(t, time.Minute, "node-a")
	<-a.Ready()
	var streams atomic.Int32
	h := clusterhttp.Handler(a, clusterhttp.Options{Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewUnstartedServer(nil)
	s.Config = clusterhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" {
			streams.Add(1)
			defer streams.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})

	pages := []*tab{open(t, s.URL, 1440, 900)}
	for range 8 {
		pages = append(pages, pages[0].another(s.URL))
	}
	for _, p := range pages {
		p.until("a member", `document.querySelectorAll("#members-body tr").length === 1`)
		p.until("findings", `/pass|warning|failure/.test(document.getElementById("health-sum").textContent)`)
	}
	// live waits until page i has the stream, and the other pages know this.
	live := func(i int) {
		t.Helper()
		for at, p := range pages {
			state := map[bool]string{true: "live", false: "poll"}[at == i]
			p.until(fmt.Sprintf("page %d says %s", at, state), fmt.Sprintf(`document.getElementById("link").dataset.state === %q`, state))
		}
	}
	live(len(pages) - 1)
	pages[0].text("#link[title^='another window']", "every second")
	fire := func(i int, event string) { eval[any](pages[i], event+"; 1") }
	hide := func(i int, hidden bool) {
		fire(i, fmt.Sprintf(`Object.defineProperty(document, "hidden", { get: () => %v, configurable: true }),
			document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	fire(2, `dispatchEvent(new Event("focus"))`)
	live(2)
	for _, i := range []int{0, 1, 3, 4, 5, 6, 7} {
		hide(i, true)
	}
	hide(2, true) // the only visible page takes the turn
	live(8)
	hide(8, true)
	live(-1)
	wait(t, "no stream", func() bool { return streams.Load() == 0 })
	if err := a.SetWeight(50); err != nil {
		t.Fatal(err)
	}
	hide(4, false)
	live(4)
	pages[4].text("#operate-note", "weight 50")
	wait(t, "one stream", func() bool { return streams.Load() == 1 })
	for _, p := range pages {
		p.clean(s.URL)
	}
}
