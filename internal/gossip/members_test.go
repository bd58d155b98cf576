package gossip

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a#1": true, "node-1.x:y_z#18446744073709551615": true, strings.Repeat("x", 64) + "#0": true,
		"": false, "a": false, "a#": false, "#1": false, "a#1#2": false, "a#x": false, "a#-1": false,
		"a#1 ": false, "a b#1": false, "a\n#1": false,
		"a#" + strings.Repeat("1", 21): false, strings.Repeat("x", 65) + "#1": false,
	} {
		if got := validName(name); got != want {
			t.Errorf("validName(%q) = %v", name, got)
		}
	}
}

func TestNotifyAlive(t *testing.T) {
	d := &delegate{self: "self#1", accept: func(string, []byte) error { return nil }}
	ip := net.IPv4(127, 0, 0, 1).To4()
	for _, c := range []struct {
		node memberlist.Node
		want error
	}{
		{memberlist.Node{Name: "self#1", Addr: ip}, nil},
		{memberlist.Node{Name: "a#1", Addr: ip}, nil},
		{memberlist.Node{Name: "a#1", Addr: ip.To16()}, nil},
		{memberlist.Node{Name: "x1", Addr: ip}, errName},
		{memberlist.Node{Name: "b#1", Addr: make([]byte, 60000)}, errAddr},
	} {
		if err := d.NotifyAlive(&c.node); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.node.Name, err, c.want)
		}
	}
	if len(d.known) != 1 {
		t.Errorf("%d names are kept, want 1", len(d.known))
	}
}

// crowd tries to admit n new names and returns how many were admitted.
func crowd(m *members, prefix string, n int, now time.Time, then func(name string)) (in int) {
	for i := range n {
		name := fmt.Sprintf("%s%d#1", prefix, i)
		if m.admit(name, now) == nil {
			in++
			then(name)
		}
	}
	return in
}

func TestNewNamesAreRationed(t *testing.T) {
	var m members
	now := time.Unix(1000, 0)
	// Alternately alive and dead, and incarnation 0, which never joins.
	pairs := crowd(&m, "x", nameBurst/2, now, func(name string) { m.joined(name); m.left(name) })
	never := crowd(&m, "y", nameBurst, now, func(string) {})
	if pairs+never != nameBurst {
		t.Errorf("%d names were admitted at once, want %d", pairs+never, nameBurst)
	}
	if err := m.admit("late#1", now); !errors.Is(err, errRate) {
		t.Errorf("error %v, want %v", err, errRate)
	}
	for _, name := range []string{"x0#1", "y0#1"} {
		if err := m.admit(name, now); err != nil {
			t.Errorf("%s is not new: %v", name, err)
		}
	}
	if got := crowd(&m, "z", nameBurst, now.Add(3*time.Second), func(string) {}); got != 3*nameRefill {
		t.Errorf("%d names were admitted after 3 s, want %d", got, 3*nameRefill)
	}
}

func TestKnownNamesAreBounded(t *testing.T) {
	var m members
	now := time.Unix(1000, 0)
	m.joined("friend#1")
	for round := range 20 {
		now = now.Add(time.Hour)
		crowd(&m, fmt.Sprintf("r%d-", round), nameBurst, now, func(name string) { m.joined(name); m.left(name) })
		if len(m.known) > 2*maxMembers {
			t.Fatalf("%d names are kept", len(m.known))
		}
	}
	if !m.known["friend#1"] || m.alive != 1 {
		t.Errorf("a live member was forgotten; %d are counted", m.alive)
	}
}

func TestMembersAreBounded(t *testing.T) {
	var m members
	m.joined("friend#1")
	m.joined("ghost#1")
	m.left("ghost#1")
	for i := range maxMembers - 1 {
		m.joined(fmt.Sprintf("m%d#1", i))
	}
	now := time.Unix(1000, 0)
	for name, want := range map[string]error{"friend#1": nil, "new#1": errFull, "ghost#1": errFull} {
		if err := m.admit(name, now); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// Packets from an unauthenticated sender, with valid settings and invalid names.
func TestInventedNames(t *testing.T) {
	n, in := start(t, "a#1", nil)
	conn := dial(t, "udp", n)
	for _, b := range [][]byte{aliveOf(t, "invented"), aliveOf(t, "b#1"), []byte("\x08hello")} {
		write(t, conn, labeled(t, b))
	}
	eventually(t, "b#1 is a member", func() bool { return n.list.Load().NumMembers() > 1 })
	eventually(t, "hello arrives", func() bool { packets, _ := in.got(); return len(packets) == 1 })
	for _, m := range n.list.Load().Members() {
		if m.Name == "invented" {
			t.Error("an invented name is a member")
		}
	}
}

func aliveOf(t *testing.T, name string) []byte {
	t.Helper()
	b := pushPull(t, field{"Incarnation", 1}, field{"Node", name}, field{"Addr", []byte{127, 0, 0, 9}},
		field{"Port", 9}, field{"Meta", []byte("settings")}, field{"Vsn", []byte{1, 5, 2, 2, 5, 4}})
	b[0] = 4 // the same form, but an alive message
	return b
}
