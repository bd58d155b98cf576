//go:build linux

package main

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roost-cluster/roost/internal/redistest"
)

// wire forwards gossip to a node, with TCP and UDP on the same port. The test can cut the wire. Then nothing arrives,
// and neither side notices.
type wire struct {
	tcp    *redistest.Link
	udp    *net.UDPConn
	target *net.UDPAddr
	isCut  atomic.Bool
	wait   sync.WaitGroup

	mu    sync.Mutex
	backs map[string]*net.UDPConn // by sender; answers to the sender arrive here
}

func newWire(tb testing.TB, target string) *wire {
	tb.Helper()
	w := &wire{backs: make(map[string]*net.UDPConn), tcp: redistest.Proxy(tb, target)}
	own, err := net.ResolveUDPAddr("udp4", w.tcp.Addr())
	if err == nil {
		w.target, err = net.ResolveUDPAddr("udp4", target)
	}
	if err == nil {
		w.udp, err = net.ListenUDP("udp4", own)
	}
	if err != nil {
		tb.Fatal(err)
	}
	w.wait.Go(w.forward)
	tb.Cleanup(w.close)
	return w
}

func (w *wire) addr() string { return w.tcp.Addr() }

func (w *wire) cut()  { w.isCut.Store(true); w.tcp.Hang() }
func (w *wire) heal() { w.isCut.Store(false); w.tcp.Heal() }

const datagram = 64 << 10

func (w *wire) forward() {
	b := make([]byte, datagram)
	for {
		n, from, err := w.udp.ReadFromUDP(b)
		if err != nil {
			return
		}
		if back := w.back(from); back != nil && !w.isCut.Load() {
			_, _ = back.Write(b[:n]) // the node may have ended
		}
	}
}

// back returns the socket that forwards a sender's packets, and receives the answers to them.
func (w *wire) back(from *net.UDPAddr) *net.UDPConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.backs == nil {
		return nil
	}
	conn := w.backs[from.String()]
	if conn != nil {
		return conn
	}
	conn, err := net.DialUDP("udp4", nil, w.target)
	if err != nil {
		return nil
	}
	w.backs[from.String()] = conn
	w.wait.Go(func() {
		b := make([]byte, datagram)
		for {
			n, err := conn.Read(b)
			switch {
			case err != nil && w.closed():
				return
			case err == nil && !w.isCut.Load():
				_, _ = w.udp.WriteToUDP(b[:n], from)
			}
		}
	})
	return conn
}

func (w *wire) closed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.backs == nil
}

func (w *wire) close() {
	_ = w.udp.Close()
	w.mu.Lock()
	for _, conn := range w.backs {
		_ = conn.Close()
	}
	w.backs = nil
	w.mu.Unlock()
	w.wait.Wait()
}
