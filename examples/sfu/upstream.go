package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/reconnect"
)

// upstream is a connection to the node of the room.
type upstream struct {
	edge  *edge
	home  reconnect.Directive
	order int // a later one has a greater one
	pc    *webrtc.PeerConnection
	ws    *websocket.Conn
	once  sync.Once
	up    chan struct{} // closed when the connection is secured
	ended chan struct{}
	heard [2 * pulled]time.Time // when the last packet came; guarded by edge.mu
}

func (u *upstream) negotiate(ctx context.Context) error {
	offer, err := offer(u.pc)
	if err != nil {
		return err
	}
	in, err := exchange(ctx, u.ws, message{Offer: offer, Edge: true})
	switch {
	case err != nil:
		return err
	case in.Answer == "" && in.Home != nil:
		go u.edge.follow(*in.Home)
		fallthrough
	case in.Answer == "":
		return fmt.Errorf("%w: %s does not host %s", reconnect.ErrRefused, u.home.To, u.home.Room)
	}
	return u.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: in.Answer})
}

// prepare asks for tracks, and follows the state of the connection.
func (u *upstream) prepare() error {
	u.pc.OnTrack(func(t *webrtc.TrackRemote, r *webrtc.RTPReceiver) {
		i := slices.IndexFunc(u.pc.GetTransceivers(), func(o *webrtc.RTPTransceiver) bool { return o.Receiver() == r })
		u.receive(i, t)
	})
	u.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			u.once.Do(func() { close(u.up) })
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed: // silence
			go u.close()
		default:
		}
	})
	receive := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	for i := range 2 * pulled {
		if _, err := u.pc.AddTransceiverFromKind(kindOf(i), receive); err != nil {
			return err
		}
	}
	return nil
}

// listen receives what the node of the room says, until the WebSocket closes.
func (u *upstream) listen() {
	for {
		var in message
		if err := wsjson.Read(u.edge.ctx, u.ws, &in); err != nil {
			break
		}
		if in.Home != nil {
			go u.edge.follow(*in.Home)
		}
	}
	u.close()
	u.edge.seek(u)
}

func (u *upstream) receive(i int, t *webrtc.TrackRemote) {
	ask := func() { _ = u.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.SSRC())}}) }
	for {
		packet, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		if s := u.edge.take(u, i, packet.Payload, ask); s != nil {
			u.edge.call.send(s, packet)
		}
	}
}

// done has the node of the room close the connection, which may be old news to it.
func (u *upstream) done() {
	ctx, cancel := context.WithTimeout(u.edge.ctx, time.Second)
	defer cancel()
	_ = wsjson.Write(ctx, u.ws, message{Done: true})
	select {
	case <-u.ended:
	case <-time.After(linger):
	case <-u.edge.ctx.Done():
	}
	u.close()
}

func (u *upstream) close() {
	u.edge.mu.Lock()
	if !u.over() {
		close(u.ended)
	}
	u.edge.mu.Unlock()
	if u.ws != nil {
		_ = u.ws.CloseNow()
	}
	_ = u.pc.Close()
}

func (u *upstream) over() bool {
	select {
	case <-u.ended:
		return true
	default:
		return false
	}
}

// offer returns the offer of a connection, with all its addresses.
func offer(pc *webrtc.PeerConnection) (string, error) {
	o, err := pc.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(o); err != nil {
		return "", err
	}
	<-gathered
	return pc.LocalDescription().SDP, nil
}

// exchange sends a message, and returns the answer.
func exchange(ctx context.Context, ws *websocket.Conn, out message) (in message, err error) {
	if err = wsjson.Write(ctx, ws, out); err == nil {
		err = wsjson.Read(ctx, ws, &in)
	}
	return in, err
}
