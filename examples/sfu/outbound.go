package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/pion/webrtc/v4"

	"github.com/roost-cluster/roost/cluster/affinity/reconnect"
)

// outbound is a connection from a bot or a relay to a node.
type outbound struct {
	home  reconnect.Directive
	order int // greater for later connections
	pc    *webrtc.PeerConnection
	ws    *websocket.Conn
	up    chan struct{} // closed when the connection is up and encrypted
	ended chan struct{}
}

func newOutbound(home reconnect.Directive) outbound {
	return outbound{home: home, up: make(chan struct{}), ended: make(chan struct{})}
}

// dial opens the WebSocket, sends the offer and receives the answer. If the node does not host the room, dial
// passes the node that does to follow.
func (o *outbound) dial(ctx context.Context, client *http.Client, relay bool, follow func(reconnect.Directive)) (err error) {
	at := "ws://" + o.home.Addr + "/join/" + url.PathEscape(o.home.Room)
	o.ws, _, err = websocket.Dial(ctx, at, &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // Dial does
	if err != nil {
		return err
	}
	o.ws.SetReadLimit(largestMessage)
	offer, err := offer(o.pc)
	if err != nil {
		return err
	}
	var in message
	if err = wsjson.Write(ctx, o.ws, message{Offer: offer, Relay: relay}); err == nil {
		err = wsjson.Read(ctx, o.ws, &in)
	}
	if err != nil {
		return err
	}
	if in.Answer == "" {
		if in.Home != nil {
			follow(*in.Home)
		}
		return fmt.Errorf("%w: %s does not host %s", reconnect.ErrRefused, o.home.To, o.home.Room)
	}
	return o.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: in.Answer})
}

// secured waits until the connection is up and encrypted.
func (o *outbound) secured(ctx context.Context) error {
	select {
	case <-o.up:
		return nil
	case <-o.ended:
		return reconnect.ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *outbound) over() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// offer returns an offer for a connection. The offer contains all addresses.
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
