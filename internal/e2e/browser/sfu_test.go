//go:build linux

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

var times = flag.Int("sfu", 1, "how often TestSFU kills and drains the node of a call")

// mediaServer builds examples/sfu, which is a separate module.
var mediaServer = builds("../../../examples/sfu", ".")

// servers are the processes of examples/sfu, which share one Redis.
type servers struct {
	*testing.T
	exe   string
	redis *redistest.Server
	nodes map[string]*mediaNode
	gone  string // the node that ended last
	ever  []*agentproc.Process
	notes []string // what was wrong
}

type mediaNode struct {
	*agentproc.Process
	agentproc.Addrs
}

// mediaStats is a part of what a node reports about itself.
type mediaStats struct {
	Members, Watched, Hostings, Peers int
	Rooms                             map[string]int64
}

func startServers(t *testing.T, ids ...string) *servers {
	t.Helper()
	inputs(t, "sfu/*.go", "sfu/web/*")
	exe, err := mediaServer()
	if err != nil {
		t.Fatal(err)
	}
	s := &servers{T: t, exe: exe, redis: redistest.Start(t), nodes: make(map[string]*mediaNode)}
	for _, id := range ids {
		s.add(id)
	}
	return s
}

// add starts a node, and waits until each node sees all others and would notice if they crashed.
func (s *servers) add(id string) {
	s.Helper()
	var seeds []string
	for _, n := range s.nodes {
		seeds = append(seeds, n.Gossip)
	}
	cmd := exec.Command(s.exe, "node", "-id", id, "-redis", s.redis.URL(), "-join", strings.Join(seeds, ","),
		"-room-max", "1", "-exit-on-stdin-close")
	cmd.Env = agentproc.Environ()
	p := agenttest.Start(s.T, cmd)
	s.ever = append(s.ever, p)
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	defer cancel()
	addrs, err := p.Await(ctx)
	if err != nil {
		s.Fatalf("%v\n%s", err, p.Log)
	}
	s.nodes[id] = &mediaNode{p, addrs}
	redistest.Eventually(s, "the nodes to meet", func() error {
		for id, st := range s.stats() {
			if st.Members != len(s.nodes) || st.Watched < len(s.nodes)-1 {
				return fmt.Errorf("%s: %+v", id, st)
			}
		}
		return nil
	})
}

func (s *servers) get(id, path string, into any) error {
	answer, err := http.Get("http://" + s.nodes[id].HTTP + path)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: %s", path, id, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

func (s *servers) stats() map[string]mediaStats {
	s.Helper()
	all := make(map[string]mediaStats)
	for id := range s.nodes {
		var st mediaStats
		if err := s.get(id, "/stats", &st); err != nil {
			s.Fatal(err)
		}
		all[id] = st
	}
	return all
}

// home returns where a room lives, according to any node.
func (s *servers) home(room string) (d reconnect.Directive, err error) {
	for id := range s.nodes {
		return d, s.get(id, "/where/"+room, &d)
	}
	return d, errors.New("no node")
}

// page opens the page of a node.
func (s *servers) page(id, query string) *tab {
	s.Helper()
	p := open(s.T, "http://"+s.nodes[id].HTTP+"/?"+query, 1280, 900)
	eval[any](p, watch)
	return p
}

// watch makes the page count how often it closes a connection before every picture arrives over the new connection.
const watch = `window.early = 0;
	const check = () => {
		const node = document.getElementById("node").textContent;
		if ([...document.querySelectorAll("#pictures li")].some(e => e.dataset.node !== node)) early++;
	};
	const { send } = WebSocket.prototype, { close } = RTCPeerConnection.prototype;
	WebSocket.prototype.send = function (data) {
		if (data.includes('"done"')) check();
		send.call(this, data);
	};
	RTCPeerConnection.prototype.close = function () {
		if (this.connectionState === "connected") check();
		close.call(this);
	}; 1`

// shownFrames returns the number of frames of each picture that a page plays from its current node.
const shownFrames = `[...document.querySelectorAll("#pictures li")]
	.filter(e => e.dataset.node === document.getElementById("node").textContent)
	.map(e => +e.dataset.frames)`

// plays waits until a page plays one picture from its current node, and further frames arrive.
func plays(p *tab) {
	p.t.Helper()
	p.text("#state", "In the call")
	p.until("a picture", shownFrames+".length === 1")
	p.until("further frames", fmt.Sprintf("%s[0] > %d", shownFrames, eval[[]int](p, shownFrames)[0]+10))
}

func field(p *tab, id string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf(`document.getElementById(%q).textContent`, id))
}

