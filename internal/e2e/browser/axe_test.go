package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/lease"
)

// axe returns the script of axe-core, which checks pages against WCAG. axe-core is not part of this repository or its
// modules, so npm installs it for this test.
func axe(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	dir := t.TempDir()
	npm := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit",
		"--no-fund", "--silent", "axe-core@4.14.1")
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm (scripts/deps.sh installs it) brings no axe-core: %v\n%s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// The page violates no rule of axe at three sizes, in both themes, with problems, on the map, and in the facts of a
// node with its rooms.
func TestAxe(t *testing.T) {
	script := axe(t)
	f := newFake(t, 12, 128)
	f.set(func() {
		f.lost = []clusterhttp.Lost{
			{Profile: lease.Profile{ID: "node-98"}, Reason: lease.Crashed, AgoMS: 40_000, Partitions: 9},
			{Profile: lease.Profile{ID: "node-99"}, Reason: lease.Departed},
		}
		f.stats.Rooms.StoreDoubt = true
		f.members[3].AgeMS, f.members[4].AgeMS, f.members[5].State = 4500, 7000, lease.Draining
	})
	f.leave("node-7")
	for _, size := range [][2]int64{{390, 844}, {820, 1180}, {1440, 900}} {
		p := open(t, "about:blank", size[0], size[1])
		if _, err := chromedp.Call(p.ctx, page.SetBypassCSP, page.SetBypassCSPParams{Enabled: true}); err != nil { // axe needs a style
			t.Fatal(err)
		}
		p.do(chromedp.Navigate(f.URL))
		p.ready(11)
		p.text("#health-found [data-level=bad]", "Redis has not answered lately")
		p.do(chromedp.SetValue(chromedp.CSS("#lookup-kind"), "room"), chromedp.SendKeys(chromedp.CSS("#lookup-name"), "stand-up"+kb.Enter))
		p.text("#lookup-answer", "is pinned to")
		eval[any](p, script+"; 1")
		for _, theme := range []string{"light", "dark"} {
			media(p, "prefers-color-scheme", theme)
			where := fmt.Sprintf("%d wide, %s", size[0], theme)
			p.obeys(where)
			p.seeMap()
			p.text("#legend", "node-12")
			p.obeys(where + ", on the map")
			p.do(press("#tab-members"), press("#members-body tr:not(.gone) .name button"), chromedp.WaitVisible(chromedp.CSS("#node")))
			p.do(press("#rooms-list"))
			p.text("#rooms-body", "stand-up")
			p.obeys(where + ", of a node")
			p.do(chromedp.KeyEvent(kb.Escape), chromedp.WaitNotVisible(chromedp.CSS("#node")))
		}
	}
}

// obeys fails the test for each rule of axe that the page violates.
func (p *tab) obeys(where string) {
	p.t.Helper()
	text := eval[string](p, `axe.run(document, { resultTypes: ["violations"] }).then(r => JSON.stringify(r.violations.map(v => ({
		id: v.id,
		help: v.help,
		nodes: v.nodes.map(n => n.html.slice(0, 160) + " " + n.failureSummary.slice(0, 300)),
	}))))`)
	var found []struct {
		ID, Help string
		Nodes    []string
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		p.t.Fatal(err)
	}
	for _, v := range found {
		p.t.Errorf("%s: %s: %s: %d of\n%s", where, v.ID, v.Help, len(v.Nodes), v.Nodes[0])
	}
}
