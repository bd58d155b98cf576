package gossip

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// forward starts a proxy for a node, and returns its address.
func forward(t *testing.T, to string) string {
	t.Helper()
	l := listener(t)
	pipe := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.Close()
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			go pipe(near, far)
			go pipe(far, near)
		}
	}()
	return l.Addr().String()
}

// The caller learns which node answers, and decides whether to continue, before the nodes exchange states.
func TestMeet(t *testing.T) {
	errNotThat := errors.New("test: not that node")
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		t.Run(name, func(t *testing.T) {
			self := Peer{Node: 7, Cluster: lease.ClusterID{3, 5}}
			a, fromB := start(t, "a#1", func(c *Config) {
				c.Key, c.Self = key, func() Peer { return self }
			})
			alias := forward(t, a.Addr())
			b, _ := start(t, "b#1", func(c *Config) { c.Key = key })
			for _, addr := range []string{a.Addr(), alias} {
				var met Peer
				err := b.Join(addr, func(p Peer) error { met = p; return errNotThat })
				if !errors.Is(err, errNotThat) || !strings.Contains(err.Error(), addr) {
					t.Errorf("Join(%s) = %v, want %v", addr, err, errNotThat)
				}
				if met.Node != self.Node || !slices.Equal(met.Cluster, self.Cluster) {
					t.Errorf("met %v, want %v", met, self)
				}
			}
			if _, merged := fromB.got(); len(merged) != 0 || a.list.Load().NumMembers() != 1 || b.list.Load().NumMembers() != 1 {
				t.Errorf("they exchanged states: merged %q", merged)
			}
			if err := b.Join(alias, func(Peer) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// A node that does not know its own handle yet counts as busy, not as gone.
func TestMeetTooEarly(t *testing.T) {
	a, _ := start(t, "a#1", func(c *Config) { c.Self = func() Peer { return Peer{} } })
	b, _ := start(t, "b#1", nil)
	if err := b.Join(a.Addr(), nil); !errors.Is(err, ErrUnfinished) {
		t.Errorf("error %v, want %v", err, ErrUnfinished)
	}
}

// If the other side closes a connection without sending a byte, it may be a proxy whose target is down, so the error
// must not blame the cluster name or the key. If it answers in another protocol, it is not a node.
func TestNoNode(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(net.Conn)
		want  error
	}{
		"closes at once":   {func(net.Conn) {}, ErrHungUp},
		"resets":           {func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }, ErrHungUp},
		"reads and closes": {func(c net.Conn) { _, _ = c.Read(make([]byte, 1000)) }, ErrHungUp},
		"speaks first":     {func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-test\r\n")); drain(c) }, ErrNoNode},
		"answers with an error": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1000))
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n"))
		}, ErrNoNode},
	} {
		t.Run(name, func(t *testing.T) {
			l := listener(t)
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					tt.serve(conn)
					_ = conn.Close()
				}
			}()
			a, _ := start(t, "a#1", nil)
			err := a.Join(l.Addr().String(), nil)
			if !errors.Is(err, tt.want) || errors.Is(err, ErrCluster) || errors.Is(err, ErrKey) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
		})
	}
}

func drain(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// A node rejects a node with other settings while its own join waits for a silent seed. The error of the join must not
// mention these settings.
func TestRefusalOfAnother(t *testing.T) {
	silent := listener(t)
	a, _ := start(t, "a#1", nil)
	x, _ := start(t, "x#1", func(c *Config) { c.Meta = metaOf("other") })
	joined := make(chan error, 1)
	go func() { joined <- a.Join(silent.Addr().String(), nil) }()
	conn, err := silent.Accept() // now the join is running
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Join(a.Addr(), nil); !errors.Is(err, errSettings) {
		t.Errorf("x: error %v, want %v", err, errSettings)
	}
	eventually(t, "a has rejected x", func() bool { return a.rejected.Load() != nil })
	_ = conn.SetDeadline(time.Now())
	_ = conn.Close()
	if err := <-joined; err == nil || errors.Is(err, errSettings) {
		t.Errorf("error %v blames the seed for another node", err)
	}
}

// The error of a join distinguishes a stuck process from a closed port and from a host that is gone.
func TestUnfinished(t *testing.T) {
	a, _ := start(t, "a#1", nil)
	l := listener(t)
	addr := l.Addr().String()
	if err := a.Join(addr, nil); !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), addr) {
		t.Errorf("a seed that accepts and is silent: %v", err)
	}
	_ = l.Close()
	err := a.Join(addr, nil)
	for _, other := range []error{ErrUnfinished, ErrCluster, ErrKey} {
		if err == nil || errors.Is(err, other) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("closed port: %v, want the cause in one line", err)
		}
	}
	gone := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	if err := translate(addr, gone); errors.Is(err, ErrUnfinished) {
		t.Errorf("the host is gone: %v", err)
	}
}

// A rejection is also recognized if the node reaches the seed through a proxy.
func TestRefusalBehindAlias(t *testing.T) {
	seed, _ := start(t, "seed#1", nil)
	node, _ := start(t, "node#1", func(c *Config) { c.Meta = metaOf("other") })
	if err := node.Join(forward(t, seed.Addr()), nil); !errors.Is(err, errSettings) {
		t.Errorf("error %v, want %v", err, errSettings)
	}
}

// A join with a busy seed fails with ErrUnfinished. So the seed does not look as if it were gone, or in another
// cluster.
func TestBusySeed(t *testing.T) {
	for name, key := range map[string][]byte{"plain": nil, "encrypted": bytes.Repeat([]byte{7}, 32)} {
		for what, state := range map[string]int{"small": 10, "large": 6 << 20, "cut short": 10} {
			answer := []byte{firewall.Busy}
			if what == "cut short" {
				answer = []byte{6, 0x81, 0xa5, 'N', 'o', 'd', 'e', 's', 1}
				if key != nil {
					answer = []byte{10, 0, 0, 1, 0, 1, 2, 3}
				}
			}
			t.Run(name+", "+what, func(t *testing.T) {
				l := listener(t)
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						greet(t, conn, key)
						_, _ = conn.Write(answer)
						_ = conn.Close() // resets the connection, because there are unread bytes
					}
				}()
				n, in := start(t, "a#1", func(c *Config) { c.Key = key })
				in.state = string(make([]byte, state))
				if err := n.Join(l.Addr().String(), nil); !errors.Is(err, ErrUnfinished) {
					t.Errorf("error %v, want %v", err, ErrUnfinished)
				}
			})
		}
	}
}
