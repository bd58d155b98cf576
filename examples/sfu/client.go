package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket/wsjson"
	"github.com/pion/interceptor"
	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// spread is short, because a node of this example has only a few dozen clients. The default of 500 ms is
// meant for thousands.
const spread = 50 * time.Millisecond

// crowd is the state that all bots share.
type crowd struct {
	api    *webrtc.API
	http   *http.Client
	config webrtc.Configuration
	doors  func() []string // addresses of the nodes that bots ask, as host:port
	report atomic.Bool     // when a node is lost, bots report it instead of resolving the room
	wait   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	bots   []*bot
	gaveUp []error
}

// spawn runs f in a goroutine that close waits for. After close, it does nothing.
func (c *crowd) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wait.Go(f)
	}
}

func newCrowd(doors func() []string, report bool) (*crowd, error) {
	engine, err := codecs()
	if err != nil {
		return nil, err
	}
	c := &crowd{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}, doors: doors}
	c.report.Store(report)
	if c.config.Certificates, err = certificate(); err != nil {
		return nil, err
	}
	s := callSettings(net.IP.IsLoopback)
	c.api = webrtc.NewAPI(webrtc.WithSettingEngine(s), webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	return c, nil
}

type bot struct {
	*crowd
	room  string
	ctx   context.Context // ends when the bot leaves
	leave context.CancelFunc
	sends *publisher // nil if the bot receives
	plays *player    // nil if the bot sends

	mu     sync.Mutex
	route  *route
	links  []*link // open links, oldest first
	newest *link   // kept after it has ended
	made   int
	breaks int       // how often the newest connection ended before there was a replacement
	lost   time.Time // when the bot noticed that it needs another connection
	found  time.Time // when the bot learned the new node
	epoch  uint64    // of the newest directive that the bot received
}

// route connects a bot to its room or to a relay of the room.
type route struct {
	reconnect.Driver
	room string
	ctx  context.Context // ends when another route replaces this one
	end  context.CancelFunc
}

// link is a bot's connection to a node.
type link struct {
	outbound
	bot   *bot
	once  sync.Once
	lost  atomic.Bool // it can still be the newest link
	video decoder
	steps steps
}

// join adds a bot to a room and returns when the bot is connected.
func (c *crowd) join(ctx context.Context, room string, publish bool) error {
	b := &bot{crowd: c, room: room}
	b.ctx, b.leave = context.WithCancel(ctx)
	ctx = b.ctx
	if publish {
		var err error
		if b.sends, err = newPublisher(room); err != nil {
			return err
		}
		c.spawn(func() { b.sends.run(ctx) })
	} else {
		b.plays = &player{room: fingerprint(room)}
	}
	c.mu.Lock()
	c.bots = append(c.bots, b)
	c.mu.Unlock()
	c.spawn(func() {
		<-ctx.Done()
		b.mu.Lock()
		links := slices.Clone(b.links)
		b.mu.Unlock()
		for _, l := range links {
			l.close()
		}
	})
	for r := b.to(room); ; r = b.current() {
		if err := r.Lost(r.ctx, reconnect.Directive{Room: r.room}); r == b.current() {
			return err
		}
	}
}

// to starts a route to a room or a relay, and ends the current route.
func (b *bot) to(room string) *route {
	r := &route{room: room, Driver: reconnect.Driver{
		Connect: b.connect, Resolve: b.resolve, AttemptTimeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler),
		Pace: reconnect.Pace{Spread: spread},
	}}
	r.ctx, r.end = context.WithCancel(b.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.route != nil {
		b.route.end()
	}
	b.route, b.epoch = r, 0
	return r
}

func (b *bot) current() *route {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.route
}

// close waits until all bots have finished. The context of the bots must have ended.
func (c *crowd) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wait.Wait()
	c.http.CloseIdleConnections()
}

// connect opens a connection to a node. The old connection stays open until media plays from the new one: see
// player.
func (b *bot) connect(ctx context.Context, d reconnect.Directive) (err error) {
	l := &link{outbound: newOutbound(d), bot: b}
	b.mu.Lock()
	b.made++
	l.order = b.made
	b.mu.Unlock()
	l.steps.at(&l.steps.began)
	if l.pc, err = b.api.NewPeerConnection(b.config); err != nil {
		return err
	}
	l.watch()
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := b.prepare(l); err != nil {
		return err
	}
	if err := l.dial(ctx, b.http, false, func(d reconnect.Directive) { b.follow(l, d) }); err != nil {
		return err
	}
	l.steps.at(&l.steps.answered)
	b.spawn(func() { b.listen(l) })
	if err := l.secured(ctx); err != nil {
		return err
	}
	return b.settle(l)
}

