//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/roost-cluster/roost/internal/redistest"
)

// pipes is a listener whose connections have no buffers, so a write to a client that does not read blocks forever.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return new(net.TCPAddr) }

// TestSilentClients: if a client sends no offer or reads no answer, the node soon gives up and frees the client's
// resources. Otherwise, the client would delay the node's drain.
func TestSilentClients(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	n := p.nodes[0]
	n.timeout = 500 * time.Millisecond
	t.Run("WebSocket", func(t *testing.T) {
		ws, _, err := websocket.Dial(p.ctx, "ws://"+n.addr+"/join/room", nil) //nolint:bodyclose // Dial does
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ws.CloseNow() }()
		ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
		defer cancel()
		if _, _, err = ws.Read(ctx); ctx.Err() != nil {
			t.Error("the node waits for an offer:", err)
		}
	})
	t.Run("WHIP", func(t *testing.T) {
		body, end := io.Pipe()
		ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
		defer cancel()
		context.AfterFunc(ctx, func() { _ = end.Close() })
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addr+"/whip/room", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal("the node waits for an offer:", err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusRequestTimeout {
			t.Error(resp.Status, err)
		}
	})
	t.Run("no answer is read", func(t *testing.T) {
		room := ""
		for i := 0; room == ""; i++ {
			name := fmt.Sprint("room-", i)
			home, err := n.fleet.apart(p.ctx, []string{name}, 1)
			if err != nil {
				t.Fatal(err)
			}
			if home.Addr == n.addr {
				room = name
			}
		}
		listener := make(pipes)
		go func() { _ = n.server.Serve(listener) }()
		defer close(listener)
		client := &http.Client{Transport: &http.Transport{DialContext: listener.dial}}
		offer, err := offer(p.link(&bot{crowd: p.crowd, ctx: p.ctx, plays: &player{}}).pc)
		if err != nil {
			t.Fatal(err)
		}
		join := func() error {
			ws, _, err := websocket.Dial(p.ctx, "ws://node/join/"+room, &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // Dial does
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = ws.CloseNow() })
			return wsjson.Write(p.ctx, ws, message{Offer: offer})
		}
		redistest.Eventually(t, "the end of the participant", func() error {
			s := n.fleet.stats()
			if s.Hostings == 0 { // join for the first time, or again if the offer came too late
				return errors.Join(errors.New("no participant yet"), join())
			}
			if s.Calls != 0 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	})
}

// TestBadOffers: if an offer is invalid, the client gets status 400. With status 503, it would repeat the offer. A
// client with an invalid offer does not count as a participant.
func TestBadOffers(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	for _, offer := range []string{
		"", "junk",
		"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=sendonly\r\n",
	} {
		r, err := http.NewRequestWithContext(p.ctx, http.MethodPost, "http://"+p.nodes[0].addr+"/whip/room", strings.NewReader(offer))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.crowd.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s, %v", offer, resp.Status, err)
		}
	}
	if err := p.crowd.join(p.ctx, "room", true); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "one participant", func() error { // attempts that took too long count until they end
		if n := p.nodes[0].media.peers.Load() + p.nodes[1].media.peers.Load(); n != 1 {
			return fmt.Errorf("it counts as %d", n)
		}
		return nil
	})
}
