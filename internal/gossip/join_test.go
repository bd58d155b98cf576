package gossip

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// forward returns another address of a node.
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

func TestJoinSelf(t *testing.T) {
	a, in := start(t, "a#1", nil)
	alias := forward(t, a.Addr())
	for _, addr := range []string{a.Addr(), alias} {
		if err := a.Join(addr); !errors.Is(err, ErrSelf) || !strings.Contains(err.Error(), addr) {
			t.Errorf("Join(%s) = %v, want %v", addr, err, ErrSelf)
		}
	}
	if _, merged := in.got(); len(merged) != 0 {
		t.Errorf("merged %q from itself", merged)
	}
	b, _ := start(t, "b#1", nil)
	if err := b.Join(alias); err != nil {
		t.Errorf("a seed that knows only itself: %v", err)
	}
}

// A node with other settings tries to join while the own seed is silent.
func TestRefusalOfAnother(t *testing.T) {
	silent := listener(t)
	a, _ := start(t, "a#1", nil)
	x, _ := start(t, "x#1", func(c *Config) { c.Meta = []byte("other") })
	joined := make(chan error, 1)
	go func() { joined <- a.Join(silent.Addr().String()) }()
	conn, err := silent.Accept() // now the join is running
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Join(a.Addr()); !errors.Is(err, errSettings) {
		t.Errorf("x: error %v, want %v", err, errSettings)
	}
	eventually(t, "a has rejected x", func() bool { return a.rejected.Load() != nil })
	_ = conn.SetDeadline(time.Now())
	_ = conn.Close()
	if err := <-joined; err == nil || errors.Is(err, errSettings) {
		t.Errorf("error %v blames the seed for another node", err)
	}
}

// A process that is stuck differs from a closed port, and from a host that is gone.
func TestUnfinished(t *testing.T) {
	a, _ := start(t, "a#1", nil)
	l := listener(t)
	addr := l.Addr().String()
	if err := a.Join(addr); !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), addr) {
		t.Errorf("a seed that accepts and is silent: %v", err)
	}
	_ = l.Close()
	err := a.Join(addr)
	for _, other := range []error{ErrUnfinished, ErrCluster, ErrKey} {
		if err == nil || errors.Is(err, other) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("closed port: %v, want the cause in one line", err)
		}
	}
	gone := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	if err := a.translate(addr, gone); errors.Is(err, ErrUnfinished) {
		t.Errorf("the host is gone: %v", err)
	}
}

// A rejection counts for any form of the seed's address.
func TestRefusalBehindAlias(t *testing.T) {
	seed, _ := start(t, "seed#1", nil)
	node, _ := start(t, "node#1", func(c *Config) { c.Meta = []byte("other") })
	if err := node.Join(forward(t, seed.Addr())); !errors.Is(err, errSettings) {
		t.Errorf("error %v, want %v", err, errSettings)
	}
}
