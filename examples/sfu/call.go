package main

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// call is the media of a room on this node, while the node hosts the room, and after that for participants
// who have not moved yet.
type call struct {
	mu        sync.RWMutex
	peers     []*peer
	sources   []*source
	receivers int    // participants who only receive
	relay     *relay // nil: this is the room, not a relay of it
}

// source is a track of a publisher.
type source struct {
	peer  *peer // nil: it comes from the room's node
	kind  webrtc.RTPCodecType
	ask   func()       // for a keyframe
	asked atomic.Int64 // when ask was last called
}

// slot carries the track of one publisher at a time to one participant. The receiver sees one
// stream: sequence numbers and timestamps continue when the source changes.
type slot struct {
	peer  *peer
	track *webrtc.TrackLocalStaticRTP
	kind  webrtc.RTPCodecType

	source *source // nil: free; guarded by call.mu

	// Only the goroutine of the source uses these. The lock of the call separates two sources.
	fed      *source
	seq      uint16
	time     uint32
	seqBy    uint16
	timeBy   uint32
	hasCarry bool
}

func (c *call) add(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.ended.Load() {
		return
	}
	c.peers = append(c.peers, p)
	c.match()
}

func (c *call) remove(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = slices.DeleteFunc(c.peers, func(o *peer) bool { return o == p })
}

// waiting returns a participant who still needs this node, or nil.
func (c *call) waiting() *peer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if i := slices.IndexFunc(c.peers, func(p *peer) bool { return !p.leaves.Load() }); i >= 0 {
		return c.peers[i]
	}
	return nil
}

// forward passes the packets of a track to the slots of all others, until the track ends.
func (c *call) forward(p *peer, t *webrtc.TrackRemote) {
	s := &source{peer: p, kind: t.Kind(), ask: func() {
		_ = p.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.SSRC())}})
	}}
	c.replace(nil, s)
	defer c.end(s)
	for {
		packet, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		c.send(s, packet)
	}
}

// send passes a packet to the slots of its source.
func (c *call) send(s *source, packet *rtp.Packet) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, to := range c.peers {
		for _, slot := range to.slots {
			if slot.source == s {
				slot.write(s, packet)
			}
		}
	}
}

// replace makes a source feed the slots of an old one, if there is one, or gives it slots.
func (c *call) replace(old, s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.sources, old); i >= 0 {
		c.sources[i] = s
	} else {
		c.sources = append(c.sources, s)
	}
	for _, p := range c.peers {
		for _, slot := range p.slots {
			if old != nil && slot.source == old {
				slot.source = s
			}
		}
	}
	c.match()
}

// seat counts a participant who only receives, if there are fewer than most.
func (c *call) seat(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receivers >= most {
		return false
	}
	c.receivers++
	return true
}

func (c *call) unseat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivers--
}

// end frees the slots of a track that has ended, for tracks that had none.
func (c *call) end(s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources = slices.DeleteFunc(c.sources, func(o *source) bool { return o == s })
	for _, p := range c.peers {
		for _, slot := range p.slots {
			if slot.source == s {
				slot.source = nil
			}
		}
	}
	c.match()
}

// match gives each participant all tracks of the others, as long as there are free slots.
func (c *call) match() {
	for _, s := range c.sources {
		for _, p := range c.peers {
			if p == s.peer || slices.ContainsFunc(p.slots, func(o *slot) bool { return o.source == s }) {
				continue
			}
			free := slices.IndexFunc(p.slots, func(o *slot) bool { return o.source == nil && o.kind == s.kind })
			if free < 0 {
				continue
			}
			p.slots[free].source = s
			if s.kind == webrtc.RTPCodecTypeVideo {
				s.askKeyframe()
			}
		}
	}
}

// refresh asks for keyframes for a participant who can receive from now on.
func (c *call) refresh(p *peer) {
	for _, s := range p.slots {
		c.keyframeFor(s)
	}
}

func (c *call) keyframeFor(s *slot) {
	c.mu.RLock()
	from := s.source
	c.mu.RUnlock()
	if from != nil && s.kind == webrtc.RTPCodecTypeVideo {
		from.askKeyframe()
	}
}

// write sends a packet. An error means that the participant is about to leave.
func (s *slot) write(from *source, p *rtp.Packet) {
	if s.fed != from {
		s.seqBy, s.timeBy = 0, 0
		if s.hasCarry {
			s.seqBy, s.timeBy = s.seq+1-p.SequenceNumber, s.time+1-p.Timestamp
		}
		s.fed, s.hasCarry = from, true
	}
	out := &rtp.Packet{Header: p.Header, Payload: p.Payload}
	out.Extension, out.Extensions, out.CSRC = false, nil, nil // their numbers belong to the other connection
	out.SequenceNumber += s.seqBy
	out.Timestamp += s.timeBy
	s.seq, s.time = out.SequenceNumber, out.Timestamp
	_ = s.track.WriteRTP(out)
}
