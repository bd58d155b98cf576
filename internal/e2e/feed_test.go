package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/lease"
	"github.com/roost-cluster/roost/placement"
)

// While the agent does not answer, the page says so, and afterwards what it missed.
func TestReconnect(t *testing.T) {
	f := newFake(t, 4, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
	resume := f.pause()
	p.text("#stale", "Not connected")
	p.text("#stale", "What you see is old")
	p.text("#link-text", "not connected")
	f.leave("node-3")
	resume()
	p.until("it is live again", `document.getElementById("link").dataset.state === "live" && document.getElementById("stale").hidden`)
	p.text("#events", "node-3 left")
	p.text("#events", "moved from node-3 to 3 nodes")
	p.until("three members", `document.querySelectorAll("#members-body tr").length === 3`)
	f.leave("node-4")
	p.text("#events", "node-4 left: ")
}

// A node that has not joined says so, and the page comes alive when it has.
func TestJoining(t *testing.T) {
	f := newFake(t, 3, 64)
	f.set(func() { f.joining = true })
	p := open(t, f.URL, 1440, 900)
	p.do(chromedp.WaitVisible(chromedp.CSS("#waiting")), chromedp.WaitNotVisible(chromedp.CSS("#operate-title")))
	p.text("#waiting", "no node has let this one in yet")
	f.set(func() { f.joining = false })
	p.ready(3)
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#waiting")), chromedp.WaitVisible(chromedp.CSS("#operate-title")))
}

// A stream that goes on where an earlier one broke begins with what changed since, or
// with nothing.
func TestResume(t *testing.T) {
	f := newFake(t, 4, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
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

// The versions of an agent that was restarted begin anew, and it is believed.
func TestAgentRestarts(t *testing.T) {
	f := newFake(t, 4, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
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
	p.text("#events", "node-1 restarted")
	f.leave("node-4")
	p.ready(5)
	p.once("node-3 left")
	p.once("node-4 left: ")
	p.owns(f)
}

// once checks that the log has one entry of something.
func (p *tab) once(what string) {
	p.t.Helper()
	script := fmt.Sprintf(`[...document.querySelectorAll("#events .what")].filter(e => e.textContent.startsWith(%q)).length`, what)
	if n := eval[int](p, script); n != 1 {
		p.t.Errorf("%d entries of %s:\n%s", n, what, eval[string](p, `document.getElementById("events").innerText`))
	}
}

// owns waits until the page has each node's count of partitions as f does.
func (p *tab) owns(f *fake) {
	p.t.Helper()
	for id, n := range f.state.Table.Balance().Counts {
		p.until(fmt.Sprintf("%s owns %d", id, n), fmt.Sprintf(`[...document.querySelectorAll("#members-body tr")]
			.some(r => r.querySelector(".id").textContent === %q && r.querySelector(".partitions").textContent === "%d")`, id, n))
	}
}

// What an answer told before the event came is not told again.
func TestToldOnce(t *testing.T) {
	f := newFake(t, 5, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(5)
	f.set(func() { f.muted = true })
	f.change(func() { f.members[3].Incarnation++ })
	p.text("#events", "node-4 restarted")
	f.unmute()
	f.set(func() { f.muted = true })
	f.leave("node-3")
	p.text("#events", "partitions moved from node-3")
	f.join(6)
	p.text("#events", "partitions moved from 4 nodes to node-6")
	f.set(func() { f.muted = false })
	f.change(func() { f.members[0].Incarnation++ }) // and tells of all that was held back
	p.text("#events", "node-1 restarted")
	f.leave("node-2")
	p.text("#events", "node-2 left")
	p.owns(f)
	for _, what := range []string{"node-3 left", "node-6 joined", "node-4 restarted", "node-1 restarted", "node-2 left"} {
		p.once(what)
	}
	p.owns(f)
}

// An answer that an event has overtaken brings figures, and nobody back.
func TestOverdue(t *testing.T) {
	f := newFake(t, 4, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
	f.change(func() {
		f.overdue, f.members[1].Load = true, 1717
		f.members = slices.Delete(f.members, 2, 3)
	})
	p.text("#members-body .load", "1,717")
	p.ready(3)
	p.owns(f)
	if seen := eval[string](p, `document.getElementById("events").innerText`); strings.Contains(seen, "node-99") {
		t.Errorf("an old answer is news: %s", seen)
	}
}

// What was looked up is looked up again when something has changed.
func TestLookupFollows(t *testing.T) {
	f := newFake(t, 4, 256)
	p := open(t, f.URL, 1440, 900)
	p.ready(4)
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

// That nobody owns anything is seen at once.
func TestNobody(t *testing.T) {
	f := newFake(t, 3, 64)
	p := open(t, f.URL, 1440, 900)
	p.ready(3)
	eval[any](p, `window.nameless = false; new MutationObserver(() => {
		nameless ||= [...document.querySelectorAll("#legend li")].some(e => /^[-\s\d]*$/.test(e.textContent));
	}).observe(document.getElementById("legend"), { childList: true, subtree: true, characterData: true }); 1`)
	f.change(func() {
		for i := range f.members {
			f.members[i].State = lease.Draining
		}
	})
	p.text("#events", "64 partitions moved from 3 nodes to nobody")
	p.text("#advice", "Nobody owns anything")
	p.text("#partitions-note", "owned by nobody")
	p.until("no figure of balance", `document.getElementById("cv").textContent === "–"`)
	if eval[bool](p, "nameless") {
		t.Error("the legend had a node without a name")
	}
	f.change(func() { f.members[1].State = lease.Active })
	p.owns(f)
	p.do(chromedp.WaitNotVisible(chromedp.CSS("#advice")))
}
