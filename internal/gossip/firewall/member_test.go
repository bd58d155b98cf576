package firewall_test

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// member is a member of memberlist behind a firewall, in the cluster "test". It sends no hello.
type member struct {
	*memberlist.Memberlist
	firewall   *firewall.Firewall
	ring       *firewall.Ring
	rejections *firewall.Rejections

	mu      sync.Mutex
	packets []string
	merged  []string
	state   []byte
}

func (m *member) NodeMeta(int) []byte             { return nil }
func (m *member) GetBroadcasts(int, int) [][]byte { return nil }

func (m *member) NotifyMsg(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.packets = append(m.packets, string(b))
}

func (m *member) LocalState(bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

func (m *member) MergeRemoteState(b []byte, _ bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.merged = append(m.merged, string(b))
}

func (m *member) got() (packets, merged []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.packets, m.merged
}

func (m *member) holds(state int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = make([]byte, state)
}

func (m *member) addr() string { return m.LocalNode().Address() }

func (m *member) join(other string) error {
	_, err := m.Join([]string{"seed/" + other})
	return err
}

func (m *member) send(to *member, text string) error {
	return m.SendToAddress(memberlist.Address{Addr: to.addr()}, []byte(text))
}

// keys returns the keys of a node. Without secrets, the node sends and accepts plain text.
func keys(secrets ...[]byte) firewall.Keys {
	return firewall.Keys{Secrets: secrets, SendsPlain: len(secrets) == 0, TakesPlain: len(secrets) == 0}
}

// configOf returns the config of a firewall without roost's own protocols.
func configOf(ring *firewall.Ring, r *firewall.Rejections) firewall.Config {
	return firewall.Config{
		Label: "test", Ring: ring, Rejections: r, HeadTimeout: time.Second, StreamTimeout: 5 * time.Second,
		Incoming: func(*firewall.Stream) (bool, error) { return false, nil },
		Outgoing: func(to memberlist.Address) (memberlist.Address, func(*firewall.Stream, time.Time) error) {
			return to, func(*firewall.Stream, time.Time) error { return nil }
		},
	}
}

// start starts a member. change may be nil.
func start(t *testing.T, name string, k firewall.Keys, change func(*firewall.Config)) *member {
	t.Helper()
	m := &member{rejections: firewall.NewRejections(nil)}
	sockets, err := firewall.Listen(netip.MustParseAddrPort("127.0.0.1:0"), nil, m.rejections, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	m.over(t, sockets, name, k, change)
	return m
}

// over starts a member that uses the given transport.
func (m *member) over(t *testing.T, transport memberlist.NodeAwareTransport, name string, k firewall.Keys, change func(*firewall.Config)) {
	t.Helper()
	ring, err := firewall.NewRing(k)
	if err != nil {
		t.Fatal(err)
	}
	cfg := configOf(ring, m.rejections)
	if change != nil {
		change(&cfg)
	}
	m.ring, m.firewall = ring, firewall.New(transport, cfg)
	mc := memberlist.DefaultLocalConfig()
	mc.Name, mc.Label, mc.Delegate, mc.Transport, mc.TCPTimeout = name, "test", m, m.firewall, cfg.StreamTimeout
	mc.Keyring, mc.GossipVerifyIncoming, mc.EnableCompression = ring.Keyring(), !k.TakesPlain, false
	mc.Logger = log.New(io.Discard, "", 0)
	m.Memberlist, err = memberlist.Create(mc)
	if err != nil {
		_ = m.firewall.Shutdown()
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() })
}

// eventually polls until a condition is true, because real sockets take real time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dial opens a connection that is closed at the end of the test.
func dial(t *testing.T, network string, m *member) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, m.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// ends waits until a stream ends, and returns the data that arrived before.
func ends(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var came bytes.Buffer
	if _, err := io.Copy(&came, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the stream stays open")
	}
	return came.Bytes()
}
