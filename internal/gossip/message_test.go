package gossip

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/lease"
)

// reading returns the stream of a test, and its head.
func reading(b []byte, label string, key []byte) (*vettedConn, head) {
	g := &guard{label: label}
	g.credentials.Store(newCredentials(label, key, nil))
	g.ring, _ = firewall.NewRing(g.credentials.Load().Keys) // the keys of a test are valid
	g.places = newAdmission(&g.dropped)
	c := g.vet(&distant{from: "10.0.0.1"})
	c.head = bufio.NewReaderSize(bytes.NewReader(b), maxHead)
	return c, readHead(c.head, label, g.ring.Now().Keys)
}

// packed returns the names and values of one object, as memberlist packs them.
func packed(tb testing.TB, fields ...field) []byte {
	tb.Helper()
	var b bytes.Buffer
	b.WriteByte(0x80 | byte(len(fields)))
	e := codec.NewEncoder(&b, new(codec.MsgpackHandle))
	for _, f := range fields {
		if err := errors.Join(e.Encode(f.key), e.Encode(f.value)); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// A message without encryption is read up to its end, and not beyond its bound.
func TestPlainMessage(t *testing.T) {
	node := packed(t, field{"Name", "a#1"}, field{"Addr", []byte{127, 0, 0, 1}}, field{"Port", uint16(7946)},
		field{"Meta", bytes.Repeat([]byte("m"), 300)}, field{"Incarnation", uint32(70000)}, field{"State", 0},
		field{"Vsn", []uint8{1, 5, 2, 0, 0, 0}})
	exchange := func(nodes, state int, rest ...[]byte) []byte {
		return append(pushPull(t, field{"Nodes", nodes}, field{"UserStateLen", state}, field{"Join", true}), bytes.Join(rest, nil)...)
	}
	ping := func(name string) []byte {
		return append([]byte{typePing}, packed(t, field{"SeqNo", uint32(7)}, field{"Node", name},
			field{"SourceAddr", []byte{127, 0, 0, 1}}, field{"SourcePort", uint16(1)},
			field{"SourceNode", "b#1"})...)
	}
	state := make([]byte, 100_000)
	for _, c := range []struct {
		name string
		b    []byte
		more string // behind the end
		want error
	}{
		{"ping", ping("a#1"), "more", nil},
		{"labeled ping", append([]byte("\xf4\x04test"), ping("a#1")...), "more", nil},
		{"ack", append([]byte{typeAck}, packed(t, field{"SeqNo", 9}, field{"Payload", []byte(nil)})...), "", nil},
		{"error", append([]byte{typeErr}, packed(t, field{"Error", strings.Repeat("e", 300)})...), "", nil},
		{"exchange", exchange(2, len(state), node, node, state), "more", nil},
		{"3,000 nodes", exchange(3000, 0, bytes.Repeat(node, 3000)), "more", nil},
		{"a long name", ping(strings.Repeat("a", maxSmall)), "", errHead},
		{"a long name in a node", exchange(1, 0, packed(t, field{"Name", strings.Repeat("a", 2000)})), "", errHead},
		{"a name of 1 GiB", []byte("\x00\x81\xa4Node\xdb\x40\x00\x00\x00"), "", errHead},
		{"bytes of 4 GiB", []byte("\x00\x81\xa4Node\xc6\xff\xff\xff\xff"), "", errHead},
		{"a long array", []byte("\x00\x81\xa4Node\xdc\xff\xff" + strings.Repeat("\x00", 9000)), "", errHead},
		{"a huge map", []byte("\x00\xdf\xff\xff\xff\xff"), "", errHead},
		{"deep maps", []byte("\x00" + strings.Repeat("\x81\x00", 100)), "", errHead},
		{"a float", []byte("\x00\x81\xa4Node\xca\x00\x00\x00\x00"), "", errHead},
		{"cut short", exchange(2, 10, node), "", io.EOF},
		{"state cut short", exchange(1, 10, node, state[:5]), "", io.ErrUnexpectedEOF},
	} {
		conn, h := reading([]byte(string(c.b)+c.more), "test", nil)
		if h.err != nil {
			t.Errorf("%s: %v", c.name, h.err)
			continue
		}
		got, err := conn.readPlain(h)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, c.b) {
			t.Errorf("%s: %d of %d bytes, %v, want %v", c.name, len(got), len(c.b), err, c.want)
		}
	}
}

// Nodes of a few bytes count by what memberlist keeps of them.
func TestCostOfNodes(t *testing.T) {
	b := append(pushPull(t, field{"Nodes", 2 * lease.MaxNodes}, field{"UserStateLen", 0}, field{"Join", true}),
		bytes.Repeat([]byte{0x80}, 2*lease.MaxNodes)...)
	conn, h := reading(b, "", nil)
	got, err := conn.read(h)
	if cost := conn.guard.places.costs(len(got), conn.nodes); err != nil || cost < 2*lease.MaxNodes*200 {
		t.Errorf("%d bytes with %d nodes cost %d, %v", len(got), conn.nodes, cost, err)
	}
}

// FuzzPlainMessage: memberlist can read each message that passes, and needs no more bytes.
func FuzzPlainMessage(f *testing.F) {
	f.Add([]byte("\x81\xa4Node\xa3a#1\xa5SeqNo\xcd\x01\x00"))
	f.Add([]byte("\x82\xa4Addr\xc4\x02ab\xa3Vsn\x93\x01\x02\x03"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, h := reading(append([]byte{typePing}, b...), "", nil)
		if h.err != nil {
			return
		}
		got, err := conn.readPlain(h)
		if len(got) > maxSmall+1 {
			t.Errorf("%d bytes were kept", len(got))
		}
		if err != nil {
			return
		}
		var ping struct {
			SeqNo      uint32
			Node       string
			SourceAddr []byte
			SourcePort uint16
			SourceNode string
		}
		r := bytes.NewReader(got[1:])
		if err := codec.NewDecoder(r, new(codec.MsgpackHandle)).Decode(&ping); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%x passes, and is cut short: %v", got, err)
		}
	})
}

