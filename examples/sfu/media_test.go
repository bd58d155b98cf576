//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// TestCertificate: a node creates its certificate once, when it starts. The certificate must be valid for a long time,
// because clients cannot join a node whose certificate has expired.
func TestCertificate(t *testing.T) {
	t.Parallel()
	all, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	if at := all[0].Expires(); at.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("the certificate of a node expires at %v", at)
	}
}

// bothWays returns a connection whose media lines both send and receive, because addTrack creates such lines.
func (p *pair) bothWays(room string) (*link, *player) {
	p.Helper()
	sends, err := newPublisher(room)
	if err != nil {
		p.Fatal(err)
	}
	p.crowd.spawn(func() { sends.run(p.ctx) })
	plays := &player{room: fingerprint(room)}
	l := p.bare(&bot{crowd: p.crowd, ctx: p.ctx, room: room})
	l.pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { plays.receive(l, t) })
	for _, track := range []webrtc.TrackLocal{sends.sound, sends.image} {
		sender, err := l.pc.AddTrack(track)
		if err != nil {
			p.Fatal(err)
		}
		p.crowd.spawn(func() { sends.feedback(sender) })
	}
	return l, plays
}

// TestBothWays: if a participant's media lines both send and receive, media flows in both directions.
func TestBothWays(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	home, err := (&bot{crowd: p.crowd, ctx: p.ctx}).resolve(p.ctx, "room")
	if err != nil {
		t.Fatal(err)
	}
	var players []*player
	for range 2 {
		l, plays := p.bothWays("room")
		l.home = home
		if err := l.dial(p.ctx, p.crowd.http, false, func(reconnect.Directive) {}); err != nil {
			t.Fatal(err)
		}
		players = append(players, plays)
	}
	for _, plays := range players {
		plays.hears(t)
	}
}

// TestOneWay: the media lines in a WHIP or WHEP offer may both send and receive. The answer must allow only one
// direction.
func TestOneWay(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	source, _ := p.bothWays("room")
	p.post(source, 0, "/whip/room")
	sink, plays := p.bothWays("room")
	p.post(sink, 0, "/whep/room")
	plays.hears(t)
	for way, l := range map[string]*link{"a=recvonly": source, "a=sendonly": sink} {
		if answer := l.pc.RemoteDescription().SDP; strings.Count(answer, way) != 2 || strings.Contains(answer, "a=sendrecv") {
			t.Errorf("not %s: %s", way, answer)
		}
	}
	if n := p.nodes[0].fleet.stats().Load + p.nodes[1].fleet.stats().Load; n != 1 {
		t.Errorf("the room of a publisher and a subscriber costs %d", n)
	}
}
