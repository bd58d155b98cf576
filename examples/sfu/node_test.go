//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// pair contains two nodes in this process, and a crowd that knows both.
type pair struct {
	*testing.T
	nodes []*node
	crowd *crowd
	ctx   context.Context
}

func startPair(t *testing.T) *pair {
	t.Helper()
	redis := redistest.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	p := &pair{T: t, ctx: ctx}
	log := &agentproc.Log{Tail: 100}
	var join, doors []string
	for _, id := range []string{"a", "b"} {
		const capacity = 1000
		n, err := startNode(ctx, nodeConfig{listen: "127.0.0.1:0", media: "127.0.0.1:0", redis: redis.URL(), Config: cluster.Config{
			ID: id, Bind: "127.0.0.1:0", Join: join, Capacity: capacity, Network: cluster.Local, LeaseTTL: 10 * time.Second,
			Log: slog.New(slog.NewTextHandler(log, nil)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		join, doors = append(join, n.fleet.agent.Addr()), append(doors, n.fleet.agent.Config().APIAddr)
		p.nodes = append(p.nodes, n)
	}
	for _, n := range p.nodes {
		<-n.fleet.agent.Ready()
		redistest.Eventually(t, "two members", func() error {
			if m := n.fleet.stats().Members; m != len(p.nodes) {
				return fmt.Errorf("%d", m)
			}
			return nil
		})
	}
	var err error
	if p.crowd, err = newCrowd(func() []string { return doors }, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of both nodes:\n%s", log)
		}
		cancel()
		p.crowd.close()
		for _, n := range p.nodes {
			if err := n.close(context.Background()); err != nil {
				t.Log(err) // the last node cannot move its rooms to another node
			}
		}
	})
	return p
}

// post sends an offer to a node, which may redirect it to the host of the room. It returns the URL of the session.
func (p *pair) post(l *link, at int, path string) (session string) {
	p.Helper()
	offer, err := offer(l.pc)
	if err != nil {
		p.Fatal(err)
	}
	url := "http://" + p.nodes[at].fleet.agent.Config().APIAddr + path
	r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, url, strings.NewReader(offer))
	if err != nil {
		p.Fatal(err)
	}
	resp, err := p.crowd.http.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusCreated {
		p.Fatalf("%s: %s, %s, %v", url, resp.Status, answer, err)
	}
	if err := l.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: string(answer)}); err != nil {
		p.Fatal(err)
	}
	return "http://" + resp.Request.URL.Host + resp.Header.Get("Location")
}

// link returns a connection without a WebSocket.
func (p *pair) link(b *bot) *link {
	p.Helper()
	l := p.bare(b)
	if err := b.prepare(l); err != nil {
		p.Fatal(err)
	}
	return l
}

// bare returns a connection without a WebSocket and without tracks.
func (p *pair) bare(b *bot) *link {
	p.Helper()
	pc, err := p.crowd.api.NewPeerConnection(p.crowd.config)
	if err != nil {
		p.Fatal(err)
	}
	l := &link{outbound: newOutbound(reconnect.Directive{}), bot: b}
	l.pc = pc
	l.watch()
	p.Cleanup(l.close)
	return l
}

// hears waits until there is something to play.
func (p *player) hears(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "sound and picture", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.sound.at.IsZero() || p.image.at.IsZero() {
			return errors.New("nothing to play")
		}
		return nil
	})
}

// TestWHIP: a publisher with WHIP and subscribers with WHEP can send their offers to any node. They join the same call
// as a subscriber with a WebSocket, even if the room's name contains a slash. DELETE ends a session.
func TestWHIP(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	const room, escaped = "team/standup", "team%2Fstandup"
	sends, err := newPublisher(room)
	if err != nil {
		t.Fatal(err)
	}
	p.crowd.spawn(func() { sends.run(p.ctx) })
	source := p.link(&bot{crowd: p.crowd, ctx: p.ctx, sends: sends})
	session := p.post(source, 0, "/whip/"+escaped)
	for at := range p.nodes { // one of them redirects
		plays := &player{room: fingerprint(room)}
		p.post(p.link(&bot{crowd: p.crowd, ctx: p.ctx, plays: plays}), at, "/whep/"+escaped)
		plays.hears(t)
	}
	if err := p.crowd.join(p.ctx, room, false); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the subscriber by WebSocket", p.crowd.settled)
	for _, want := range []int{http.StatusOK, http.StatusNotFound} {
		r, err := http.NewRequestWithContext(p.ctx, http.MethodDelete, session, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, "the end of the session", func() error {
			resp, err := p.crowd.http.Do(r)
			if err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
				return fmt.Errorf("%s, %w", resp.Status, err)
			}
			return nil
		})
	}
}

