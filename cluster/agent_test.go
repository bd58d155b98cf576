package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/internal/gossip"
	"github.com/roost-cluster/roost/lease"
)

// local returns the configuration of an agent on real loopback sockets.
func local(id string, seeds ...string) cluster.Config {
	return cluster.Config{
		ID: id, Bind: "127.0.0.1:0", Join: seeds, Network: cluster.Local, Log: slog.New(slog.DiscardHandler),
	}
}

func startAgent(t *testing.T, cfg cluster.Config) *cluster.Agent {
	t.Helper()
	a, err := cluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// eventually polls until a condition is true, because an agent on real sockets takes some time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within 10 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func waitReady(t *testing.T, agents ...*cluster.Agent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, a := range agents {
		eventually(t, a.Config().ID+" sees all members", func() bool { return len(a.Members()) == len(agents) })
		if err := a.WaitConverged(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRealSockets(t *testing.T) {
	a := startAgent(t, local("a"))
	b := startAgent(t, local("b", a.Addr()))
	c := startAgent(t, local("c", a.Addr(), b.Addr()))
	waitReady(t, a, b, c)
	mine := map[lease.NodeID]*cluster.Agent{"a": a, "b": b, "c": c}
	for i := range 1000 {
		key := fmt.Sprintf("room-%d", i)
		owner, err := a.Place(key)
		if err != nil {
			t.Fatal(err)
		}
		for id, agent := range mine {
			if other, err := agent.Place(key); err != nil || other.ID != owner.ID {
				t.Fatalf("%s places %s on %v (%v), a on %s", id, key, other, err, owner.ID)
			}
			if agent.IsOwner(key) != (id == owner.ID) {
				t.Fatalf("%s.IsOwner(%s) = %v, the owner is %s", id, key, agent.IsOwner(key), owner.ID)
			}
		}
		best := a.Owners(key, 5)
		if len(best) != 3 || best[0].ID != owner.ID || best[1].ID == best[2].ID || best[0].ID == best[1].ID {
			t.Fatalf("Owners(%s, 5) = %v", key, best)
		}
		if p := b.Partition(key); p != a.Partition(key) {
			t.Fatalf("%s is in partition %d on b, %d on a", key, p, a.Partition(key))
		} else if m, ok := c.OwnerOf(p); !ok || m.ID != owner.ID || m.Addr != mine[m.ID].Addr() {
			t.Fatalf("OwnerOf(%d) = %v, %v", p, m, ok)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Leave(ctx); err != nil {
		t.Error(err)
	}
	waitReady(t, a, b)
	if _, err := c.Place("x"); !errors.Is(err, cluster.ErrClosed) {
		t.Errorf("after Leave, Place fails with %v", err)
	}
	if c.IsOwner("x") || len(c.Owned()) > 0 {
		t.Error("owns something after Leave")
	}
	if err := c.Drain(ctx); !errors.Is(err, cluster.ErrClosed) {
		t.Errorf("Drain after Leave: %v", err)
	}
}

func TestNotReady(t *testing.T) {
	cfg := local("a", "127.0.0.1:1") // no node listens there
	started := make(chan *cluster.Agent, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		a, err := cluster.Start(ctx, cfg)
		if a != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled Start returns %v, %v", a, err)
		}
		started <- a
	}()
	cancel()
	<-started

	cfg.StartDraining = true
	cfg.Bootstrap = true
	a := startAgent(t, cfg)
	if _, err := a.Place("x"); !errors.Is(err, cluster.ErrNotReady) {
		t.Errorf("before it is ready, Place fails with %v", err)
	}
	if m := a.Owners("x", 3); len(m) != 0 {
		t.Errorf("before it is ready, Owners = %v", m)
	}
	select {
	case <-a.Ready():
	case <-time.After(10 * time.Second):
		t.Fatal("never ready")
	}
	if _, err := a.Place("x"); !errors.Is(err, cluster.ErrNoMembers) {
		t.Errorf("with a draining node alone, Place fails with %v", err)
	}
	if err := a.Undrain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !a.IsOwner("x") {
		t.Error("the only node does not own x after Undrain")
	}
}

func TestStartRefused(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	seed := startAgent(t, local("seed"))
	var settings *cluster.SettingsError
	for name, c := range map[string]struct {
		change func(*cluster.Config)
		check  func(error) bool
	}{
		"partitions": {
			func(c *cluster.Config) { c.Partitions = 64 },
			func(err error) bool {
				return errors.As(err, &settings) && settings.Setting == "partitions" && settings.Ours == "64" && settings.Theirs == "1024"
			},
		},
		"ttl": {
			func(c *cluster.Config) { c.LeaseTTL = 3 * time.Second },
			func(err error) bool {
				return errors.As(err, &settings) && settings.Setting == "ttl" && settings.Ours == "3s" && settings.Theirs == "6s"
			},
		},
		"key":     {func(c *cluster.Config) { c.Key = key }, func(err error) bool { return errors.Is(err, cluster.ErrKey) }},
		"cluster": {func(c *cluster.Config) { c.Cluster = "prod" }, func(err error) bool { return errors.Is(err, cluster.ErrCluster) }},
		"port taken": {
			func(c *cluster.Config) { c.Bind = seed.Addr() },
			func(err error) bool { return strings.Contains(err.Error(), "cannot listen on "+seed.Addr()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := local("x", seed.Addr())
			c.change(&cfg)
			a, err := cluster.Start(t.Context(), cfg)
			if err == nil {
				_ = a.Close()
				t.Fatal("started")
			}
			if !c.check(err) {
				t.Errorf("error %v", err)
			}
		})
	}
	if n := len(seed.Members()); n != 1 {
		t.Errorf("the seed has %d members", n)
	}
}

func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	cfg := local("a")
	cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	cfg.HeartbeatInterval, cfg.LeaseTTL = 500*time.Millisecond, time.Second
	a := startAgent(t, cfg)
	_ = a.Close()
	if !strings.Contains(out.String(), "less than 2.5 times HeartbeatInterval") {
		t.Errorf("no warning: %s", out.String())
	}
}

// This sends random bytes to the gossip port. The agent must count them as errors, and keep working.
func TestHostileDatagrams(t *testing.T) {
	a := startAgent(t, local("a"))
	b := startAgent(t, local("b", a.Addr()))
	waitReady(t, a, b)
	conn, err := net.Dial("udp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	label := "\xf4\x05roost"
	version := string(lease.Encode(new(lease.Message))[:1])
	junk := make([]byte, 1200)
	for i := range 20000 {
		for k := range junk {
			junk[k] = byte((i*7919 + k*k*31) >> (k % 7)) // arbitrary, and the same in every run
		}
		packet := string(junk[:i%len(junk)])
		switch i % 4 {
		case 0:
			packet = label + packet
		case 1:
			packet = label + "\x08" + packet // a user message, so it reaches our decoder
		case 2:
			packet = label + "\x08" + version + packet // with our wire version
		}
		_, _ = conn.Write([]byte(packet))
	}
	eventually(t, "a counts the errors", func() bool {
		s := a.Snapshot().Stats
		return s.DecodeErrors > 0 && s.VersionErrors > 0
	})
	waitReady(t, a, b)
}

// If a seed accepts the connection but does not answer, Start must still return when its context ends.
func TestCloseWhileJoining(t *testing.T) {
	for range 20 {
		seed, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if conn, err := seed.Accept(); err == nil {
				defer conn.Close()
			}
			cancel()
			<-t.Context().Done()
		}()
		cfg := local("a", seed.Addr().String())
		cfg.StartupGrace = time.Minute // each connection attempt may take a quarter of this time
		ended := make(chan error, 1)
		go func() {
			_, err := cluster.Start(ctx, cfg)
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Start returned %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("Start has not returned 10 s after its context ended")
		}
		_ = seed.Close()
	}
}

// A node does not start alone while its seed accepts connections but does not answer, and the node says why.
func TestStuckSeed(t *testing.T) {
	seed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	cfg := local("a", seed.Addr().String())
	cfg.StartupGrace = 400 * time.Millisecond // each connection attempt may take a quarter of this time
	const most = 40 * time.Second             // on a busy machine, no attempt may have ended sooner
	for limit := 2500 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := cluster.Start(ctx, cfg)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Start returned %v", err)
		}
		if strings.Contains(err.Error(), "a seed accepts connections but does not answer: ") {
			return
		}
		if limit >= most {
			t.Fatalf("Start does not say why: %v", err)
		}
	}
}

func TestEndsTogether(t *testing.T) {
	a := startAgent(t, local("a"))
	b := startAgent(t, local("b", a.Addr()))
	waitReady(t, a, b)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := b.Leave(ctx); err != nil && !errors.Is(err, cluster.ErrClosed) {
				t.Errorf("Leave: %v", err)
			}
		})
		wait.Go(func() {
			<-time.After(300 * time.Millisecond)
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	wait.Wait()
	if err := b.Err(); err != nil {
		t.Errorf("Err = %v after a wished end", err)
	}
}

// A node is fenced if its loop stands still for too long. The test uses the real clock, because real time passes during
// a turn of the loop, but virtual time does not.
func TestFenceOnRealClock(t *testing.T) {
	var stopped atomic.Bool
	resume := make(chan struct{})
	ctx := gossip.WithEnv(t.Context(), gossip.Env{Gate: func() {
		if stopped.Load() {
			<-resume
		}
	}})
	a := startAgent(t, local("a"))
	b, err := cluster.Start(ctx, local("b", a.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	waitReady(t, a, b)
	mine := b.Owned()
	stopped.Store(true)
	eventually(t, "a notices", func() bool { return len(a.Members()) == 1 })
	eventually(t, "b's own lease runs out by itself",
		func() bool { return len(b.Owned()) == 0 && !b.Live() && !slices.ContainsFunc(mine, b.Owns) })
	stopped.Store(false)
	close(resume)
	waitReady(t, a, b)
	eventually(t, "b owns something again", func() bool { return len(b.Owned()) > 0 })
	if n := b.Snapshot().Stats.Fences; n != 1 {
		t.Errorf("fenced itself %d times", n)
	}
}

// Many goroutines look up owners while a node repeatedly joins and leaves. Under -race, this shows that lookups need no
// lock. The goroutines pause between lookups, because a few lookups are enough for -race.
func TestLookupsDuringChanges(t *testing.T) {
	start := func(id string, seeds ...string) *cluster.Agent {
		cfg := local(id, seeds...)
		cfg.LeaseTTL = time.Minute // a busy machine must not fence it
		return startAgent(t, cfg)
	}
	a := start("a")
	waitReady(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprint(i)
				if m, err := a.Place(key); err != nil || m.ID == "" {
					t.Errorf("Place: %v, %v", m, err)
					return
				}
				a.IsOwner(key)
				a.Owners(key, 2)
				for _, m := range a.Members() {
					_ = m.Age()
				}
				<-time.After(100 * time.Microsecond)
			}
		})
	}
	for range 5 {
		b := start("b", a.Addr())
		waitReady(t, a, b)
		if err := b.Leave(ctx); err != nil {
			t.Error(err)
		}
		waitReady(t, a)
	}
	cancel()
	wait.Wait()
}
