package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

// media creates the peer connections of a node. Connections of participants share one UDP port.
type media struct {
	api    *webrtc.API
	calls  *webrtc.API // for connections to other nodes, each with its own port
	mux    ice.UDPMux
	config webrtc.Configuration
	peers  atomic.Int64 // number of open peers
}

func openMedia(addr string) (*media, error) {
	udp, err := net.ResolveUDPAddr("udp4", addr)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", udp)
	if err != nil {
		return nil, err
	}
	m := &media{mux: webrtc.NewICEUDPMux(nil, conn)}
	if m.config.Certificates, err = certificate(); err != nil {
		return nil, errors.Join(err, m.mux.Close())
	}
	s := settings()
	s.SetICEUDPMux(m.mux)
	s.SetLite(true) // clients check the only address of this node
	engine, err := codecs()
	if err != nil {
		return nil, errors.Join(err, m.mux.Close())
	}
	var chain interceptor.Registry
	err = errors.Join(webrtc.ConfigureNack(engine, &chain), webrtc.ConfigureRTCPReports(&chain))
	m.api = webrtc.NewAPI(webrtc.WithSettingEngine(s), webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(&chain))
	s = callSettings(func(ip net.IP) bool { return udp.IP.IsUnspecified() || ip.Equal(udp.IP) })
	m.calls = webrtc.NewAPI(webrtc.WithSettingEngine(s), webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(&chain))
	return m, err
}

func (m *media) close() error { return m.mux.Close() }

// settings returns the WebRTC settings of nodes and bots. If the UDP port is on the loopback address, all
// media stays on this machine.
func settings() (s webrtc.SettingEngine) {
	s.SetIncludeLoopbackCandidate(true)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	return s
}

// callSettings returns the settings of the side that sends the offer. Connections use only local addresses
// for which from returns true.
func callSettings(from func(net.IP) bool) webrtc.SettingEngine {
	s := settings()
	s.SetIPFilter(from)
	// Before a connection is up, pion checks candidates every 200 ms, or more often if one of these timeouts
	// is shorter. Browsers check every 50 ms.
	const disconnected, failed, keepAlive = 3 * time.Second, 50 * time.Millisecond, 500 * time.Millisecond
	s.SetICETimeouts(disconnected, failed, keepAlive)
	return s
}

// certificate creates a certificate that all connections share, so that no connection has to generate a key.
// The certificate must outlive the process, because pion rejects expired certificates. Certificates that pion
// generates itself expire after a month.
func certificate() ([]webrtc.Certificate, error) {
	const years = 10
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	c, err := webrtc.NewCertificate(key, x509.Certificate{
		Subject: pkix.Name{CommonName: "WebRTC"}, NotBefore: now.AddDate(0, 0, -1), NotAfter: now.AddDate(years, 0, 0),
	})
	if err != nil {
		return nil, err
	}
	return []webrtc.Certificate{*c}, nil
}

func opus() webrtc.RTPCodecCapability {
	return webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: 48000, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1"}
}

func vp8() webrtc.RTPCodecCapability {
	return webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeVP8, ClockRate: 90000,
		RTCPFeedback: []webrtc.RTCPFeedback{{Type: "ccm", Parameter: "fir"}, {Type: "nack", Parameter: ""}, {Type: "nack", Parameter: "pli"}},
	}
}

func codecs() (*webrtc.MediaEngine, error) {
	const opusType, vp8Type = 111, 96
	m := new(webrtc.MediaEngine)
	return m, errors.Join(
		m.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: opus(), PayloadType: opusType}, webrtc.RTPCodecTypeAudio),
		m.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: vp8(), PayloadType: vp8Type}, webrtc.RTPCodecTypeVideo),
	)
}

// peer is the connection of a participant to this node.
type peer struct {
	media  *media
	call   *call
	pc     *webrtc.PeerConnection
	slots  []*slot       // for the tracks of others
	gone   chan struct{} // closed when the connection has ended
	ended  atomic.Bool
	moved  chan struct{} // closed when the client no longer needs this node
	leaves atomic.Bool
}

