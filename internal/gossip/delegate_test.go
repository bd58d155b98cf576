package gossip

import (
	"bytes"
	"fmt"
	"net"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/lease"
)

func TestNotifyAlive(t *testing.T) {
	d := &delegate{self: "self#1", accept: func(string, []byte) error { return nil }}
	ip := net.IPv4(127, 0, 0, 1).To4()
	for _, c := range []struct {
		node    memberlist.Node
		refused bool
	}{
		{memberlist.Node{Name: "self#1", Addr: ip}, false},
		{memberlist.Node{Name: "a#1", Addr: ip}, false},
		{memberlist.Node{Name: "a#1", Addr: ip.To16()}, false},
		{memberlist.Node{Name: "x1", Addr: ip}, true},
		{memberlist.Node{Name: "b#1", Addr: make([]byte, 60000)}, true},
	} {
		if err := d.NotifyAlive(&c.node); (err != nil) != c.refused {
			t.Errorf("%s: %v, want an error: %v", c.node.Name, err, c.refused)
		}
	}
	for i := range 2 * lease.MaxNodes {
		for _, n := range []memberlist.Node{{Name: fmt.Sprint("x", i), Addr: ip}, {Name: fmt.Sprint("b#", i), Addr: make([]byte, 3)}} {
			if d.NotifyAlive(&n) == nil {
				t.Fatalf("%s at %d bytes was admitted", n.Name, len(n.Addr))
			}
		}
	}
	if err := d.NotifyAlive(&memberlist.Node{Name: "late#1", Addr: ip}); err != nil {
		t.Errorf("rejected nodes use up the rate of new names: %v", err)
	}
}

// An unauthenticated sender announces two nodes. The node with an invalid name does not become a member.
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
	b := bytes.NewBufferString("\x04")
	err := codec.NewEncoder(b, new(codec.MsgpackHandle)).Encode(struct {
		Incarnation int
		Node        string
		Addr        []byte
		Port        int
		Meta, Vsn   []byte
	}{1, name, []byte{127, 0, 0, 9}, 9, []byte("settings"), []byte{1, 5, 2, 2, 5, 4}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
