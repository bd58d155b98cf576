package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// TestKeyRotation: five agents change their key while they look up keys and serve rooms. No lease ends, and no
// call fails. Afterwards the former key is refused. No log shows a key.
func TestKeyRotation(t *testing.T) { // S9.6
	t.Parallel()
	dir, redis := t.TempDir(), redistest.Start(t)
	former, next := succeeds(t, "keygen"), succeeds(t, "keygen")
	write := func(id, keys string) string { return replaceFile(t, filepath.Join(dir, id), keys) }
	settings := append(brisk(), "--redis", redis.URL(), "--capacity", "1000", "--report-load", "--log-level", "debug")
	var agents []*proc
	for i := range 5 {
		id := fmt.Sprint("node-", i)
		args := append(settings, "--key-file", write(id, former))
		if i > 0 {
			args = append(args, "--join", agents[0].Gossip)
		}
		agents = append(agents, agent(t, id, args...))
	}
	agree(t, agents...)

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i, a := range agents {
		clients.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				pause(ctx, 5*time.Millisecond)
				placed, err := a.Place(ctx, fmt.Sprint(n))
				if err == nil {
					_, err = a.ResolveRoom(ctx, fmt.Sprint("room-", i, "-", n%50), affinity.Demand{Size: 2})
				}
				if err == nil && placed.Stale {
					err = errors.New("by a stale table")
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("call %d at %s: %v", n, a.ID, err)
					return
				}
			}
		})
	}
	for step, keys := range []string{former + next, next + former, next} {
		for _, a := range agents {
			write(a.ID, keys)
			a.Signal(syscall.SIGHUP)
			eventually(t, func() error {
				if n := strings.Count(a.Text(), `"msg":"gossip keys read again"`); n != step+1 {
					return fmt.Errorf("%s has read its keys %d times, want %d", a.ID, n, step+1)
				}
				return nil
			})
		}
		for _, a := range agents {
			eventually(t, func() error { return showsKeys(t, a, keys) })
		}
	}
	write("node-0", "nonsense\n")
	agents[0].Signal(syscall.SIGHUP)
	agents[0].Logs("settings stay as they are")
	stop()
	clients.Wait()
	agree(t, agents...)
	for _, a := range agents {
		for _, bad := range []string{"member left", "member lost", "stalled", "unable to decrypt", "undecryptable", strings.TrimSpace(former), strings.TrimSpace(next)} {
			if strings.Contains(a.Text(), bad) {
				t.Errorf("%s logs %q", a.ID, bad)
			}
		}
		if m, err := a.Members(t.Context()); err != nil || len(m.Members) != len(agents) {
			t.Errorf("%s sees %d members, %v", a.ID, len(m.Members), err)
		}
	}
	old := launch(t, "old", append(brisk(), "--key-file", write("old", former), "--join", agents[0].Gossip)...)
	old.Exits(exitFailed, "the gossip keys differ")
	if m, err := agents[0].Members(t.Context()); err != nil || len(m.Members) != len(agents) {
		t.Errorf("with the former key: %d members, %v", len(m.Members), err)
	}
	fresh := agent(t, "new", append(settings, "--key-file", write("new", next), "--join", agents[1].Gossip)...)
	agree(t, append(agents, fresh)...)
}

// showsKeys reports whether roost keys shows the keys of a file for all members, by way of one agent.
func showsKeys(t *testing.T, of *proc, file string) error {
	t.Helper()
	var prints []string
	for line := range strings.FieldsSeq(file) {
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		prints = append(prints, cluster.KeyFingerprint(key))
	}
	code, out, fault := roost(t, "keys", "--addr", of.Base, "--output", "json")
	var got keyring
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		return fmt.Errorf("exit code %d, %s: %w", code, fault, err)
	}
	for _, m := range got.Members {
		if m.SendsWith != prints[0] || !slices.Equal(m.Accepts, prints[1:]) {
			return fmt.Errorf("%s shows %+v, want %q", of.ID, m, prints)
		}
	}
	if len(got.Members) != 5 {
		return fmt.Errorf("%s shows %d members", of.ID, len(got.Members))
	}
	return nil
}

// What roost keys says at each step of a change of the key, and of steps that were left out (S9.6).
func TestAdviceOnKeys(t *testing.T) {
	node := func(id lease.NodeID, sends string, accepts ...string) keysOf { return keysOf{id, sends, accepts} }
	const first = "Make the new key the first line on all nodes before you remove the former one."
	for name, c := range map[string]struct {
		all  []keysOf
		want []string
	}{
		"no key":  {[]keysOf{node("a", ""), node("b", "")}, []string{"No member states a gossip key: the cluster has none, or is of a release that does not state keys."}},
		"one key": {[]keysOf{node("a", "1"), node("b", "1")}, []string{"1 is what all members send with."}},
		"one has the next": {[]keysOf{node("a", "1", "2"), node("b", "1")}, []string{
			"1 is what all members send with.", "2 is accepted by a, but not by b: add it there if it is the new key, or else remove it.",
		}},
		"all have the next": {[]keysOf{node("a", "1", "2"), node("b", "1", "2")}, []string{
			"1 is what all members send with.", "2 is accepted by all, and used by none: make it the first line if it is the new key, or else remove it.",
		}},
		"one sends with the next": {[]keysOf{node("a", "2", "1"), node("b", "1", "2")}, []string{
			"1 is accepted by all, and used to send by b.", "2 is accepted by all, and used to send by a.", first,
		}},
		"one has removed the former": {[]keysOf{node("a", "2"), node("b", "2", "1")}, []string{
			"1 is accepted by b, but not by a: add it there if it is the new key, or else remove it.", "2 is what all members send with.",
		}},
		"too early": {[]keysOf{node("a", "2", "1"), node("b", "1"), node("c", "")}, []string{
			"No key is stated by c.", "1 is accepted by all, and used to send by b.", "2 is not accepted by b, but used to send by a: add it there now.", first,
		}},
		"seven nodes": {[]keysOf{node("a", "1"), node("b", "1"), node("c", "1"), node("d", "1"), node("e", "1"), node("f", "1"), node("g", "1", "2")}, []string{
			"1 is what all members send with.", "2 is accepted by g, but not by a, b, c, d, e, 1 more: add it there if it is the new key, or else remove it.",
		}},
	} {
		if diff := cmp.Diff(c.want, adviceOnKeys(c.all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
