package main

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	vp8codec "github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// If a room has more subscribers than one node may serve, it uses relays: "room~1" on another node and, when
// that relay is full, "room~2" on a third. The publishers are always on the room's node. From that node, each
// relay receives every stream of the room once, and forwards it to its own subscribers.

// otherRoomError redirects a subscriber to a relay, or a publisher from a relay to the room.
type otherRoomError struct{ to reconnect.Directive }

func (e *otherRoomError) Error() string { return "this participant belongs in " + e.to.Room }

// directed returns the node that a participant should go to. err is the error of serve, or the cause of its context's
// end.
func directed(err error) (reconnect.Directive, bool) {
	if other, ok := errors.AsType[*otherRoomError](err); ok {
		return other.to, true
	}
	return elsewhere(err)
}

// serve runs a function for a participant. serve returns an otherRoomError if the participant has to go to
// another node. A subscriber is sent to a relay if this node already has the maximum number of subscribers. A
// publisher that comes to a relay is sent to the room, because relays send nothing to their room. In a relay,
// the call that run receives forwards the streams of the room's publishers.
func (n *node) serve(ctx context.Context, name string, in message, run func(context.Context, *call, reconnect.Directive) error) error {
	senders := 0
	if sends(in.Offer) {
		senders = 1
		if names := chain(name, 0); len(names) > 1 {
			to, err := n.fleet.apart(ctx, names[:1], 0)
			if err != nil {
				return err
			}
			return &otherRoomError{to}
		}
	}
	return n.fleet.serve(ctx, name, senders, func(lost context.Context, c *call, home reconnect.Directive) error {
		if senders == 0 && !in.Relay && n.most > 0 {
			if err := n.seat(ctx, name, c); err != nil {
				return err
			}
			defer c.unseat()
		}
		defer n.pull(name, c)()
		return run(lost, c, home)
	})
}

// sends reports whether an offer sends tracks.
func sends(offer string) bool {
	return strings.Contains(offer, "a=sendonly") || strings.Contains(offer, "a=sendrecv")
}

// seat counts a subscriber, or returns an otherRoomError that redirects it to a relay. If no relay is
// available, this node serves the subscriber anyway.
func (n *node) seat(ctx context.Context, name string, c *call) error {
	if c.seat(n.most) {
		return nil
	}
	names := chain(name, 1)
	if len(names) > maxRelays+1 {
		c.seat(math.MaxInt)
		return nil
	}
	to, err := n.fleet.apart(ctx, names, n.most)
	if err == nil && to.Addr != "" && to.Addr != n.addr {
		return &otherRoomError{to}
	}
	n.log.Warn("no relay", "room", name, "err", err)
	c.seat(math.MaxInt)
	return nil
}

// pull makes a relay receive the streams of its room. pull is called for each participant of the relay. The
// relay stops when the last participant has left. If the name is not that of a relay, pull does nothing.
func (n *node) pull(name string, c *call) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(chain(name, 0)) == 1 {
		return func() {}
	}
	if c.relay == nil {
		c.relay = newRelay(n, name, c)
	}
	e := c.relay
	e.users++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.users--; e.users == 0 {
			e.end()
			c.relay = nil
		}
	}
}

// relay receives the streams of a room from the room's node, and follows the room when it moves.
type relay struct {
	node   *node
	chain  []string
	call   *call
	ctx    context.Context // ends when the last participant has left
	end    context.CancelFunc
	users  int // guarded by call.mu
	driver reconnect.Driver

	mu    sync.Mutex
	links []*upstream // oldest first
	made  int
	lines [2 * pulled]line
}

// pulled is the number of audio tracks that a relay can receive, and also the number of video tracks.
const pulled = 8

func kindOf(line int) webrtc.RTPCodecType {
	if line < pulled {
		return webrtc.RTPCodecTypeAudio
	}
	return webrtc.RTPCodecTypeVideo
}

// line is the state of a media line, counted across all upstreams. A line has no source while no packets
// arrive.
type line struct {
	from   *upstream
	source *source
	at     time.Time // of the last packet
	end    context.CancelFunc
}

func newRelay(n *node, name string, c *call) *relay {
	e := &relay{node: n, chain: chain(name, 0), call: c}
	e.ctx, e.end = context.WithCancel(n.ctx)
	const attempt, soon = 5 * time.Second, time.Millisecond // short, because there is only one relay per node
	e.driver = reconnect.Driver{
		Connect: e.connect, AttemptTimeout: attempt, Pace: reconnect.Pace{Spread: soon}, Log: slog.New(slog.DiscardHandler),
		Resolve: func(ctx context.Context, room string) (reconnect.Directive, error) {
			lost := reconnect.Directive{Room: room}
			if u := e.newest(); u != nil {
				lost = u.home
			}
			return n.fleet.home(ctx, lost)
		},
	}
	go e.run()
	return e
}

// run keeps an upstream to the node of the room.
func (e *relay) run() {
	go e.watch()
	go e.seek(nil)
	go e.keepApart(e.node.fleet.apart)
	for d := range e.node.fleet.follow(e.ctx, e.chain[0]) {
		go e.follow(d)
	}
}

// keepApart moves the relay if the room or a relay with a lower number has moved to the relay's node. Relays
// with higher numbers move away from this relay in the same way. The names of relays come from clients, and
// looking up a name without a pin costs a call to the store. Therefore relays with higher numbers pause
// longer between checks.
func (e *relay) keepApart(apart func(context.Context, []string, int) (reconnect.Directive, error)) {
	pause := time.Duration(len(e.chain)-1) * time.Second
	for wait(e.ctx, pause); e.ctx.Err() == nil; wait(e.ctx, pause) {
		if _, err := apart(e.ctx, e.chain, 0); err != nil && e.ctx.Err() == nil {
			e.node.log.Warn("relay may be at its room", "room", e.chain[0], "err", err)
		}
	}
}