// prepare adds the tracks that the bot sends, or those that it wants to receive.
func (b *bot) prepare(l *link) error {
	if b.sends != nil {
		return b.sends.attach(l)
	}
	l.pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { b.plays.receive(l, t) })
	receive := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeAudio, webrtc.RTPCodecTypeVideo} {
		if _, err := l.pc.AddTransceiverFromKind(kind, receive); err != nil {
			return err
		}
	}
	return nil
}

// settle makes a connected link the newest link of the bot.
func (b *bot) settle(l *link) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.over() {
		return reconnect.ErrLost
	}
	l.steps.set(b.lost, b.found)
	if b.sends != nil {
		for _, old := range b.links {
			old.done()
		}
	}
	b.links, b.newest = append(b.links, l), l
	return nil
}

// listen receives messages from the node until the WebSocket closes.
func (b *bot) listen(l *link) {
	for {
		var in message
		if err := wsjson.Read(b.ctx, l.ws, &in); err != nil {
			break
		}
		if in.Home != nil {
			b.follow(l, *in.Home)
		}
	}
	l.close()
	b.gone(l)
}

// follow moves the bot to the node in a directive that was received over l. The directive can be for the room
// or relay of the bot, or redirect it to another relay.
func (b *bot) follow(l *link, d reconnect.Directive) {
	r := b.current()
	switch r.room {
	case d.Room:
	case l.home.Room:
		r = b.to(d.Room)
	default:
		return // the bot has switched to another relay since
	}
	b.learn(d)
	b.spawn(func() { _ = r.Follow(r.ctx, d) }) // if Follow fails, the bot reconnects when its old connection ends
}

// gone reconnects the bot to its room if l was the newest link.
func (b *bot) gone(l *link) {
	b.mu.Lock()
	l.lost.Store(true)
	if l.over() {
		b.links = slices.DeleteFunc(b.links, func(o *link) bool { return o == l })
		if b.newest == l && b.ctx.Err() == nil {
			b.breaks++
		}
	}
	if b.newest == l && b.lost.Before(l.steps.began) {
		b.lost = time.Now()
	}
	b.mu.Unlock()
	b.spawn(func() { b.seek(l) })
}

// seek reconnects the bot. seek returns when the bot has a newer link than l. If the driver gives up, seek
// counts that and starts again with a route to the room itself.
func (b *bot) seek(l *link) {
	for first := true; b.ctx.Err() == nil && b.isNewest(l) && (first || l.over()); first = false {
		r, lost := b.current(), l.home
		if lost.Room != r.room {
			lost = reconnect.Directive{Room: r.room}
		}
		err := r.Lost(r.ctx, lost) // Lost also returns nil if l was lost while Connect returned, so the loop checks again
		if errors.Is(err, reconnect.ErrGaveUp) && b.ctx.Err() == nil {
			b.crowd.mu.Lock()
			b.gaveUp = append(b.gaveUp, err)
			b.crowd.mu.Unlock()
			wait(b.ctx, time.Second)
			b.to(b.room)
		}
	}
}

func (b *bot) isNewest(l *link) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest == l
}

// learn records when the bot learned of a new node.
func (b *bot) learn(d reconnect.Directive) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); d.Epoch > b.epoch {
		if b.newest != nil && b.lost.Before(b.newest.steps.began) {
			b.lost = now // the bot first learns of the loss from the directive
		}
		b.epoch, b.found = d.Epoch, now
	}
}

// watch records when the connection makes progress, and reconnects the bot when the connection is
// interrupted.
func (l *link) watch() {
	l.pc.OnICEConnectionStateChange(func(s webrtc.ICEConnectionState) {
		switch s {
		case webrtc.ICEConnectionStateConnected:
			l.steps.at(&l.steps.ice)
		case webrtc.ICEConnectionStateDisconnected: // no packets, because the node hangs or the network is interrupted
			l.bot.gone(l)
		default:
		}
	})
	l.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			if l.steps.at(&l.steps.dtls) {
				close(l.up)
			}
		default:
		}
	})
}

// done tells the node that a newer link has replaced this one. The node then closes this link when it is no
// longer needed.
func (l *link) done() {
	l.bot.spawn(func() {
		ctx, cancel := context.WithTimeout(l.bot.ctx, time.Second)
		defer cancel()
		if l.lost.Load() || wsjson.Write(ctx, l.ws, message{Done: true}) != nil {
			l.close() // the node cannot be told, and must not use this connection again
			return
		}
		late := time.NewTimer(linger)
		defer late.Stop()
		select {
		case <-l.ended:
		case <-late.C:
			l.close()
		case <-l.bot.ctx.Done():
		}
	})
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		if l.ws != nil {
			_ = l.ws.CloseNow()
		}
		_ = l.pc.Close()
	})
}