// TestPage: each node serves the page with its parts, and everything that the page requests from other nodes.
func TestPage(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	get := func(at int, path string) (string, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, "http://"+p.nodes[at].addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.crowd.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, resp.Status, err)
		}
		return string(body), resp.Header
	}
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/web/page.css": "text/css; charset=utf-8",
		"/web/page.mjs": "text/javascript; charset=utf-8", "/reconnect.mjs": "text/javascript; charset=utf-8",
	} {
		if _, header := get(0, path); header.Get("Content-Type") != want {
			t.Errorf("%s is %s", path, header.Get("Content-Type"))
		}
	}
	for _, path := range []string{"/overview", "/where/room"} {
		if _, header := get(0, path); header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("the page of another node cannot read %s", path)
		}
	}
	for at := range p.nodes {
		body, _ := get(at, "/overview")
		for _, n := range p.nodes {
			if !strings.Contains(body, n.addr) {
				t.Errorf("node %d does not name %s: %s", at, n.addr, body)
			}
		}
	}
}

// TestWrongNode: a client with an outdated directive gets the current directive from the node that it reaches.
func TestWrongNode(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	b := &bot{crowd: p.crowd, room: "room", ctx: p.ctx, plays: &player{room: fingerprint("room")}}
	home, err := b.resolve(p.ctx, "room")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range p.nodes {
		if cfg := n.fleet.agent.Config(); cfg.APIAddr != home.Addr { // as if the room had been there earlier
			home.To, home.Addr, home.Epoch = lease.NodeID(cfg.ID), cfg.APIAddr, home.Epoch-1
			break
		}
	}
	if err := b.to("room").Follow(p.ctx, home); err != nil {
		t.Fatal(err)
	}
	if b.newest == nil || b.newest.home.Addr == home.Addr {
		t.Errorf("the bot is at %+v", b.newest)
	}
	b.newest.close()
}

// TestSlot: a subscriber sees a single stream, even if the publisher behind a slot changes.
func TestSlot(t *testing.T) {
	t.Parallel()
	track, err := webrtc.NewTrackLocalStaticRTP(opus(), "audio", "x")
	if err != nil {
		t.Fatal(err)
	}
	s, first, second := &slot{track: track}, new(source), new(source)
	write := func(from *source, seq uint16, time uint32, wantSeq uint16, wantTime uint32) {
		t.Helper()
		if s.write(from, &rtp.Packet{Header: rtp.Header{SequenceNumber: seq, Timestamp: time}}); s.seq != wantSeq || s.time != wantTime {
			t.Errorf("%d at %d became %d at %d, want %d at %d", seq, time, s.seq, s.time, wantSeq, wantTime)
		}
	}
	write(first, 65535, 100, 65535, 100)
	write(first, 1, 300, 1, 300) // a lost packet leaves a gap in the numbers
	write(second, 40000, 7, 2, 301)
	write(second, 40001, 17, 3, 311)
	write(first, 9, 1100, 4, 312)
}

// TestPlayer: a picture can be played only if the player has received a keyframe and all pictures since then.
func TestPlayer(t *testing.T) {
	t.Parallel()
	p := &player{room: fingerprint("r")}
	old, fresh := &link{outbound: outbound{order: 1}, bot: &bot{crowd: new(crowd)}}, &link{outbound: outbound{order: 2}}
	at := time.Now()
	take := func(l *link, key bool, n uint64, after time.Duration, needsKey bool, worst time.Duration) {
		t.Helper()
		at = at.Add(after)
		if p.take(l, true, picture(key, n, p.room), at) != needsKey || p.image.worst != worst {
			t.Errorf("picture %d: the longest gap is %v, want %v; needs a keyframe: %v", n, p.image.worst, worst, !needsKey)
		}
	}
	take(old, false, 1, 0, true, 0)
	take(old, true, 2, 0, false, 0)
	take(old, false, 3, time.Second, false, time.Second)
	take(old, false, 5, 2*time.Second, true, time.Second)   // one is missing
	take(fresh, false, 6, time.Second, true, time.Second)   // this picture cannot be decoded
	take(fresh, true, 7, time.Second, false, 4*time.Second) // since 3
	take(old, true, 8, 9*time.Second, false, 4*time.Second) // the bot plays a newer link
	take(fresh, false, 8, 0, false, 9*time.Second)
	p.take(fresh, false, make([]byte, soundSize), at)
	if p.strays != 1 {
		t.Error("a packet of another room is not counted")
	}
}

// TestRoostIsSmall: the part of this SFU that uses roost's rooms is one file with fewer than 125 lines of code. All
// other files only contain roost's configuration and directives.
func TestRoostIsSmall(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	const most = 125
	uses := regexp.MustCompile(`"github.com/roost-cluster/roost/(cluster/affinity(/presence)?"|placement|lease)`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code := 0
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				code++
			}
		}
		switch {
		case name == "room.go":
			if code >= most {
				t.Errorf("room.go has %d lines of code", code)
			}
		case !strings.HasSuffix(name, "_test.go") && uses.Match(text):
			t.Errorf("%s is about roost, too", name)
		}
	}
}
