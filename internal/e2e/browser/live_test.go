package browser

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// agent starts a real agent on real sockets.
func agent(t *testing.T, ttl time.Duration, id string, seeds ...string) *cluster.Agent {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	a, err := cluster.Start(t.Context(), cluster.Config{
		ID: id, Bind: "127.0.0.1:0", Join: seeds, Bootstrap: len(seeds) == 0, Network: cluster.Local,
		LeaseTTL: ttl, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// serve starts the real handler and server of an agent.
func serve(t *testing.T, a *cluster.Agent, o clusterhttp.Options) (string, *clusterhttp.Client) {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	s := httptest.NewUnstartedServer(nil)
	s.Config = clusterhttp.NewServer(clusterhttp.Handler(a, o))
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL, &clusterhttp.Client{Base: s.Listener.Addr().String()}
}

// The page shows killed and joined nodes within two seconds after the API does, and looks up keys.
func TestLive(t *testing.T) {
	const ttl = 3 * time.Second // longer than most stalls of a busy machine
	a := agent(t, ttl, "node-a")
	b := agent(t, ttl, "node-b", a.Addr())
	agent(t, ttl, "node-c", a.Addr())
	address, client := serve(t, a, clusterhttp.Options{})
	members(t, client, "node-a", "node-b", "node-c")
	p := open(t, address, 1440, 900)
	p.ready(3)
	// Record when the page showed which members.
	eval[any](p, `window.seen = {}; new MutationObserver(() => {
		const ids = [...document.querySelectorAll("#members-body tr:not(.gone) .id")].map(e => e.textContent).sort().join(" ");
		seen[ids] ??= Date.now();
	}).observe(document.getElementById("members-body"), { childList: true, subtree: true }); 1`)

	_ = b.Close() // like a crash, without a leave message
	p.shows(members(t, client, "node-a", "node-c"), "node-a node-c")
	p.until("the lost row is on top", `(row =>
		row.matches(".gone:not(.left)") && /^node-b/.test(row.textContent) && /owned \d+/.test(row.textContent))(
		document.querySelector("#members-body tr"))`)
	p.text("#members-number", "2 of 3")
	p.text("#members-note", "1 lost")
	p.text("#health-found [data-level=warn] .finding", "lost: node-b ")
	p.text("#health-found .fix", "is forgotten after 30 minutes") // what the page shows depends on whether its end is confirmed
	p.text("#events", "node-b ")
	if eval[bool](p, `document.getElementById("events").textContent.includes("node-b left")`) {
		t.Error("the page says that a node left, which has crashed")
	}
	agent(t, ttl, "node-d", a.Addr())
	p.shows(members(t, client, "node-a", "node-c", "node-d"), "node-a node-c node-d")
	p.text("#events", "node-d joined")
	p.seeMap()
	p.text("#legend", "node-d")
	p.text("#map-moved", "moved within the last minute")

	ranked, err := client.Owners(t.Context(), "user-42", 3)
	if err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.SendKeys(chromedp.CSS("#lookup-name"), "user-42"+kb.Enter))
	p.text("#lookup-answer .verdict", fmt.Sprintf("%s owns user-42, in partition %d", ranked.Owners[0].ID, ranked.Partition))
	p.text("#lookup-answer .ranking", string(ranked.Owners[1].ID))
	p.text("#lookup-answer .why", ranked.Why)
	p.text("#map-tip", fmt.Sprintf("Partition %d: %s", ranked.Partition, ranked.Owners[0].ID))
	if !eval[bool](p, `document.getElementById("demo").hidden && document.getElementById("lookup-kind").hidden`) {
		t.Error("the page has controls for a demo, or for rooms")
	}
	p.clean(address)
}

// members waits until the API returns exactly these members, and returns the time.
func members(t *testing.T, client *clusterhttp.Client, want ...lease.NodeID) time.Time {
	t.Helper()
	wait(t, "the members "+fmt.Sprint(want), func() bool {
		m, _ := client.Members(t.Context())
		return slices.EqualFunc(m.Members, want, func(m clusterhttp.Member, id lease.NodeID) bool { return m.ID == id })
	})
	return time.Now()
}

// shows checks how much later than the API the page showed these members. Both times come from this machine's clock, so
// the latency of the test itself does not count.
func (p *tab) shows(told time.Time, ids string) {
	p.t.Helper()
	p.until(ids, fmt.Sprintf("%q in seen", ids))
	late := time.UnixMilli(eval[int64](p, fmt.Sprintf("seen[%q]", ids))).Sub(told)
	p.t.Logf("the page shows %s %v after the API", ids, late.Round(time.Millisecond))
	if late > 2*time.Second {
		p.t.Errorf("the page shows %s only %v after the API", ids, late)
	}
}

// A drain needs a confirmation and the operator's token. The page does not store the token.
func TestOperate(t *testing.T) {
	a := agent(t, time.Minute, "node-a") // without its lease, the node cannot be drained
	address, client := serve(t, a, clusterhttp.Options{Token: "open-sesame"})
	members(t, client, "node-a")
	p := open(t, address, 1440, 900)
	p.text("#operate-note", "node-a is active, weight 100")
	state := func() lease.State { return a.Snapshot().Self.State }

	p.do(press("#drain"), chromedp.WaitVisible(chromedp.CSS("#confirm")))
	p.text("#confirm", "Drain node-a?")
	p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#confirm")))
	if text := eval[string](p, `document.getElementById("operate-result").textContent`); text != "" || state() != lease.Active {
		t.Fatalf("drained without a confirmation: %q, %v", text, state())
	}

	yes := func(button string) {
		t.Helper()
		p.do(press(button), press("#confirm-yes"))
	}
	// The close event of a dialog may arrive after the dialog has been opened again.
	if late := eval[bool](p, `new Promise(done => {
		const dialog = document.getElementById("confirm"), drain = document.getElementById("drain");
		drain.click();
		dialog.addEventListener("close", () => done(dialog.open), { once: true });
		dialog.close("no");
		drain.click();
	})`); !late {
		t.Error("the event was not late")
	}
	p.do(press("#confirm-yes"))
	p.text("#operate-result", "needs the operator's token")
	p.until("the field for the token has the focus", `document.activeElement.id === "token"`)
	if state() != lease.Active {
		t.Fatal("drained without a token")
	}
	p.do(chromedp.SendKeys(chromedp.CSS("#token"), "open-barley"+kb.Enter))
	yes("#drain")
	p.text("#operate-result", "rejects this token")
	p.do(press("#token-forget"), chromedp.SendKeys(chromedp.CSS("#token"), "open-sesame"+kb.Enter))
	p.text("#operate-result", "sent from now on")
	yes("#drain")
	p.text("#operate-result", "node-a was drained")
	p.text("#health-found [data-level=bad]", "no node of 1 member may own anything")
	p.until("the focus is on what can be done now", `document.activeElement.id === "undrain"`)
	p.text("#members-body .state", "draining")
	p.text("#events", "node-a is draining")
	yes("#undrain")
	p.text("#members-body .state", "active")
	p.do(chromedp.SetValue(chromedp.CSS("#weight-value"), "50"))
	yes("#weight button")
	p.text("#operate-note", "weight 50")
	if w := a.Snapshot().Self.Weight; w != 50 {
		t.Errorf("the weight is %d", w)
	}
	kept := eval[string](p, `JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])`)
	if kept != fmt.Sprintf(`[{},{},"","%s/"]`, address) {
		t.Errorf("kept: %s", kept)
	}
}

// Each button of the demo sends its request.
func TestDemo(t *testing.T) {
	f := newFake(t, 3, 64)
	f.change(func() { f.members[1].State = lease.Draining })
	p := open(t, f.URL, 1440, 900)
	p.text("#demo-nodes", "draining")
	var names []string
	for _, b := range eval[[]string](p, `[...document.querySelectorAll("#demo button")].map(b => b.ariaLabel || b.textContent)`) {
		names = append(names, b)
		press := fmt.Sprintf(`[...document.querySelectorAll("#demo button")].find(b => (b.ariaLabel || b.textContent) === %q)`, b)
		p.until(b, fmt.Sprintf(`%s?.disabled === false && (%s.click(), true)`, press, press))
	}
	want := []string{
		"Add a node", "Drain node-1", "Pause node-1", "Kill node-1", "Undrain node-2", "Pause node-2",
		"Kill node-2", "Resume node-3", "Kill node-3",
	}
	if !slices.Equal(names, want) {
		t.Errorf("buttons %q", names)
	}
	p.text("#demo-rooms:not([hidden])", "only when somebody joins it again")
	p.until("all is done", `![...document.querySelectorAll("#demo button")].some(b => b.disabled)`)
	eval[any](p, `document.querySelector('[aria-label="Drain node-1"]').focus(); 1`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("the focus is back", `!document.querySelector("#demo button:disabled") && document.activeElement.ariaLabel === "Drain node-1"`)
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := []string{
		`add {}`, `drain {"id":"node-1"}`, `pause {"id":"node-1"}`, `kill {"id":"node-1"}`, `undrain {"id":"node-2"}`, `pause {"id":"node-2"}`,
		`kill {"id":"node-2"}`, `resume {"id":"node-3"}`, `kill {"id":"node-3"}`, `drain {"id":"node-1"}`,
	}
	if !slices.Equal(slices.Sorted(slices.Values(f.pressed)), slices.Sorted(slices.Values(asked))) {
		t.Errorf("requests: %q", f.pressed)
	}
	p.clean(f.URL)
}
