package httpproxy_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/routing/httpproxy"
	"github.com/roost-cluster/roost/internal/redistest"
)

const accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"

// frame returns a WebSocket frame that a server sends.
func frame(opcode byte, size int) []byte {
	b := []byte{0x80 | opcode}
	switch {
	case size < 126:
		b = append(b, byte(size))
	case size < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(size))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(size))
	}
	return append(b, bytes.Repeat([]byte{0x88}, size)...) // 0x88 is also the first byte of a close frame
}

// moving is a table with the key "a". It counts how often the proxy has looked up the key after a move.
type moving struct {
	*owners

	from  string
	looks atomic.Int64
}

func (m *moving) place(key string) (string, bool, error) {
	addr, here, err := m.owners.place(key)
	if addr != m.from {
		m.looks.Add(1)
	}
	return addr, here, err
}

// dial opens a WebSocket for the key "a" through a proxy with CloseMoved.
func dial(t *testing.T, place httpproxy.Place) (net.Conn, *bufio.Reader) {
	t.Helper()
	addr, _ := server(t, newProxy(t, place, func(c *httpproxy.Config) { c.CloseMoved = true }).ServeHTTP)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprint(conn, "GET /rooms/a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the connection is closed
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	return conn, in
}

// accepts starts a server that accepts a WebSocket, runs f with it, and then waits until the proxy closes the
// connection.
func accepts(t *testing.T, f func(net.Conn)) (addr string, ended <-chan struct{}) {
	t.Helper()
	over := make(chan struct{})
	addr, _ = server(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(over)
		conn, in, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, accepted)
		f(conn)
		_, _ = io.Copy(io.Discard, in)
	})
	return addr, over
}

// When the key of a WebSocket moves, the client receives only complete frames, and then a close frame with status 1012.
func TestCloseMoved(t *testing.T) {
	t.Parallel()
	const closed = "\x88\x07\x03\xf4moved"
	first, second, large := frame(1, 5), frame(2, 300), frame(2, 70_000)
	bye := frame(8, 2)
	type cut struct {
		name          string
		before, after []byte // what the server sends before and after the move
		want          []string
		key           *moving
		conn          net.Conn
		in            *bufio.Reader
		ended         <-chan struct{}
	}
	cuts := []*cut{
		{name: "in silence", want: []string{closed}},
		{name: "between frames", before: first, after: second, want: []string{string(first) + closed, string(first) + string(second) + closed}},
		{name: "in a header", before: first[:1], after: first[1:], want: []string{string(first) + closed}},
		{name: "after a header", before: first[:2], after: first[2:], want: []string{string(first) + closed}},
		{name: "in a length", before: second[:3], after: second[3:], want: []string{string(second) + closed}},
		{name: "in a long length", before: large[:7], after: large[7:], want: []string{string(large) + closed}},
		{name: "in a payload", before: large[:5000], after: large[5000:], want: []string{string(large) + closed}},
		{name: "after some frames", before: join(first, large, second, first[:3]), after: first[3:], want: []string{string(join(first, large, second, first)) + closed}},
		{name: "before another frame", before: second[:9], after: join(second[9:], first), want: []string{string(second) + closed, string(join(second, first)) + closed}},
		{name: "after an empty frame", before: frame(9, 0), want: []string{string(frame(9, 0)) + closed}},
		{name: "the server has said it", before: bye, want: []string{string(bye)}},
		{name: "with a mask", before: []byte{0x81, 0x82, 1, 2, 3}, after: []byte{4, 'h', 'i'}, want: []string{"\x81\x82\x01\x02\x03\x04hi" + closed}},
	}
	for _, c := range cuts { // start all cases together, because each waits for the proxy
		c.key = &moving{owners: keyAt("")}
		c.key.from, c.ended = accepts(t, func(conn net.Conn) {
			_, _ = conn.Write(c.before)
			redistest.Until(t, "two looks after the move", func() bool { return c.key.looks.Load() >= 2 })
			_, _ = conn.Write(c.after)
		})
		c.key.move(c.key.from)
		c.conn, c.in = dial(t, c.key.place)
	}
	for _, c := range cuts {
		got := make([]byte, len(c.before))
		if _, err := io.ReadFull(c.in, got); err != nil || !bytes.Equal(got, c.before) {
			t.Fatalf("%s: %q, %v", c.name, got, err)
		}
		c.key.move("192.0.2.1:1")
	}
	for _, c := range cuts {
		rest, err := io.ReadAll(c.in)
		if got := string(c.before) + string(rest); err != nil || !slices.Contains(c.want, got) {
			t.Errorf("%s: %d bytes, which end with %q, %v", c.name, len(got), got[max(0, len(got)-30):], err)
		}
		_ = c.conn.Close()
		<-c.ended
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// If a server hangs in the middle of a frame, the proxy still closes the connection to the client. If a client does not
// close its connection, the proxy does.
func TestMovedFromDeadServer(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string][]byte{"server hangs in a frame": frame(1, 5)[:4], "client does not hang up": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &moving{owners: keyAt("")}
			addr, ended := accepts(t, func(conn net.Conn) { _, _ = conn.Write(sent) })
			m.from = addr
			m.move(addr)
			_, in := dial(t, m.place)
			m.move("192.0.2.1:1")
			got, _ := io.ReadAll(in)
			if !strings.HasPrefix(string(got), string(sent)) || bytes.Contains(got, []byte("moved")) != (sent == nil) {
				t.Errorf("%q", got)
			}
			<-ended
		})
	}
}

// A WebSocket stays open if its key returns to the server before the proxy looks again, or if the key has no owner for
// a while.
func TestMovedBack(t *testing.T) {
	t.Parallel()
	addr, ended := accepts(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	var looks atomic.Int64
	conn, in := dial(t, func(string) (string, bool, error) {
		switch looks.Add(1) {
		case 2:
			return "192.0.2.1:1", false, nil
		case 4, 5:
			return "", false, errors.New("no owner")
		}
		return addr, false, nil
	})
	redistest.Until(t, "five looks", func() bool { return looks.Load() > 5 })
	_, _ = conn.Write([]byte("ping\n"))
	if line, err := in.ReadString('\n'); line != "ping\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	_ = conn.Close()
	<-ended
}
