package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestLink(t *testing.T) {
	s := Start(t)
	l := Proxy(t, s.Addr())
	set(t, l.URL(s), nil)
	conn := ping(t, l.Addr())
	pong(t, conn)

	l.Hang()
	_, _ = fmt.Fprint(conn, "PING\r\n")
	fresh := ping(t, l.Addr())
	silent(t, conn)
	silent(t, fresh)
	s.Do("PING") // the link is at fault, not the server
	l.Heal()
	pong(t, conn)
	pong(t, fresh)

	const delay = 60 * time.Millisecond
	l.Delay(delay)
	start := time.Now()
	_, _ = fmt.Fprint(conn, "PING\r\n")
	pong(t, conn)
	if took := time.Since(start); took < 2*delay {
		t.Errorf("round trip in %v", took)
	}

	l.Cut()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an open connection ends with %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection ends with %v", err)
	}
	l.Heal()
	pong(t, ping(t, l.Addr()))
}

// TestLinkCutWhileHanging breaks waiting connections by Cut and by the end of the test.
func TestLinkCutWhileHanging(t *testing.T) {
	l := Proxy(t, Start(t).Addr())
	conn := ping(t, l.Addr())
	pong(t, conn)
	for range 2 {
		l.Hang()
		conn := ping(t, l.Addr())
		silent(t, conn)
		l.Cut()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("it ends with %v", err)
		}
		l.Heal()
	}
	l.Hang()
	ping(t, l.Addr())
}

func TestLinkWithoutTarget(t *testing.T) {
	s := Start(t)
	l := Proxy(t, s.Addr())
	s.Kill()
	conn := ping(t, l.Addr())
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
	s.Restart()
	pong(t, ping(t, l.Addr()))
}
