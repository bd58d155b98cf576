package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestDoctorOnAgents: the findings on real agents, healthy, drained and killed.
func TestDoctorOnAgents(t *testing.T) {
	a := agent(t, "a", "--network", "local")
	b := agent(t, "b", "--network", "local", "--join", a.Gossip)
	c := agent(t, "c", "--network", "local", "--join", a.Gossip+","+b.Gossip)
	agree(t, a, b, c)
	// On a busy machine the first findings may be of other troubles.
	says := func(p *proc, want int, texts ...string) {
		t.Helper()
		eventually(t, func() error {
			code, out, fault := roost(t, "doctor", "--addr", p.Base, "--over", "100ms")
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return fmt.Errorf("no %q in %s%s", text, out, fault)
				}
			}
			if code != want {
				return fmt.Errorf("exits with %d, want %d:\n%s%s", code, want, out, fault)
			}
			return nil
		})
	}
	says(c, exitOK, "3 of 3 own", "all of them are members: "+a.Gossip+", "+b.Gossip, "as c sees it")
	if code, out, fault := roost(t, "drain", "--addr", b.Base); code != exitOK {
		t.Fatalf("drain: %d %s%s", code, out, fault)
	}
	says(b, exitWarned, "warn  ready     it is draining")
	says(c, exitOK, "2 of 3 own; draining: b")
	b.Signal(syscall.SIGKILL)
	says(c, exitWarned, "no live member at "+b.Gossip)
	a.Signal(syscall.SIGKILL)
	says(c, exitBroken, "this node is alone", "alone, although it was started to join "+a.Gossip+", "+b.Gossip)
}
