//go:build linux

package main

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gate is an address in front of an agent, for packets and streams.
type gate struct {
	addr    string
	streams net.Listener
	packets net.PacketConn
	to      string // where the agent is
	wait    sync.WaitGroup

	mu   sync.Mutex
	live []*net.TCPConn
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := new(gate)
	streams, packets := listenBoth(t)
	g.to = streams.Addr().String() // free again, for the agent
	_, _ = streams.Close(), packets.Close()
	g.streams, g.packets = listenBoth(t)
	g.addr = g.streams.Addr().String()
	g.wait.Go(g.passStreams)
	g.wait.Go(g.passPackets)
	t.Cleanup(func() {
		_ = g.packets.Close()
		g.refuse()
		g.wait.Wait()
	})
	return g
}

// listenBoth listens on a port that is free for TCP and UDP.
func listenBoth(t *testing.T) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 10 {
		streams, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", streams.Addr().String())
		if err == nil {
			return streams, packets
		}
		_ = streams.Close()
	}
	t.Fatal("no port is free for TCP and UDP")
	return nil, nil
}

// reset breaks all streams.
func (g *gate) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.live {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	g.live = nil
}

// refuse breaks all streams, and refuses new ones. Packets pass.
func (g *gate) refuse() {
	_ = g.streams.Close()
	g.reset()
}

func (g *gate) passPackets() {
	agent, err := net.Dial("udp", g.to)
	if err != nil {
		return
	}
	defer agent.Close()
	b := make([]byte, 64<<10)
	for {
		n, _, err := g.packets.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = agent.Write(b[:n])
	}
}

func (g *gate) passStreams() {
	for {
		near, err := g.streams.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", g.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		g.join(near.(*net.TCPConn), far.(*net.TCPConn))
	}
}

func (g *gate) join(near, far *net.TCPConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.live = append(g.live, near, far)
	for _, way := range [][2]*net.TCPConn{{near, far}, {far, near}} {
		g.wait.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
}
