package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// While the agent does not respond, the page shows a notice. Afterwards, it shows the changes that it missed.
func TestReconnect(t *testing.T) {
	f, p := show(t, 4, 256)
	resume := f.pause()
	p.text("#stale", "Not connected")
	p.text("#stale", "The data below is outdated")
	p.text("#link-text", "not connected")
	f.leave("node-3")
	resume()
	p.until("it is live again", `document.getElementById("link").dataset.state === "live" && document.getElementById("stale").hidden`)
	p.text("#events", "node-3 left")
	p.text("#events", "partitions moved")
	p.until("three members", `document.querySelectorAll("#members-body tr").length === 3`)
	f.leave("node-4")
	p.text("#events", "node-4 left; others own its ")
}

// A response that is cut off counts as no response. The page keeps showing what it knows, and continues after the next
// response.
func TestResponseCutOff(t *testing.T) {
	for _, path := range []string{"/v1/members", "/v1/partitions", "/v1/stats", "/v1/history"} {
		f, p := show(t, 3, 64)
		f.set(func() { f.cut = path })
		f.leave("node-3")
		p.text("#stale", "Not connected: the agent cannot be reached.")
		f.set(func() { f.cut = "" })
		p.ready(2)
		p.text("#events", "node-3 left")
	}
}

// If the node has not joined yet, the page shows a notice until it has.
func TestJoining(t *testing.T) {
	f := newFake(t, 3, 64)
	f.set(func() { f.joining = true })
	p := open(t, f.URL, 1440, 900)
	p.do(chromedp.WaitVisible(chromedp.CSS("#waiting")), chromedp.WaitNotVisible(chromedp.CSS("#operate-title")))
	p.text("#waiting", "no other node has accepted this node yet")
	f.set(func() { f.joining = false })
	p.ready(3)
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#waiting")), chromedp.WaitVisible(chromedp.CSS("#operate-title")))
}

// A resumed stream starts with the changes since the interruption, or with nothing.
func TestResume(t *testing.T) {
	f, p := show(t, 4, 256)
	for _, id := range []lease.NodeID{"node-3", ""} {
		back := f.pause()
		p.text("#link-text", "not connected")
		f.set(func() { f.resume = f.state })
		if id != "" {
			f.leave(id)
		}
		back()
		p.ready(3)
	}
	f.leave("node-4")
	p.ready(2)
	p.once("node-3 left")
	p.once("node-4 left")
	p.owns(f)
}

// The page accepts the smaller version numbers of a restarted agent.
func TestAgentRestarts(t *testing.T) {
	f, p := show(t, 4, 256)
	for i := range 3 {
		f.join(5 + i)
	}
	p.ready(7)
	back := f.pause()
	p.text("#link-text", "not connected")
	f.set(func() { f.state, f.members[0].Incarnation = nil, 77 })
	f.leave("node-3")
	back()
	p.ready(6)
	p.text("#events", "the agent of node-1 started")
	f.leave("node-4")
	p.ready(5)
	p.once("node-4 left")
	p.owns(f)
}

// once waits for a log entry that starts with what, and checks that there is only one.
func (p *tab) once(what string) {
	p.t.Helper()
	p.text("#events", what)
	script := fmt.Sprintf(`[...document.querySelectorAll("#events .what")].filter(e => e.textContent.startsWith(%q)).length`, what)
	if n := eval[int](p, script); n != 1 {
		p.t.Errorf("%d entries of %s:\n%s", n, what, eval[string](p, `document.getElementById("events").innerText`))
	}
}

// owns waits until the page shows each node's number of partitions.
func (p *tab) owns(f *fake) {
	p.t.Helper()
	for id, n := range f.state.Table.Balance().Counts {
		p.until(fmt.Sprintf("%s owns %d", id, n), fmt.Sprintf(`[...document.querySelectorAll("#members-body tr")]
			.some(r => r.querySelector(".id").textContent === %q && r.querySelector(".partitions").textContent === "%d")`, id, n))
	}
}

