//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/lease"
)

// TestAll: members and doctor ask every agent: one that stands still, one that has crashed, one without HTTP.
func TestAll(t *testing.T) { // S8.3
	t.Parallel()
	a := agent(t, "a", brisk()...)
	join := append(brisk(), "--join", a.Gossip)
	b, c := agent(t, "b", join...), agent(t, "c", join...)
	d := launch(t, "d", append(join, "--http", "off")...)
	eventually(t, func() error {
		rows := allOf(t, a)
		want := []string{"a active sees [a b c d] lacks []", "b active sees [a b c d] lacks []", "c active sees [a b c d] lacks []", "d: states no HTTP API that others reach"}
		if !slices.Equal(rows, want) {
			return fmt.Errorf("%q, want %q", rows, want)
		}
		if code, out, fault := roost(t, "doctor", "--all", "--expect", "4", "--addr", a.Base, "--over", "1ms"); code == exitBroken || !strings.Contains(out, "2 of 3 other agents answered") {
			return fmt.Errorf("doctor exits with %d: %s%s", code, out, fault)
		}
		return nil
	})
	_ = d.Kill()
	b.Signal(syscall.SIGSTOP)
	eventually(t, func() error {
		code, out, _ := roost(t, "members", "--all", "--addr", a.Base, "--timeout", "1s")
		if code != exitOK || !strings.Contains(out, "b crashed") && !strings.Contains(out, "b expired") || strings.Contains(out, "\nb ") {
			return errors.New(out)
		}
		code, out, _ = roost(t, "doctor", "--all", "--expect", "4", "--addr", c.Base, "--over", "1ms", "--timeout", "1s")
		for _, text := range []string{"fail  expected  2 members, and not 4", "1 of 1 other agent answered", "at a: lost: "} {
			if code != exitBroken || !strings.Contains(out, text) {
				return fmt.Errorf("no %q in\n%s", text, out)
			}
		}
		return nil
	})
}

// allOf returns what members --all answers, in a line each.
func allOf(t *testing.T, p *proc) (rows []string) {
	t.Helper()
	var all views
	if err := json.Unmarshal([]byte(succeeds(t, "members", "--all", "--addr", p.Base, "--output", "json")), &all); err != nil {
		t.Fatal(err)
	}
	for _, a := range all.Agents {
		row := fmt.Sprint(a.ID, ": ", a.Fault)
		if a.View != nil {
			row = fmt.Sprintf("%s %s sees %v lacks %v", a.ID, a.View.State, a.View.Sees, a.View.Lacks)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestAllKeepsTheToken: over plain http it goes to no other machine that a member names, unless the user insists.
func TestAllKeepsTheToken(t *testing.T) { // S8.3, S9.5
	other := ownAddress(t)
	first, second := fakeagent.New(t), fakeagent.NewAt(t, net.JoinHostPort(other, "0"))
	second.Set("GET /v1/members", clusterhttp.Members{Self: "node-b"})
	first.Set("GET /v1/members", clusterhttp.Members{Self: "node-a", Members: []clusterhttp.Member{{ID: "node-b", State: lease.Active, HTTP: "http://" + second.Env["ROOST_ADDR"]}}})
	token := secretFile(t, "sesame-sesame-sesame-sesame-sesame")
	for _, args := range [][]string{{"members", "--all"}, {"doctor", "--all", "--over", "1ms"}} {
		_, out, fault := roostIn(t, first.Env, append(args, "--token-file", token)...)
		if strings.Contains(second.Headers(), "sesame") || second.Times("GET /v1/members") == 0 || !strings.Contains(first.Headers(), "sesame") {
			t.Errorf("%q: the other machine was sent %s\n%s%s", args, second.Headers(), out, fault)
		}
	}
	second.Set("GET /v1/members", clusterhttp.Problem{Status: 401, Code: clusterhttp.CodeUnauthorized, Message: "no token"})
	if _, out, _ := roostIn(t, first.Env, "members", "--all", "--token-file", token); !strings.Contains(out, "requires a token, which the network could read on its way there: see --insecure") {
		t.Errorf("%s", out)
	}
	if _, _, _ = roostIn(t, first.Env, "members", "--all", "--token-file", token, "--insecure"); !strings.Contains(second.Headers(), "sesame") {
		t.Error("--insecure sends no token")
	}
}

// ownAddress returns an address of this machine that is not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	t.Fatal("this machine has no address but loopback")
	return ""
}
