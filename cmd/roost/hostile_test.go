//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestHostileBytes: unauthenticated peers send arbitrary bytes to the gossip port over TCP. The agents must keep
// running, stay small, and agree. TestForgeries tests the same over UDP.
func TestHostileBytes(t *testing.T) {
	bytes := flood{conns: 300, head: func(i int) []byte { return junk(rand.New(rand.NewPCG(1, uint64(i))), i, 32<<10) }}
	siege{name: "no key: 300 × any bytes", plain: true, begin: bytes.begin}.run(t)
}

// junk returns up to n arbitrary bytes. In some turns, they follow the cluster's label and a message type of
// memberlist, so that they look like a message.
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

// memory returns the peak memory of the process in bytes.
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