// A change in a response is not logged again when its event arrives.
func TestToldOnce(t *testing.T) {
	f, p := show(t, 5, 256)
	f.set(func() { f.muted = true })
	f.change(func() { f.members[3].Incarnation++ })
	p.text("#events", "node-4 restarted")
	f.unmute()
	f.set(func() { f.muted = true })
	f.leave("node-3")
	p.text("#events", "node-3 left")
	f.join(6)
	p.text("#events", "node-6 joined")
	f.set(func() { f.muted = false })
	f.change(func() { f.members[0].Incarnation++ }) // sends the withheld changes, too
	p.text("#events", "node-1 restarted")
	f.leave("node-2")
	p.text("#events", "node-2 left")
	p.owns(f)
	for _, what := range []string{"node-3 left", "node-6 joined", "node-4 restarted", "node-1 restarted", "node-2 left"} {
		p.once(what)
	}
	p.owns(f)
}

// A response that arrives after a later event updates numbers, but does not bring back removed members.
func TestOverdue(t *testing.T) {
	f, p := show(t, 4, 256)
	f.change(func() {
		f.overdue, f.members[1].Load = true, 1717
		f.members = slices.Delete(f.members, 2, 3)
	})
	p.text("#members-body .load", "1,717")
	p.ready(3)
	p.owns(f)
	if seen := eval[string](p, `document.getElementById("events").innerText`); strings.Contains(seen, "node-99") {
		t.Errorf("an old response is in the log: %s", seen)
	}
}

// The page repeats a lookup after a change.
func TestLookupFollows(t *testing.T) {
	f, p := show(t, 4, 256)
	owner := func() lease.NodeID { return f.state.Table.Rank(placement.Of("user-7", 256), 1)[0] }
	p.do(chromedp.SendKeys(chromedp.CSS("#lookup-name"), "user-7"+kb.Enter))
	first := owner()
	p.text("#lookup-answer .verdict", string(first)+" owns")
	f.change(func() {
		for i := range f.members {
			if f.members[i].ID == first {
				f.members[i].State = lease.Draining
			}
		}
	})
	p.text("#lookup-answer .verdict", string(owner())+" owns")
	p.text("#lookup-said", string(owner())+" owns")
}

// An unhealthy node is shown as unhealthy everywhere, and the page offers to drain it, but not to undrain it.
func TestUnhealthySelf(t *testing.T) {
	f, p := show(t, 3, 64)
	hold := func(c cluster.Cause) clusterhttp.Hold { return clusterhttp.Hold{Cause: c, Reason: "no disk"} }
	f.change(func() {
		f.members[0].State, f.members[0].Unhealthy = lease.Draining, true
		f.stats.Holds = []clusterhttp.Hold{hold(cluster.CauseUnhealthy)}
	})
	p.text("#operate-note", "node-1 is unhealthy, weight")
	p.text("#health-found", "node-1 is unhealthy: no disk")
	p.text("#members-body .state", "unhealthy")
	disabled := func(id string) string { return fmt.Sprintf("document.getElementById(%q).disabled", id) }
	p.until("it can be drained", "!"+disabled("drain")+" && "+disabled("undrain"))
	f.set(func() { f.stats.Holds = append(f.stats.Holds, hold(cluster.CauseDraining)) })
	p.until("it can be undrained", disabled("drain")+" && !"+disabled("undrain"))
}

// The page does not present the last table of an isolated, fenced or stalled agent as the table of the cluster. In this
// test, neither the digest nor the history changes.
func TestLastTable(t *testing.T) {
	const said = "This agent is isolated, fenced or stalled: the owners are those of its last table."
	f, p := show(t, 3, 64)
	p.do(chromedp.SendKeys(chromedp.CSS("#lookup-name"), "user-7"+kb.Enter))
	p.text("#lookup-answer .verdict", "owns")
	p.seeMap()
	hold := func(c cluster.Cause) clusterhttp.Hold { return clusterhttp.Hold{Cause: c, Reason: "it is a test"} }
	for _, at := range []struct {
		state string // an agent that is joining but has a table is stalled
		holds []clusterhttp.Hold
	}{
		{"isolated", []clusterhttp.Hold{hold(cluster.CauseIsolated)}},
		{},
		{"duplicate", []clusterhttp.Hold{hold(cluster.CauseDuplicate)}},
		{},
		{"clock_ahead", []clusterhttp.Hold{hold(cluster.CauseClockAhead), hold(cluster.CauseIsolated)}},
		{"isolated", nil},
		{},
		{"joining", nil},
		{},
	} {
		state := at.state
		f.set(func() { f.stats.State, f.stats.Holds = state, at.holds })
		for _, h := range at.holds {
			p.text("#health-found", h.Explain().Finding)
		}
		stale := state != ""
		for _, selector := range []string{"#lookup-answer .why", "#lookup-said", "#map-note"} {
			p.until(fmt.Sprintf("%s while the agent is %q", selector, state),
				fmt.Sprintf(`document.querySelector(%q).textContent.includes(%q) === %v`, selector, said, stale))
		}
		p.text("#agreement-number", map[bool]string{false: "All agree", true: "Not known"}[stale])
	}
}

