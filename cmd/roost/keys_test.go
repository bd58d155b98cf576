package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/affinity"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestKeyRotation: five agents change their key while they look up keys and serve rooms. No lease ends, and no
// call fails. Afterwards the former key is refused.
func TestKeyRotation(t *testing.T) { // S9.6
	t.Parallel()
	dir, redis := t.TempDir(), redistest.Start(t)
	key := func(name string) string {
		path := filepath.Join(dir, name)
		succeeds(t, "keygen", "--out", path)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	former, next := key("former"), key("next")
	write := func(id, keys string) string {
		path := filepath.Join(dir, id)
		if err := errors.Join(os.WriteFile(path+".new", []byte(keys), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	settings := append(brisk(), "--redis", redis.URL(), "--capacity", "1000", "--report-load")
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
	}
	write("node-0", "nonsense\n")
	agents[0].Signal(syscall.SIGHUP)
	agents[0].Logs("gossip keys stay as they are")
	stop()
	clients.Wait()
	agree(t, agents...)
	for _, a := range agents {
		for _, bad := range []string{"member left", "stalled", "unable to decrypt", "undecryptable", strings.TrimSpace(former), strings.TrimSpace(next)} {
			if strings.Contains(a.Text(), bad) {
				t.Errorf("%s logs %q", a.ID, bad)
			}
		}
		if m, err := a.Members(t.Context()); err != nil || len(m.Members) != len(agents) {
			t.Errorf("%s sees %d members, %v", a.ID, len(m.Members), err)
		}
	}
	old := agenttest.Launch(t, "old", append(brisk(), "--key-file", write("old", former), "--join", agents[0].Gossip)...)
	old.Exits(exitFailed, "the gossip keys differ")
	if m, err := agents[0].Members(t.Context()); err != nil || len(m.Members) != len(agents) {
		t.Errorf("with the former key: %d members, %v", len(m.Members), err)
	}
	fresh := agent(t, "new", append(settings, "--key-file", write("new", next), "--join", agents[1].Gossip)...)
	agree(t, append(agents, fresh)...)
}
