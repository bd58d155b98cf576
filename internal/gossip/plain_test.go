package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// stages returns the keys of a node at each stage of the switch to the first key.
func stages() [][][]byte {
	key, plain := bytes.Repeat([]byte{1}, 32), []byte(PlainText)
	return [][][]byte{{nil}, {plain, key}, {key, plain}, {key}}
}

// Nodes at the same stage or at neighboring stages understand each other, over UDP and TCP, in both directions. It does
// not matter whether a node was started at its stage or has switched to it. Nodes at other stages reject each other.
func TestStagesToTheFirstKey(t *testing.T) {
	ways := map[string]func(t *testing.T, name string, stage int) (*Node, *inbox){
		"started": func(t *testing.T, name string, stage int) (*Node, *inbox) {
			return start(t, name, func(c *Config) { c.Key, c.OldKeys = stages()[stage][0], stages()[stage][1:] })
		},
		"changed": func(t *testing.T, name string, stage int) (*Node, *inbox) {
			n, in := start(t, name, nil)
			for _, keys := range stages()[1 : 1+stage] {
				if err := n.SetKeys(keys[0], keys[1:]); err != nil {
					t.Fatal(err)
				}
			}
			return n, in
		},
	}
	for way, at := range ways {
		for one := range stages() {
			for other := range stages() {
				t.Run(fmt.Sprintf("%s/%d_joins_%d", way, one, other), func(t *testing.T) {
					a, inA := at(t, "a#1", one)
					b, inB := at(t, "b#1", other)
					err := a.Join(b.Addr(), nil)
					if distance := one - other; distance > 1 || distance < -1 {
						if !errors.Is(err, ErrKey) {
							t.Errorf("joins, %v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					eventually(t, "both have the other's state", func() bool {
						_, merged := inA.got()
						_, too := inB.got()
						return len(merged) > 0 && len(too) > 0
					})
					eventually(t, "packets arrive", func() bool {
						if a.Send(b.Addr(), []byte("to b")) != nil || b.Send(a.Addr(), []byte("to a")) != nil {
							return false
						}
						packets, _ := inA.got()
						too, _ := inB.got()
						return len(packets) > 0 && len(too) > 0
					})
					if counted, _ := a.Sealed(); (counted != "") != (one > 1) {
						t.Errorf("stage %d counts messages sealed with %q", one, counted)
					}
					for _, n := range []*Node{a, b} {
						if n.Dropped() > 0 || n.Rejected(WrongKey) > 0 {
							t.Errorf("%d packets dropped, %d rejected", n.Dropped(), n.Rejected(WrongKey))
						}
					}
				})
			}
		}
	}
}

// A node that has switched to the last stage does not accept plain text from anyone, although memberlist alone would
// accept it.
func TestLastStageTakesNoPlainText(t *testing.T) {
	n, in := start(t, "a#1", nil)
	send := func(text string) { write(t, dial(t, "udp", n), labeled(t, []byte("\x08"+text))) }
	send("plain")
	eventually(t, "a node without a key takes plain text", func() bool { packets, _ := in.got(); return len(packets) == 1 })
	for i, keys := range stages()[1:] {
		if err := n.SetKeys(keys[0], keys[1:]); err != nil {
			t.Fatal(err)
		}
		send("plain")
		if i < 2 {
			eventually(t, "plain text is accepted", func() bool { packets, _ := in.got(); return len(packets) == i+2 })
		}
	}
	eventually(t, "plain text is rejected", func() bool { return n.Rejected(WrongKey) == 1 })
	conn := dial(t, "tcp", n)
	write(t, conn, labeled(t, append([]byte{6, 0x83}, "\xa5Nodes\x00\xacUserStateLen\x05\xa4Join\xc3state"...)))
	eventually(t, "a plain stream is rejected", func() bool { return n.Rejected(WrongKey) == 2 })
	if packets, merged := in.got(); len(packets) != 3 || len(merged) != 0 {
		t.Errorf("accepted packets %q and states %q", packets, merged)
	}
	if err := n.SetKeys([]byte(PlainText), stages()[3]); !errors.Is(err, ErrSealed) {
		t.Errorf("back to plain text: %v", err)
	}
}

// A node that was started with only a key cannot switch back to accepting plain text, because its memberlist would
// still reject it.
func TestStrictStart(t *testing.T) {
	key := stages()[3][0]
	n, _ := start(t, "a#1", func(c *Config) { c.Key = key })
	if err := n.SetKeys(key, [][]byte{[]byte(PlainText)}); !errors.Is(err, ErrSealed) {
		t.Errorf("it accepts plain text again: %v", err)
	}
	if err := n.SetKeys(key, nil); err != nil {
		t.Error(err)
	}
}
