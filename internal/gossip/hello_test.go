package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/roost-cluster/roost/lease"
)

// greet answers the hello of a node of the cluster "test" as a node does.
func greet(t *testing.T, conn net.Conn, key []byte) {
	t.Helper()
	c := newCredentials("test", key, nil)
	m := make([]byte, len(c.head(typeHello))+helloSize)
	if _, err := io.ReadFull(conn, m); err != nil {
		t.Error(err)
	}
	number := m[len(c.head(typeHello))+2:][:numberSize]
	said := append(binary.BigEndian.AppendUint64(nil, 9), 0)
	write(t, conn, append(append([]byte{welcome}, said...), c.mac(c.keys[0], roleCallee, number, said)...))
}

// Who has no key learns nothing, and who has recorded a hello learns no more than its answer.
func TestHelloOfOutsiders(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	n, _ := start(t, "a#1", func(c *Config) {
		c.Key, c.Self = key, func() Peer { return Peer{7, lease.ClusterID{3}} }
	})
	answer := func(creds *credentials, keyed byte) []byte {
		number := make([]byte, numberSize)
		m := append(creds.head(typeHello), helloVersion, keyed)
		m = append(append(m, number...), creds.mac(creds.keys[0], roleCaller, number)...)
		conn := dial(t, "tcp", n)
		write(t, conn, m)
		b, _ := io.ReadAll(io.LimitReader(conn, 1000))
		return b
	}
	for name, tt := range map[string]struct {
		creds *credentials
		keyed byte
		want  byte
		why   Why
	}{
		"other name": {newCredentials("prod", key, nil), 1, otherName, WrongCluster},
		"no name":    {newCredentials("", key, nil), 1, otherName, WrongCluster},
		"no key":     {newCredentials("test", nil, nil), 0, needsKey, WrongKey},
		"other key":  {newCredentials("test", bytes.Repeat([]byte{8}, 32), nil), 1, otherKey, WrongKey},
	} {
		before := n.Rejected(tt.why)
		if got := answer(tt.creds, tt.keyed); len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: answer % x, want %d alone", name, got, tt.want)
		}
		eventually(t, name+" is counted", func() bool { return n.Rejected(tt.why) > before })
	}
}

// An answer that was recorded, or that names too many founders, is no proof.
func TestForgedPeers(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	c := newCredentials("test", key, nil)
	number := make([]byte, numberSize)
	said := append(binary.BigEndian.AppendUint64(nil, 7), 1, 0, 0, 0, 0, 0, 0, 0, 3)
	good := append(bytes.Clone(said), c.mac(c.keys[0], roleCallee, number, said)...)
	p, err := c.readPeer(bytes.NewReader(good), number)
	if err != nil || p.Node != 7 || len(p.Cluster) != 1 || p.Cluster[0] != 3 {
		t.Fatalf("%v, %v", p, err)
	}
	other := bytes.Repeat([]byte{1}, numberSize)
	if _, err := c.readPeer(bytes.NewReader(good), other); !errors.Is(err, ErrKey) {
		t.Errorf("recorded: %v", err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i]++
		if p, err := c.readPeer(bytes.NewReader(bad), number); err == nil {
			t.Errorf("byte %d changed: %v", i, p)
		}
	}
	many := append(binary.BigEndian.AppendUint64(nil, 7), 255)
	if _, err := c.readPeer(bytes.NewReader(many), number); !errors.Is(err, ErrNoNode) {
		t.Errorf("many founders: %v", err)
	}
}