// fault runs do for the node of a room, and waits until the pages play the room from another node. It returns the
// longest time between two decoded frames on any page.
func (s *servers) fault(what, room string, pages []*tab, do func(n *mediaNode)) time.Duration {
	s.Helper()
	before, err := s.home(room)
	if err != nil {
		s.Fatal(err)
	}
	id := string(before.To)
	hostings := s.hostings(id)
	reset(pages)
	n := s.nodes[id]
	do(n)
	<-n.Done()
	delete(s.nodes, id)
	s.gone = id
	var after reconnect.Directive
	redistest.Eventually(s, "the pages to be where "+room+" is, after "+what, func() error {
		if after, err = s.home(room); err != nil {
			return err
		}
		for _, p := range pages {
			if at, epoch := field(p, "node"), field(p, "epoch"); at == id || at != string(after.To) || epoch != fmt.Sprint(after.Epoch) {
				return fmt.Errorf("a page is at %s with epoch %s, the room was %+v and is %+v", at, epoch, before, after)
			}
		}
		return nil
	})
	for _, p := range pages {
		plays(p)
	}
	gap := longest(pages)
	if after.Epoch <= before.Epoch {
		s.note("%s: the room was %+v and is %+v", what, before, after)
	}
	redistest.Eventually(s, "one host", func() error {
		d, err := s.home(room)
		all := s.stats()
		maps.DeleteFunc(all, func(_ string, st mediaStats) bool { _, hosts := st.Rooms[room]; return !hosts })
		if hosts := slices.Collect(maps.Keys(all)); err == nil && !slices.Equal(hosts, []string{string(d.To)}) {
			err = fmt.Errorf("%s lives at %s, and is hosted by %q", room, d.To, hosts)
		}
		return err
	})
	// A relay may first move to the node of its room, and then has to move again.
	if began := s.hostings(id) - hostings; began != 1 && !strings.Contains(room, "~") {
		s.note("%s: the room began %d times", what, began)
	}
	return gap
}

// reset starts a new measurement.
func reset(pages []*tab) {
	for _, p := range pages {
		eval[any](p, `document.getElementById("reset").click(); document.getElementById("breaks").replaceChildren(); 1`)
	}
}

// longest returns the longest time between two decoded frames on any page since reset.
func longest(pages []*tab) (gap time.Duration) {
	for _, p := range pages {
		gap = max(gap, time.Duration(eval[int](p, `+document.getElementById("longest").textContent`))*time.Millisecond)
	}
	return gap
}

// hostings returns how many times the nodes, except one, have started to host a room.
func (s *servers) hostings(not string) (n int) {
	s.Helper()
	for id, st := range s.stats() {
		if id != not {
			n += st.Hostings
		}
	}
	return n
}

func (s *servers) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *servers) kill(n *mediaNode) {
	s.Helper()
	if err := n.Kill(); err != nil {
		s.Fatal(err)
	}
}

func (s *servers) drain(n *mediaNode) {
	s.Helper()
	if err := n.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	<-n.Done()
	if !n.State().Success() {
		s.note("the node did not end in order: %s\n%s", n.State(), n.Log)
	}
}

// unbroken checks that a page lost no connection, and moved because of a directive, make-before-break.
func (s *servers) unbroken(what string, p *tab) {
	s.Helper()
	text := field(p, "breaks")
	if strings.Contains(text, "connection") || !strings.Contains(text, "(directive: ") {
		s.note("%s: %s", what, text)
	}
	if early := eval[int](p, "early"); early > 0 {
		s.note("%s: the page let go of a connection %d times before the new one played", what, early)
	}
}