// FuzzSealedMessage: of what no key has sealed, no more than a short wrong message is passed on.
func FuzzSealedMessage(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	f.Add([]byte{}, uint32(0))
	f.Add([]byte{firewall.SealVersion}, uint32(1))
	f.Add(make([]byte, 100), uint32(100))
	f.Add(make([]byte, 100), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, b []byte, announced uint32) {
		head := binary.BigEndian.AppendUint32([]byte("\xf4\x04test\x0a"), announced)
		conn, h := reading(append(head, b...), "test", key)
		if h.err != nil {
			return
		}
		if got, err := conn.read(h); err == nil && len(got) != len(head)+firewall.LeastSealed {
			t.Errorf("%d bytes are passed on", len(got))
		}
	})
}

// What no key has sealed does not reach memberlist, which gets a short wrong message instead.
func TestSealedMessage(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	sealed := sealedBy(t, key, 100_000)
	wrong := func(change func(b []byte)) []byte {
		b := bytes.Clone(sealed)
		change(b)
		return b
	}
	label := len("\xf4\x04test")
	for _, c := range []struct {
		name  string
		b     []byte
		label string
		whole bool
	}{
		{"by the key", sealed, "test", true},
		{"by another key", sealedBy(t, bytes.Repeat([]byte{8}, 32), 100_000), "test", false},
		{"first byte", wrong(func(b []byte) { b[label+5+13] ^= 1 }), "test", false},
		{"last byte", wrong(func(b []byte) { b[len(b)-1] ^= 1 }), "test", false},
		{"version", wrong(func(b []byte) { b[label+5]++ }), "test", false},
		{"one byte", []byte("\xf4\x04test\x0a\x00\x00\x00\x01\x01"), "test", false},
		{"nothing", []byte("\xf4\x04test\x0a\x00\x00\x00\x00"), "test", false},
	} {
		conn, h := reading(c.b, c.label, key)
		got, err := conn.read(h)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.whole != bytes.Equal(got, c.b) || !c.whole && len(got) != label+5+firewall.LeastSealed {
			t.Errorf("%s: %d of %d bytes", c.name, len(got), len(c.b))
		}
		if got[label] != typeEncrypt || int(binary.BigEndian.Uint32(got[label+1:])) != len(got)-label-5 {
			t.Errorf("%s: memberlist would wait for more than %x", c.name, got[:label+5])
		}
	}
	if _, h := reading([]byte("\xf4\x04test\x0a\x01\x40\x00\x00"), "test", key); !errors.Is(h.err, errHead) {
		t.Errorf("20 MiB: %v", h.err)
	}
	for _, b := range []string{"\xf4\x05other\x0a\x01\x40\x00\x00", "\xf4\x04test\x00", "\xf4\x04test\x06\x83"} {
		conn, h := reading([]byte(b), "test", key)
		if got, err := conn.read(h); err != nil || len(got) > 7 || !strings.HasPrefix(b, string(got)) {
			t.Errorf("%q, which memberlist refuses by its head: %q, %v", b, got, err)
		}
	}
}

