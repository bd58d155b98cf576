//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestHostileBytes: strangers can send anything to the gossip port; the agents survive,
// stay small, and agree afterwards.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	a := agent(t, "a", calm()...)
	b := agent(t, "b", append(calm(), "--join", a.Gossip)...)
	agree(t, a, b)
	before := memory(t, a)
	rng := rand.New(rand.NewPCG(1, 2))
	packets, err := net.Dial("udp", a.Gossip)
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	for i := range 20_000 {
		if _, err := packets.Write(junk(rng, i, 1400)); err != nil && i == 0 {
			t.Fatal(err)
		}
	}
	var held []net.Conn // streams that stay open and announce much more
	for i := range 300 {
		conn, err := net.DialTimeout("tcp", a.Gossip, patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = conn.Write(junk(rng, i, 32<<10)) // it may hang up at any byte
		if i%3 == 0 {
			held = append(held, conn)
		} else {
			_ = conn.Close()
		}
	}
	select {
	case <-a.Done():
		t.Fatalf("a ended: %v", a.State())
	default:
	}
	const bound = 200 << 20 // memberlist reads up to 20 MB of a stranger's promise
	if after := memory(t, a); after > before+bound {
		t.Errorf("%d open streams and 20,000 datagrams made a grow from %d MB to %d MB", len(held), before>>20, after>>20)
	}
	if strings.Contains(a.Text(), "panic") {
		t.Error("a logs a panic")
	}
	c := agent(t, "c", append(calm(), "--join", b.Gossip)...)
	agree(t, a, b, c)
}

// junk returns up to n arbitrary bytes, in some turns after the cluster's label and a type
// of memberlist's, as if they were a message.
func junk(rng *rand.Rand, turn, n int) []byte {
	b := make([]byte, 1+rng.IntN(n))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	label := append([]byte{244, byte(len("roost"))}, "roost"...)
	switch turn % 4 {
	case 1:
		return append(label, b...)
	case 2:
		return append(append(label, byte(rng.IntN(14))), b...)
	case 3:
		return append([]byte{byte(rng.IntN(14))}, b...)
	}
	return b
}

// memory returns the most bytes that the process ever had in memory.
func memory(t *testing.T, p *proc) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("no VmHWM in:\n%s", b)
	return 0
}