// errOffer means that the client sent an invalid offer.
var errOffer = errors.New("the offer is not valid")

// join adds a participant to a call and returns the answer to the offer. The tracks that the offer sends are
// forwarded to all other participants. Each media line on which the offer can receive becomes a slot for a
// track of another participant, even if the offer also sends on this line. For this reason, nothing needs to
// be renegotiated when participants join or leave, and WHIP and WHEP clients are treated like all others.
func (m *media) join(c *call, offer string) (_ *peer, answer string, err error) {
	pc, err := m.api.NewPeerConnection(m.config)
	if err != nil {
		return nil, "", err
	}
	p := &peer{media: m, call: c, pc: pc, gone: make(chan struct{}), moved: make(chan struct{})}
	pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { c.forward(p, t) })
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			c.refresh(p)
		case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
			p.leave()
		default:
		}
	})
	m.peers.Add(1)
	if answer, err = p.answer(offer); err != nil {
		p.leave()
		return nil, "", err
	}
	c.add(p)
	return p, answer, nil
}

func (p *peer) answer(offer string) (string, error) {
	remote := webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}
	if err := p.pc.SetRemoteDescription(remote); err != nil {
		return "", fmt.Errorf("%w: %w", errOffer, err)
	}
	offered, err := remote.Unmarshal()
	if err != nil {
		return "", fmt.Errorf("%w: %w", errOffer, err)
	}
	for _, line := range offered.MediaDescriptions {
		_, receives := line.Attribute("recvonly")
		_, both := line.Attribute("sendrecv")
		kind := webrtc.NewRTPCodecType(line.MediaName.Media)
		if kind == 0 || !receives && !both {
			continue
		}
		if err := p.addSlot(kind); err != nil {
			return "", err
		}
	}
	answer, err := p.pc.CreateAnswer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(answer); err != nil {
		return "", err
	}
	<-gathered // done at once, because there is only one address
	return p.pc.LocalDescription().SDP, nil
}

// addSlot adds a track to the next media line of this kind on which the client receives.
func (p *peer) addSlot(kind webrtc.RTPCodecType) error {
	codec := opus()
	if kind == webrtc.RTPCodecTypeVideo {
		codec = vp8()
	}
	track, err := webrtc.NewTrackLocalStaticRTP(codec, kind.String(), fmt.Sprint("slot-", len(p.slots)))
	if err != nil {
		return err
	}
	sender, err := p.pc.AddTrack(track)
	if err != nil {
		return err
	}
	s := &slot{peer: p, track: track, kind: kind}
	p.slots = append(p.slots, s)
	go s.feedback(sender)
	return nil
}

// leave removes the participant and closes its connection.
func (p *peer) leave() {
	if p.ended.CompareAndSwap(false, true) {
		close(p.gone)
		p.done()
		p.call.remove(p)
		p.media.peers.Add(-1)
		go func() { _ = p.pc.Close() }() // Close waits for the handler that calls leave
	}
}

// done records that the client now receives this room from another node.
func (p *peer) done() {
	if p.leaves.CompareAndSwap(false, true) {
		close(p.moved)
	}
}

// askKeyframe asks the publisher of a track for a keyframe.
func (s *source) askKeyframe() {
	const pause = 100 * time.Millisecond // shared by all subscribers
	now, last := time.Now().UnixNano(), s.asked.Load()
	if now-last < int64(pause) || !s.asked.CompareAndSwap(last, now) {
		return
	}
	s.ask()
}

// feedback passes keyframe requests from the participant to the publisher.
func (s *slot) feedback(sender *webrtc.RTPSender) {
	for {
		packets, _, err := sender.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			switch p.(type) {
			case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
				s.peer.call.keyframeFor(s)
			}
		}
	}
}
