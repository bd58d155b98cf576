package main

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// Bots send 50 packets of sound per second, as Opus does, and 30 pictures per second, as VP8 does. Each
// packet contains a stamp with its number and its room.
const (
	soundEvery  = 20 * time.Millisecond
	soundSize   = 80
	pictureSize = 300
	keySize     = 1000
	stampSize   = 16
)

// pictureEvery is increased if the machine is too slow for all bots. All bots of a process use the same
// value.
var pictureEvery = time.Second / 30

func fingerprint(room string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(room))
	return h.Sum64()
}

// The payload of a picture starts as in VP8: with a descriptor for the start of a frame, followed by a frame
// whose lowest bit is 0 for a keyframe.
const (
	vp8Start    = 0x10
	vp8Inter    = 0x01
	pictureHead = 2
)

func picture(key bool, n, room uint64) []byte {
	size, tag := pictureSize, byte(vp8Inter)
	if key {
		size, tag = keySize, 0
	}
	b := make([]byte, size)
	b[0], b[1] = vp8Start, tag
	stamp(b[pictureHead:], n, room)
	return b
}

func stamp(b []byte, n, room uint64) {
	binary.BigEndian.PutUint64(b, n)
	binary.BigEndian.PutUint64(b[8:], room)
}

// publisher sends sound and pictures over all links of a bot.
type publisher struct {
	room         uint64
	sound, image *webrtc.TrackLocalStaticRTP
	wantsKey     atomic.Bool
}

func newPublisher(room string) (*publisher, error) {
	p := &publisher{room: fingerprint(room)}
	var err error
	if p.sound, err = webrtc.NewTrackLocalStaticRTP(opus(), "audio", "bot"); err != nil {
		return nil, err
	}
	p.image, err = webrtc.NewTrackLocalStaticRTP(vp8(), "video", "bot")
	return p, err
}

// attach adds the tracks of the publisher to a link.
func (p *publisher) attach(l *link) error {
	send := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly}
	for _, track := range []webrtc.TrackLocal{p.sound, p.image} {
		t, err := l.pc.AddTransceiverFromTrack(track, send)
		if err != nil {
			return err
		}
		l.bot.spawn(func() { p.feedback(t.Sender()) })
	}
	return nil
}

func (p *publisher) feedback(s *webrtc.RTPSender) {
	for {
		packets, _, err := s.ReadRTCP()
		if err != nil {
			return
		}
		for _, packet := range packets {
			if _, ok := packet.(*rtcp.PictureLossIndication); ok {
				p.wantsKey.Store(true)
			}
		}
	}
}

func (p *publisher) run(ctx context.Context) {
	const soundStep, pictureStep = 960, 3000 // clock ticks
	const keyEvery = 300                     // pictures
	began := time.Now()
	tick := time.NewTicker(soundEvery)
	defer tick.Stop()
	var sounds, pictures uint64
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		sounds++
		b := make([]byte, soundSize)
		stamp(b, sounds, p.room)
		_ = p.sound.WriteRTP(packetOf(b, sounds, soundStep)) // an error means that a link is ending
		for time.Since(began) > time.Duration(pictures)*pictureEvery {
			key := p.wantsKey.CompareAndSwap(true, false) || pictures%keyEvery == 0
			pictures++
			_ = p.image.WriteRTP(packetOf(picture(key, pictures, p.room), pictures, pictureStep))
		}
	}
}

func packetOf(payload []byte, n uint64, step uint32) *rtp.Packet {
	return &rtp.Packet{
		Header:  rtp.Header{Version: 2, Marker: true, SequenceNumber: uint16(n), Timestamp: uint32(n) * step},
		Payload: payload,
	}
}

// player plays what a bot receives: sound from the newest link that has delivered sound, and pictures from
// the newest link that has delivered a keyframe.
type player struct {
	room uint64

	mu     sync.Mutex
	sound  playback
	image  playback
	strays int // packets of other rooms
}

// playback is the state of the sound, or of the pictures, that a bot plays.
type playback struct {
	link  *link
	last  uint64    // number of the last packet that was played
	at    time.Time // when that packet was played
	worst time.Duration
}

// decoder is the state of the pictures of one link.
type decoder struct {
	synced bool // a keyframe and all pictures after it were received
	last   uint64
}

func (p *player) receive(l *link, t *webrtc.TrackRemote) {
	for {
		packet, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		if p.take(l, t.Kind() == webrtc.RTPCodecTypeVideo, packet.Payload, time.Now()) {
			_ = l.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.SSRC())}})
		}
	}
}

// take plays a packet, and reports whether the bot must request a keyframe.
func (p *player) take(l *link, video bool, b []byte, now time.Time) (needsKey bool) {
	key := false
	if video {
		if len(b) < pictureHead+stampSize {
			return false
		}
		key, b = b[1]&vp8Inter == 0, b[pictureHead:]
	}
	if len(b) < stampSize {
		return false
	}
	n, room := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	p.mu.Lock()
	defer p.mu.Unlock()
	if room != p.room {
		p.strays++
		return false
	}
	if !video {
		l.steps.at(&l.steps.packet)
		p.play(&p.sound, l, n, now)
		return false
	}
	d := &l.video
	d.synced = key || d.synced && n == d.last+1
	d.last = n
	if !d.synced {
		return true
	}
	l.steps.at(&l.steps.key)
	p.play(&p.image, l, n, now)
	return false
}

func (p *player) play(k *playback, l *link, n uint64, now time.Time) {
	if k.link != nil && k.link != l && l.order < k.link.order {
		return // it already plays a newer link
	}
	if n <= k.last {
		return // it has played this packet from another link
	}
	if k.link != l {
		old := k.link
		k.link = l
		if old != nil && p.sound.link == l && p.image.link == l {
			old.done()
		}
	}
	if !k.at.IsZero() {
		k.worst = max(k.worst, now.Sub(k.at))
	}
	k.last, k.at = n, now
}

// reset starts a new measurement.
func (p *player) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sound.worst, p.image.worst = 0, 0
}

// gaps returns the longest gaps in sound and in pictures since reset.
func (p *player) gaps(now time.Time) (sound, image time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.sound.worst, now.Sub(p.sound.at)), max(p.image.worst, now.Sub(p.image.at))
}
