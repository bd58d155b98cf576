package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket/wsjson"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
)

// upstream is a connection from a relay to the node of its room.
type upstream struct {
	outbound
	relay *relay
	once  sync.Once
	heard [2 * pulled]time.Time // when the last packet arrived on each line; guarded by relay.mu
}

// prepare requests the tracks of the room, and closes the connection if it is interrupted.
func (u *upstream) prepare() error {
	u.pc.OnTrack(func(t *webrtc.TrackRemote, r *webrtc.RTPReceiver) {
		i := slices.IndexFunc(u.pc.GetTransceivers(), func(o *webrtc.RTPTransceiver) bool { return o.Receiver() == r })
		u.receive(i, t)
	})
	u.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			u.once.Do(func() { close(u.up) })
		case webrtc.PeerConnectionStateDisconnected, webrtc.PeerConnectionStateFailed: // no packets
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

// listen receives messages from the room's node until the WebSocket closes.
func (u *upstream) listen() {
	for {
		var in message
		if err := wsjson.Read(u.relay.ctx, u.ws, &in); err != nil {
			break
		}
		if in.Home != nil {
			go u.relay.follow(*in.Home)
		}
	}
	u.close()
	u.relay.seek(u)
}

func (u *upstream) receive(i int, t *webrtc.TrackRemote) {
	own := &source{kind: kindOf(i), ask: func() {
		_ = u.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(t.SSRC())}})
	}}
	for {
		packet, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		if s := u.relay.take(u, i, packet.Payload, own); s != nil {
			u.relay.call.send(s, packet)
		}
	}
}

// done tells the room's node to close the connection, and closes it if the node does not.
func (u *upstream) done() {
	ctx, cancel := context.WithTimeout(u.relay.ctx, time.Second)
	defer cancel()
	_ = wsjson.Write(ctx, u.ws, message{Done: true})
	select {
	case <-u.ended:
	case <-time.After(linger):
	case <-u.relay.ctx.Done():
	}
	u.close()
}

func (u *upstream) close() {
	u.relay.mu.Lock()
	if !u.over() {
		close(u.ended)
	}
	u.relay.mu.Unlock()
	if u.ws != nil {
		_ = u.ws.CloseNow()
	}
	_ = u.pc.Close()
}