// The history shows what happened to rooms and to the store, with times from the agent's clock. A growing event about
// rooms is announced only once. An event is announced even if the page gets it after a later event.
func TestRoomsAndStoreInHistory(t *testing.T) {
	f := newFake(t, 4, 256)
	f.set(func() {
		f.behind = 5 * time.Minute
		f.past.Events[0].At = f.now()
	})
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
	eval[any](p, `window.said = []; new MutationObserver(() => said.push(document.getElementById("events-said").textContent))
		.observe(document.getElementById("events-said"), { childList: true, subtree: true, characterData: true }); 1`)
	f.moveRoom("retro")
	p.text("#events", "1 room of node-2 moved: its node died")
	p.text("#events-said", "1 room of node-2 moved: its node died")
	f.moveRoom("standup")
	p.text("#events", "2 rooms of node-2 moved: its node died")
	began := f.now()
	f.leave("node-3")
	p.text("#events", "node-3 left")
	seen := eval[string](p, `document.getElementById("events").textContent`)
	if strings.Index(seen, "node-3 left") > strings.Index(seen, "2 rooms") || strings.Contains(seen, "1 room ") {
		t.Errorf("the newest is not the first, or an event is shown twice: %s", seen)
	}
	p.text("#events-said", "node-3 left")
	if eval[bool](p, `said.some(e => e.includes("2 rooms"))`) {
		t.Error("an event that grew was announced again")
	}
	add := func(e clusterhttp.Event) {
		f.set(func() {
			e.At = began
			f.past.Events = append(slices.Clip(f.past.Events), e)
		})
	}
	add(clusterhttp.Event{Kind: cluster.EventWeight, Member: "node-2", Weight: 50, OldWeight: 100})
	p.text("#events-said", "node-2 has weight 50")
	add(clusterhttp.Event{Kind: affinity.EventStoreAway, Why: "connection refused"})
	p.text("#events", "the store does not answer: connection refused")
	add(clusterhttp.Event{Kind: affinity.EventStoreBack, Lasted: 14 * time.Second})
	p.text("#events", "the store answers again, after 14 s")
	add(clusterhttp.Event{Kind: affinity.EventDataLost})
	p.text("#events", "the store lost pins of rooms that this node hosts")
	add(clusterhttp.Event{Kind: affinity.EventPinsRestored, Rooms: 1200})
	p.text("#events", "the pins of 1,200 rooms are restored")
	add(clusterhttp.Event{Kind: affinity.EventConflict, Member: "node-2", Rooms: 1})
	p.text("#events", "1 room was hosted on two nodes, and stayed on node-2")
}

// The page immediately shows that no member owns partitions.
func TestNobody(t *testing.T) {
	f, p := show(t, 3, 64)
	p.seeMap()
	p.text("#legend", "node-2")
	eval[any](p, `window.nameless = false; new MutationObserver(() => {
		nameless ||= [...document.querySelectorAll("#legend li")].some(e => /^[-\s\d]*$/.test(e.textContent));
	}).observe(document.getElementById("legend"), { childList: true, subtree: true, characterData: true }); 1`)
	f.change(func() {
		for i := range f.members {
			f.members[i].State = lease.Draining
		}
	})
	p.text("#events", "64 partitions moved")
	p.text("#health-found [data-level=bad]", "no node of 3 members may own anything")
	p.text("#agreement-note", "no member may own partitions")
	p.text("#map-note", "No member may own them")
	if eval[bool](p, "nameless") {
		t.Error("the legend had a node without a name")
	}
	f.change(func() { f.members[1].State = lease.Active })
	p.owns(f)
	p.until("health recovers", `!document.querySelector("#health-found [data-level=bad]")`)
}
