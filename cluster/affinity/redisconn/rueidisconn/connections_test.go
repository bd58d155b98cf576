package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"
)

// sequence is a connection that records its calls.
type sequence struct {
	net.Conn
	answer string
	calls  []string
}

func (s *sequence) Read(b []byte) (int, error) { return copy(b, s.answer), nil }

func (s *sequence) Close() error {
	s.calls = append(s.calls, "closed")
	return nil
}

// A connection reports its loss once, before it closes or before the next connection to the same address opens. If no
// server has answered, or if the server refused the connection, the connection reports no loss.
func TestAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		answer, next string // next is the address of a second connection, opened while the first is open
		want         []string
	}{
		"answered":       {"%7\r\n", "", []string{"lost", "closed", "closed"}},
		"never answered": {"", "", []string{"closed", "closed"}},
		"refused":        {"-WRONGPASS\r\n", "", []string{"closed", "closed"}},
		"next":           {"%7\r\n", "a", []string{"lost", "next", "closed", "closed"}},
		"next elsewhere": {"%7\r\n", "b", []string{"next", "lost", "closed", "closed"}},
	} {
		s := &sequence{answer: c.answer}
		dial := newConnections(func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return s, nil },
			func() { s.calls = append(s.calls, "lost") }).open
		conn, err := dial(t.Context(), "a", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _ = conn.Read(make([]byte, 9))
			s.answer = "-ERR later\r\n"
		}
		if c.next != "" {
			if _, err := dial(t.Context(), c.next, nil, nil); err != nil {
				t.Fatal(err)
			}
			s.calls = append(s.calls, "next")
		}
		_, _ = conn.Close(), conn.Close()
		if !slices.Equal(s.calls, c.want) {
			t.Errorf("%s: %q, want %q", name, s.calls, c.want)
		}
	}
}