// seal returns a message in the form of memberlist, by any version.
func seal(t *testing.T, key []byte, version byte, content, data string) string {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1+12) // version and nonce
	b[0] = version
	return string(gcm.Seal(b, b[1:], []byte(content), []byte(data)))
}

// What a holder of the key seals, and no agent does, does not reach memberlist: some of it would end the
// process, or take far more memory than bytes.
func TestSealedNonsense(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{7}, 32)
	n, _ := start(t, "a#1", func(c *Config) { c.Key = key })
	exchange := func(nodes, state int, rest string) string {
		return string(pushPull(t, field{"Nodes", nodes}, field{"UserStateLen", state}, field{"Join", true})) + rest
	}
	refused := uint64(0)
	counts := func(name string) {
		t.Helper()
		refused++
		eventually(t, name+": the guard counts it", func() bool { return n.Dropped() == refused })
	}
	for name, content := range map[string]string{
		"nothing":                   "",
		"compressed":                "\x09\x82\xa4Algo\x00\xa3Buf\xc4\x01x",
		"a label":                   "\xf4\x04test\x00",
		"sealed again":              "\x0a\x00\x00\x00\x00",
		"a state that is not there": exchange(1, lease.MaxMessageBytes, "\x80"),
		"nodes that are not there":  exchange(2*lease.MaxNodes, 0, "\x80"),
	} {
		head := string(binary.BigEndian.AppendUint32([]byte{typeEncrypt}, uint32(firewall.LeastSealed+len(content))))
		conn := dial(t, "tcp", n)
		write(t, conn, []byte("\xf4\x04test"+head+seal(t, key, 1, content, head+"test")))
		counts(name)
		ends(t, conn)
	}
	padded := strings.Repeat("x", 15) + "\xff" // 255 bytes of padding
	write(t, dial(t, "udp", n), []byte("\xf4\x04test"+seal(t, key, 0, padded, "test")))
	counts("padded packet")
	b, _ := start(t, "b#1", func(c *Config) { c.Key = key })
	if err := b.Join(n.Addr(), nil); err != nil {
		t.Error(err)
	}
}

// sealedBy returns an exchange as memberlist sends it.
func sealedBy(t *testing.T, key []byte, size int) []byte {
	t.Helper()
	l := listener(t)
	a, in := start(t, "a#1", func(c *Config) { c.Key = key })
	in.state = strings.Repeat("s", size)
	go func() { _ = a.Join(l.Addr().String(), nil) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	greet(t, conn, key)
	b := make([]byte, len("\xf4\x04test")+5)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, binary.BigEndian.Uint32(b[len(b)-4:]))
	if _, err := io.ReadFull(conn, rest); err != nil {
		t.Fatal(err)
	}
	return append(b, rest...)
}
