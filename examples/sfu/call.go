package main

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// call forwards the media of a room on this node. The call lasts while the node hosts the room, and then
// until the participants who have not moved yet are gone.
type call struct {
	mu        sync.RWMutex
	peers     []*peer
	sources   []*source
	receivers int    // participants who only receive
	relay     *relay // nil if this is the room itself and not a relay of it
}

// source is a track of a publisher.
type source struct {
	peer  *peer // nil if the track comes from the node of the room
	kind  webrtc.RTPCodecType
	ask   func()       // asks the publisher for a keyframe
	asked atomic.Int64 // when ask was last called
}

// slot carries the tracks of publishers to a participant, one track at a time. The participant receives a
// single stream: sequence numbers and timestamps continue when the source changes.
type slot struct {
	peer  *peer
	track *webrtc.TrackLocalStaticRTP
	kind  webrtc.RTPCodecType

	source *source // nil if free; guarded by call.mu

	// Only the goroutine of the source uses the fields below. When the source changes, the lock of the call
	// orders the accesses of the two goroutines.
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

// waiting returns a participant who has not moved to the new node yet, or nil.
func (c *call) waiting() *peer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if i := slices.IndexFunc(c.peers, func(p *peer) bool { return !p.leaves.Load() }); i >= 0 {
		return c.peers[i]
	}
	return nil
}

// forward passes the packets of a track to the slots of all other participants, until the track ends.
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

// send passes a packet to each slot that its source feeds.
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

// replace replaces the source old with s in all slots. If old is nil, s gets free slots.
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

// seat counts a participant who only receives. If there are already most of them, seat returns false.
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

// end frees the slots of a track that has ended, so that other tracks can use them.
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

// match assigns the tracks of all other participants to each participant's slots, while there are free slots.
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

// refresh requests keyframes for a participant who has just become able to receive.
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

// write sends a packet to the participant. write ignores errors, because an error means that the participant
// is about to leave.
func (s *slot) write(from *source, p *rtp.Packet) {
	if s.fed != from {
		s.seqBy, s.timeBy = 0, 0
		if s.hasCarry {
			s.seqBy, s.timeBy = s.seq+1-p.SequenceNumber, s.time+1-p.Timestamp
		}
		s.fed, s.hasCarry = from, true
	}
	out := &rtp.Packet{Header: p.Header, Payload: p.Payload}
	out.Extension, out.Extensions, out.CSRC = false, nil, nil // valid only on the other connection
	out.SequenceNumber += s.seqBy
	out.Timestamp += s.timeBy
	s.seq, s.time = out.SequenceNumber, out.Timestamp
	_ = s.track.WriteRTP(out)
}
