package firewall_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// Message types of a protocol that memberlist does not know.
const (
	holds  = 200 // an answer, and then silence
	greets = 202 // an answer, and then memberlist
)

var errTest = errors.New("test: not for this one")

// incoming reads three bytes of its protocol and answers "yes". It treats "bad" as malformed, and refuses "not".
func incoming(s *firewall.Stream) (taken bool, err error) {
	_, kind, err := s.Head()
	if err != nil || kind != holds && kind != greets {
		return false, err
	}
	s.Skip()
	said := make([]byte, 3)
	if _, err := io.ReadFull(s, said); err != nil {
		return kind == holds, err
	}
	switch string(said) {
	case "bad":
		return kind == holds, firewall.ErrHead
	case "not":
		return kind == holds, errTest
	}
	if _, err := s.Conn.Write([]byte("yes")); err != nil || kind == greets {
		return false, err
	}
	s.Rest()
	_, _ = s.Conn.Read(make([]byte, 1))
	return true, nil
}

// answered reads the answer.
func answered(t *testing.T, conn net.Conn) {
	t.Helper()
	b := make([]byte, 3)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(conn, b); err != nil || string(b) != "yes" {
		t.Errorf("answer %q, %v", b, err)
	}
}

// A stream that a protocol has taken over uses no slot while the stream is idle, never reaches memberlist, and is closed
// by Shutdown.
func TestTakenStreams(t *testing.T) {
	m := start(t, "a#1", keys(), func(c *firewall.Config) { c.Incoming = incoming })
	all := make([]net.Conn, slots+20)
	for i := range all {
		all[i] = dial(t, "tcp", m)
		write(t, all[i], []byte(label+"\xc8yes"))
		answered(t, all[i])
	}
	if err := start(t, "b#1", keys(), nil).join(m.addr()); err != nil {
		t.Error(err)
	}
	if m.firewall.Dropped() > 0 {
		t.Errorf("%d were dropped", m.firewall.Dropped())
	}
	_ = m.Shutdown()
	for _, conn := range all {
		if b := ends(t, conn); len(b) > 0 {
			t.Fatalf("at the end comes %q", b)
		}
	}
}

// A stream that a protocol rejects is closed without an answer. It is counted if no agent sends such data.
func TestRejectedProtocols(t *testing.T) {
	m := start(t, "a#1", keys(), func(c *firewall.Config) { c.Incoming = incoming })
	for _, begin := range []string{label + "\xc8", label + "\xca"} {
		for _, said := range []string{"not", "bad"} {
			before := m.firewall.Dropped()
			conn := dial(t, "tcp", m)
			write(t, conn, []byte(begin+said))
			if b := ends(t, conn); len(b) > 0 {
				t.Errorf("%q is answered with %q", said, b)
			}
			if counted := m.firewall.Dropped() - before; counted != uint64(strings.Count(said, "bad")) {
				t.Errorf("%q is counted %d times", said, counted)
			}
		}
	}
}

// A protocol can exchange data on a stream before memberlist does. The protocol chooses the address, its data does not
// count as a message, and the join returns its error.
func TestGreetings(t *testing.T) {
	both(t, func(t *testing.T, k firewall.Keys) {
		a := start(t, "a#1", k, func(c *firewall.Config) { c.Incoming = incoming })
		var says atomic.Pointer[string]
		b := start(t, "b#1", k, func(c *firewall.Config) {
			c.Outgoing = func(memberlist.Address) (memberlist.Address, func(*firewall.Stream, time.Time) error) {
				return memberlist.Address{Addr: a.addr()}, func(s *firewall.Stream, until time.Time) error {
					if err := s.Conn.SetDeadline(until); err != nil {
						return err
					}
					if _, err := s.Conn.Write([]byte(label + "\xca" + *says.Load())); err != nil {
						return err
					}
					if _, err := io.ReadFull(s, make([]byte, 3)); err != nil {
						return errTest
					}
					return nil
				}
			}
		})
		for _, said := range []string{"not", "yes"} {
			says.Store(&said)
			err := b.join("127.0.0.1:1")
			if refused := said == "not"; (err != nil) != refused || refused && !strings.Contains(err.Error(), errTest.Error()) {
				t.Errorf("%q: %v", said, err)
			}
			if _, sealed := b.ring.Sealed(); said == "not" && sealed > 0 {
				t.Errorf("%d messages are sealed without an exchange", sealed)
			}
		}
		eventually(t, "a knows both", func() bool { return a.NumMembers() == 2 })
	})
}

// A refused stream releases its slot immediately, so no other stream has to make room.
func TestRefusedStreamsGiveTheirSlotsBack(t *testing.T) {
	m := start(t, "a#1", keys(), func(c *firewall.Config) { c.Incoming = incoming })
	for range slots + 20 {
		conn := dial(t, "tcp", m)
		write(t, conn, []byte(label+"\xcanot"))
		ends(t, conn)
		_ = conn.Close()
	}
	if n := m.firewall.Dropped(); n > 0 {
		t.Errorf("%d streams had to make room", n)
	}
}