func (e *relay) follow(d reconnect.Directive) { _ = e.driver.Follow(e.ctx, d) } // if it fails, seek reports that

// seek reconnects to the node of the room. seek returns when there is an upstream newer than u, or when the
// relay ends.
func (e *relay) seek(u *upstream) {
	lost := reconnect.Directive{Room: e.chain[0]}
	if u != nil {
		lost = u.home
	}
	for e.ctx.Err() == nil && e.newest() == u && (u == nil || u.over()) {
		if err := e.driver.Lost(e.ctx, lost); err != nil && e.ctx.Err() == nil {
			e.node.log.Warn("relay without its room", "room", lost.Room, "err", err)
			wait(e.ctx, time.Second)
		}
	}
}

func (e *relay) newest() *upstream {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.links) == 0 {
		return nil
	}
	return e.links[len(e.links)-1]
}

// connect opens an upstream. The previous upstream remains until the new one carries as many streams: see
// take.
func (e *relay) connect(ctx context.Context, d reconnect.Directive) (err error) {
	u := &upstream{outbound: newOutbound(d), relay: e}
	if u.pc, err = e.node.media.calls.NewPeerConnection(e.node.media.config); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	if err := u.prepare(); err != nil {
		return err
	}
	if err := u.dial(ctx, http.DefaultClient, true, func(d reconnect.Directive) { go e.follow(d) }); err != nil {
		return err
	}
	go u.listen()
	if err := u.secured(ctx); err != nil {
		return err
	}
	return e.settle(u)
}

// settle makes u the newest upstream.
func (e *relay) settle(u *upstream) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil || u.over() {
		return reconnect.ErrLost
	}
	e.made++
	u.order = e.made
	e.links = append(e.links, u)
	return nil
}

// take returns the source to forward a packet to, or nil if the packet is dropped. s is the source of the
// packet's track. A new upstream takes over line by line, once it carries as many lines as are in use. Video
// lines switch at a keyframe.
func (e *relay) take(u *upstream, i int, payload []byte, s *source) *source {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, now := &e.lines[i], time.Now()
	u.heard[i] = now
	if l.from != u || l.source == nil {
		old := l.from
		switch {
		case old != nil && old != u && !old.over() && l.source != nil && (u.order < old.order || !e.complete(u, now)):
			return nil
		case old != u && kindOf(i) == webrtc.RTPCodecTypeVideo && !startsKeyframe(payload):
			s.askKeyframe()
			return nil
		}
		e.begin(l, u, s)
	}
	l.at = now
	return l.source
}

// begin makes the upstream u the source of a line.
func (e *relay) begin(l *line, u *upstream, s *source) {
	e.call.replace(l.source, s)
	if l.source == nil && s.kind == webrtc.RTPCodecTypeAudio { // a relayed audio source counts as a publisher on this node
		var ctx context.Context
		ctx, l.end = context.WithCancel(e.ctx)
		go func() {
			_ = e.node.fleet.serve(ctx, e.chain[len(e.chain)-1], 1, func(ctx context.Context, _ *call, _ reconnect.Directive) error {
				<-ctx.Done()
				return nil
			})
		}()
	}
	l.from, l.source = u, s
}

// complete reports whether an upstream carries at least as many lines as are in use.
func (e *relay) complete(u *upstream, now time.Time) bool {
	use, has := 0, 0
	for i := range e.lines {
		if e.lines[i].source != nil {
			use++
		}
		if now.Sub(u.heard[i]) < silence {
			has++
		}
	}
	return has >= use
}

// silence is how long a line keeps its slots if no packets arrive.
const silence = time.Second

// watch ends lines on which no packets arrive, and upstreams that have been replaced.
func (e *relay) watch() {
	const often = 50 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	defer e.close()
	for {
		select {
		case now := <-tick.C:
			e.tidy(now)
		case <-e.ctx.Done():
			return
		}
	}
}

func (e *relay) tidy(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.lines {
		if l := &e.lines[i]; l.source != nil && now.Sub(l.at) > silence {
			e.call.end(l.source)
			l.source = nil
			if l.end != nil {
				l.end()
			}
		}
	}
	if len(e.links) == 0 {
		return
	}
	newest := e.links[len(e.links)-1]
	used := func(u *upstream) bool {
		return slices.ContainsFunc(e.lines[:], func(l line) bool { return l.source != nil && l.from == u })
	}
	e.links = slices.DeleteFunc(e.links, func(u *upstream) bool {
		if u == newest || used(u) && !u.over() {
			return false
		}
		go u.done()
		return true
	})
}

// close closes the upstreams and ends the lines of the relay.
func (e *relay) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, u := range e.links {
		go u.close()
	}
	for i := range e.lines {
		if l := &e.lines[i]; l.source != nil {
			e.call.end(l.source)
		}
	}
}

// startsKeyframe reports whether a packet starts a VP8 keyframe, which can be decoded without earlier
// pictures.
func startsKeyframe(payload []byte) bool {
	var p vp8codec.VP8Packet
	picture, err := p.Unmarshal(payload)
	return err == nil && p.S == 1 && p.PID == 0 && len(picture) > 0 && picture[0]&1 == 0
}