// TestSFU: pages with fake cameras decode and play each other's pictures, even after the node of their room is killed
// or drained. A page that watches a large room is sent to a relay, and follows the relay when it moves. With -sfu 5,
// the test prints how long pictures stand still. A process that gets no CPU rightly loses its rooms, so the test then
// tries again.
func TestSFU(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a browser")
	}
	const tries = 4
	for range tries {
		s := startServers(t, "a", "b", "c")
		s.calls()
		s.relays()
		starved := agenttest.Starved(s.ever)
		for _, n := range s.nodes {
			_ = n.Kill()
		}
		if starved == "" || len(s.notes) == 0 {
			for _, note := range s.notes {
				t.Error(note)
			}
			return
		}
		t.Logf("again, because a node had no CPU: %s: %q", starved, s.notes)
	}
	t.Error("in no trial the nodes had enough CPU for their leases")
}

// calls kills and drains the node of two pages that play each other's pictures.
func (s *servers) calls() {
	s.Helper()
	const room = "call"
	pages := []*tab{s.page("a", "fake&room="+room), s.page("b", "fake&room="+room)}
	for _, p := range pages {
		plays(p)
	}
	looks(pages[0])
	var kills, drains, joins []time.Duration
	join := func() {
		reset(pages)
		s.add(s.gone)
		joins = append(joins, longest(pages))
	}
	for i := range *times {
		what := fmt.Sprint("kill -9, ", i+1)
		kills = append(kills, s.fault(what, room, pages, s.kill))
		join()
		what = fmt.Sprint("SIGTERM, ", i+1)
		drains = append(drains, s.fault(what, room, pages, s.drain))
		for _, p := range pages {
			s.unbroken(what, p)
		}
		join()
	}
	s.print("a node joins", joins)
	s.print("kill -9", kills)
	s.print("SIGTERM", drains)
	for _, p := range pages {
		p.do(press("#leave"))
	}
}

// looks checks the contrast in both themes, that all controls have names, and that nothing is wider than a small
// screen.
func looks(p *tab) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		media(p, "prefers-color-scheme", theme)
		if low := eval[string](p, contrast); low != "" {
			p.t.Errorf("too little contrast in %s:\n%s", theme, low)
		}
	}
	const nameless = `[...document.querySelectorAll("button, input, select, video, [role=img]")].filter(e =>
		e.checkVisibility() && !e.closest("#waiting") && !(e.ariaLabel || e.labels?.length || e.textContent.trim())
	).map(e => e.outerHTML).join("\n")`
	if got := eval[string](p, nameless); got != "" {
		p.t.Errorf("without a name: %s", got)
	}
	const narrow = 400
	p.do(chromedp.EmulateViewport(narrow, 900))
	if width := eval[int](p, "document.documentElement.scrollWidth"); width > narrow {
		p.t.Errorf("the page is %d wide on a screen of %d", width, narrow)
	}
	p.do(chromedp.EmulateViewport(1280, 900))
}

// relays drains the node of the relay to which a page was sent.
func (s *servers) relays() {
	s.Helper()
	const room = "large"
	source := s.page("a", "fake&room="+room)
	source.text("#state", "In the call")
	first := s.page("b", "watch&room="+room)
	plays(first)
	second := s.page("c", "watch&room="+room)
	plays(second)
	if a, b := field(first, "room"), field(second, "room"); a != room || b != room+"~1" || field(first, "node") == field(second, "node") {
		s.note("the pages watch %s at %s and %s at %s", a, field(first, "node"), b, field(second, "node"))
	}
	drained := s.fault("SIGTERM to a relay", room+"~1", []*tab{second}, s.drain)
	s.unbroken("SIGTERM to a relay", second)
	s.print("SIGTERM to a relay", []time.Duration{drained})
	plays(first)
}

func (s *servers) print(what string, gaps []time.Duration) {
	slices.Sort(gaps)
	s.Logf("%s, %d times: the longest time between two decoded frames: median %v, max %v",
		what, len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1])
}
