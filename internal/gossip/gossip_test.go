package gossip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: askNameServer} // set only once, because abandoned lookups still read it
	leak.Main(m)
}

// inbox is a Receiver that stores its input.
type inbox struct {
	mu      sync.Mutex
	packets []string
	merged  []string
	state   string
}

func (i *inbox) Receive(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.packets = append(i.packets, string(b))
}

func (i *inbox) State() []byte { return []byte(i.state) }

func (i *inbox) Merge(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.merged = append(i.merged, string(b))
}

func (i *inbox) got() (packets, merged []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.packets, i.merged
}

func metaOf(s string) func() []byte { return func() []byte { return []byte(s) } }

var errSettings = errors.New("test: other settings")

func start(t *testing.T, name string, change func(*Config)) (*Node, *inbox) {
	t.Helper()
	in := &inbox{state: "state of " + name}
	cfg := Config{
		Name: name, Bind: "127.0.0.1:0", Cluster: "test", Profile: Local, StreamTimeout: time.Second,
		Meta: metaOf("settings"), Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	cfg.Accept = func(_ string, meta []byte) error {
		if !bytes.Equal(meta, cfg.Meta()) {
			return errSettings
		}
		return nil
	}
	n, err := Start(t.Context(), cfg, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n, in
}

// listener accepts connections until the test ends.
func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// eventually polls until a condition is true, because real sockets take real time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within 10 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// dial opens a connection that is closed at the end of the test.
func dial(t *testing.T, network string, n *Node) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// labeled returns a packet with the label of the cluster "test".
func labeled(t *testing.T, b []byte) []byte {
	t.Helper()
	out, err := memberlist.AddLabelHeaderToPacket(b, "test")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSendAndJoin(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			withKey := func(c *Config) { c.Key = key }
			a, fromB := start(t, "a#1", withKey)
			b, fromA := start(t, "b#1", withKey)
			if err := b.Join(a.Addr(), nil); err != nil {
				t.Fatal(err)
			}
			if _, merged := fromA.got(); len(merged) == 0 || merged[0] != "state of a#1" {
				t.Errorf("after Join, b has merged %q", merged)
			}
			full := strings.Repeat("x", a.Budget())
			if err := a.Send(b.Addr(), []byte(full)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "b receives a full packet", func() bool {
				packets, _ := fromA.got()
				return len(packets) > 0 && packets[0] == full
			})
			eventually(t, "a merges what b knows", func() bool {
				_, merged := fromB.got()
				return len(merged) > 0 && merged[0] == "state of b#1"
			})
		})
	}
}

func TestJoinRejected(t *testing.T) {
	key1, key2 := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	set := func(key []byte, label, meta string) func(*Config) {
		return func(c *Config) { c.Key, c.Cluster, c.Meta = key, label, metaOf(meta) }
	}
	for _, c := range []struct {
		name string
		seed func(*Config)
		node func(*Config)
		want error
	}{
		{"other settings", set(nil, "test", "one"), set(nil, "test", "two"), errSettings},
		{"other settings, encrypted", set(key1, "test", "one"), set(key1, "test", "two"), errSettings},
		{"other cluster", set(nil, "test", "one"), set(nil, "prod", "one"), ErrCluster},
		{"other key", set(key1, "test", "one"), set(key2, "test", "one"), ErrKey},
		{"seed has a key", set(key1, "test", "one"), set(nil, "test", "one"), ErrKey},
		{"seed has no key", set(nil, "test", "one"), set(key1, "test", "one"), ErrKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed, _ := start(t, "seed#1", c.seed)
			node, _ := start(t, "node#1", c.node)
			err := node.Join(seed.Addr(), nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), seed.Addr()) {
				t.Errorf("error does not name the seed: %v", err)
			}
			if n := seed.list.Load().NumMembers(); n != 1 {
				t.Errorf("the seed has %d members: it admitted the other node", n)
			}
			if n := node.list.Load().NumMembers(); n != 1 {
				t.Errorf("the node has %d members", n)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	taken, _ := start(t, "a#1", nil)
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"port taken":    {Config{Bind: taken.Addr()}, "cannot listen on " + taken.Addr()},
		"not ours":      {Config{Bind: "192.0.2.1:7946"}, "(this machine has no such address: "},
		"unknown host":  {Config{Bind: "no-such-host.invalid:0"}, "bind"},
		"no port":       {Config{Bind: "127.0.0.1"}, "bind"},
		"long settings": {Config{Bind: "127.0.0.1:0", Meta: metaOf(string(make([]byte, 513)))}, "513 bytes"},
		"long label":    {Config{Bind: "127.0.0.1:0", Cluster: strings.Repeat("x", 256)}, "256 bytes"},
		"bad advertise": {Config{Bind: "127.0.0.1:0", Advertise: "127.0.0.1:http!"}, "advertise"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Name, c.cfg.Log, c.cfg.StreamTimeout = "x#1", slog.New(slog.DiscardHandler), time.Second
			c.cfg.Accept = func(string, []byte) error { return nil }
			if c.cfg.Meta == nil {
				c.cfg.Meta = metaOf("")
			}
			n, err := Start(t.Context(), c.cfg, &inbox{})
			if err == nil {
				_ = n.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not contain %q", err, c.want)
			}
		})
	}
}

func TestEndInAnyOrder(t *testing.T) {
	a, _ := start(t, "a#1", nil)
	b, _ := start(t, "b#1", nil)
	if err := b.Join(a.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Leave(5 * time.Second); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := b.Leave(time.Second); err != nil { // memberlist alone would panic
		t.Error(err)
	}
	if err := b.Send(a.Addr(), []byte("late")); err == nil {
		t.Error("a closed node sends")
	}
}

// Addresses come from other nodes, so a name in place of an address must not cause a DNS query.
func TestSendTakesNoNames(t *testing.T) {
	a, _ := start(t, "a#1", nil)
	for _, addr := range []string{"localhost:7946", "127.0.0.1", "", "127.0.0.1:99999", "[::1]"} {
		if err := a.Send(addr, []byte("x")); err == nil {
			t.Errorf("sent to %q", addr)
		}
	}
}

func TestResolve(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for seed, want := range map[string]string{
		"127.0.0.1:7946": "127.0.0.1:7946",
		"[::1]:7946":     "[::1]:7946",
		"localhost:1":    "127.0.0.1:1",
	} {
		got, err := Resolve(ctx, seed)
		if err != nil || !strings.Contains(strings.Join(got, " "), want) {
			t.Errorf("Resolve(%q) = %v, %v; want %s", seed, got, err, want)
		}
	}
	for _, seed := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "no-such-host.invalid:1", "_roost._udp.invalid"} {
		if got, err := Resolve(ctx, seed); err == nil || !strings.Contains(err.Error(), seed) {
			t.Errorf("Resolve(%q) = %v, %v; want an error that names it", seed, got, err)
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	l := logger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 1000 {
		l.Print("[ERR] memberlist: something about a packet")
	}
	if n := strings.Count(out.String(), "\n"); n < 1 || n > 2*linesPerSecond+2 {
		t.Errorf("1000 lines became %d", n)
	}
	if !strings.Contains(out.String(), "level=INFO msg=memberlist line=\"something about a packet\"") {
		t.Errorf("unexpected form: %s", out.String())
	}
}

func TestFailedPingsAreNoNews(t *testing.T) {
	if level, _ := parseLevel("[ERR] memberlist: Failed fallback TCP ping: timeout 1s: i/o timeout"); level != slog.LevelDebug {
		t.Errorf("a silent peer is logged as %v", level)
	}
}
