package firewall

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
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

// Nodes with an invalid name or address do not get into memberlist's list.
func TestCheck(t *testing.T) {
	ip := net.IPv4(127, 0, 0, 1).To4()
	for _, c := range []struct {
		node memberlist.Node
		want error
	}{
		{memberlist.Node{Name: "a#1", Addr: ip}, nil},
		{memberlist.Node{Name: "a#1", Addr: ip.To16()}, nil},
		{memberlist.Node{Name: "x1", Addr: ip}, errName},
		{memberlist.Node{Name: "b#1", Addr: make([]byte, 60000)}, errAddr},
	} {
		if err := Check(&c.node); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.node.Name, err, c.want)
		}
	}
}

// crowd tries to admit n new names and returns how many were admitted.
func crowd(m *Names, prefix string, n int, now time.Time, then func(name string)) (in int) {
	for i := range n {
		name := fmt.Sprintf("%s%d#1", prefix, i)
		if m.Admit(name, now) == nil {
			in++
			then(name)
		}
	}
	return in
}

func TestNewNamesAreRationed(t *testing.T) {
	var m Names
	now := time.Unix(1000, 0)
	// The first names join and leave. The others never join, like names with incarnation 0.
	pairs := crowd(&m, "x", nameBurst/2, now, func(name string) { m.Joined(name); m.Left(name) })
	never := crowd(&m, "y", nameBurst, now, func(string) {})
	if pairs+never != nameBurst {
		t.Errorf("%d names were admitted at once, want %d", pairs+never, nameBurst)
	}
	if err := m.Admit("late#1", now); !errors.Is(err, errRate) {
		t.Errorf("error %v, want %v", err, errRate)
	}
	for _, name := range []string{"x0#1", "y0#1"} {
		if err := m.Admit(name, now); err != nil {
			t.Errorf("%s is not new: %v", name, err)
		}
	}
	if got := crowd(&m, "z", nameBurst, now.Add(3*time.Second), func(string) {}); got != 3*nameRefill {
		t.Errorf("%d names were admitted after 3 s, want %d", got, 3*nameRefill)
	}
}

func TestKnownNamesAreBounded(t *testing.T) {
	var m Names
	now := time.Unix(1000, 0)
	m.Joined("friend#1")
	for round := range 20 {
		now = now.Add(time.Hour)
		crowd(&m, fmt.Sprintf("r%d-", round), nameBurst, now, func(name string) { m.Joined(name); m.Left(name) })
		if len(m.known) > 2*lease.MaxNodes {
			t.Fatalf("%d names are kept", len(m.known))
		}
	}
	if !m.known["friend#1"] || m.alive != 1 {
		t.Errorf("a live member was forgotten; %d are counted", m.alive)
	}
}

func TestMembersAreBounded(t *testing.T) {
	var m Names
	m.Joined("friend#1")
	m.Joined("ghost#1")
	m.Left("ghost#1")
	for i := range lease.MaxNodes - 1 {
		m.Joined(fmt.Sprintf("m%d#1", i))
	}
	now := time.Unix(1000, 0)
	for name, want := range map[string]error{"friend#1": nil, "new#1": errFull, "ghost#1": errFull} {
		if err := m.Admit(name, now); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}
