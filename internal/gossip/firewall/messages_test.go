package firewall

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/roost-cluster/roost/lease"
)

// reading returns a stream that contains b, and its head. key may be nil.
func reading(b []byte, label string, key []byte) (*Stream, head) {
	k := Keys{SendsPlain: true, TakesPlain: true}
	if key != nil {
		k = Keys{Secrets: [][]byte{key}}
	}
	ring, _ := NewRing(k) // the keys of a test are valid
	f := &Firewall{cfg: Config{Label: label, Ring: ring}}
	f.places = newAdmission(&f.dropped)
	s := f.stream(f.places.outgoing(&distant{from: "10.0.0.1"}), false)
	s.in = bufio.NewReaderSize(bytes.NewReader(b), maxHead)
	return s, readHead(s.in, label, k)
}

// packed returns an object with these fields, encoded like memberlist's objects.
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

// An unencrypted message is read up to its end, but not beyond its size limit.
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
		more string // after the end
		want error
	}{
		{"ping", ping("a#1"), "more", nil},
		{"labeled ping", append([]byte("\xf4\x04test"), ping("a#1")...), "more", nil},
		{"ack", append([]byte{typeAck}, packed(t, field{"SeqNo", 9}, field{"Payload", []byte(nil)})...), "", nil},
		{"error", append([]byte{typeErr}, packed(t, field{"Error", strings.Repeat("e", 300)})...), "", nil},
		{"exchange", exchange(2, len(state), node, node, state), "more", nil},
		{"3,000 nodes", exchange(3000, 0, bytes.Repeat(node, 3000)), "more", nil},
		{"a long name", ping(strings.Repeat("a", maxSmall)), "", ErrHead},
		{"a long name in a node", exchange(1, 0, packed(t, field{"Name", strings.Repeat("a", 2000)})), "", ErrHead},
		{"a name of 1 GiB", []byte("\x00\x81\xa4Node\xdb\x40\x00\x00\x00"), "", ErrHead},
		{"bytes of 4 GiB", []byte("\x00\x81\xa4Node\xc6\xff\xff\xff\xff"), "", ErrHead},
		{"a long array", []byte("\x00\x81\xa4Node\xdc\xff\xff" + strings.Repeat("\x00", 9000)), "", ErrHead},
		{"a huge map", []byte("\x00\xdf\xff\xff\xff\xff"), "", ErrHead},
		{"deep maps", []byte("\x00" + strings.Repeat("\x81\x00", 100)), "", ErrHead},
		{"a float", []byte("\x00\x81\xa4Node\xca\x00\x00\x00\x00"), "", ErrHead},
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

// If a message contains nodes of a few bytes each, its cost includes the memory that memberlist keeps for each node.
func TestCostOfNodes(t *testing.T) {
	b := append(pushPull(t, field{"Nodes", 2 * lease.MaxNodes}, field{"UserStateLen", 0}, field{"Join", true}),
		bytes.Repeat([]byte("\x81\xa3Vsn\xa6\x01\x05\x02\x00\x00\x00"), 2*lease.MaxNodes)...)
	conn, h := reading(b, "", nil)
	got, err := conn.read(h)
	if cost := conn.firewall.places.costs(len(got), conn.nodes); err != nil || cost < 2*lease.MaxNodes*200 {
		t.Errorf("%d bytes with %d nodes cost %d, %v", len(got), conn.nodes, cost, err)
	}
}

// FuzzPlainMessage checks that memberlist can read every accepted message, and does not wait for more bytes.
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

// FuzzSealedMessage checks that a message that no key decrypts is replaced with a short invalid message.
func FuzzSealedMessage(f *testing.F) {
	key := bytes.Repeat([]byte{7}, 32)
	f.Add([]byte{}, uint32(0))
	f.Add([]byte{sealVersion}, uint32(1))
	f.Add(make([]byte, 100), uint32(100))
	f.Add(make([]byte, 100), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, b []byte, announced uint32) {
		head := binary.BigEndian.AppendUint32([]byte("\xf4\x04test\x0a"), announced)
		conn, h := reading(append(head, b...), "test", key)
		if h.err != nil {
			return
		}
		if got, err := conn.read(h); err == nil && len(got) != len(head)+leastSealed {
			t.Errorf("%d bytes are passed on", len(got))
		}
	})
}

// If a stream sends a message that was encrypted with the key, the stream is closed last when others need room.
func TestSealedMessageProves(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	content := "\x00\x81\xa5SeqNo\x01" // a ping
	head := binary.BigEndian.AppendUint32([]byte{typeEncrypt}, uint32(leastSealed+len(content)))
	nonce := append([]byte{sealVersion}, make([]byte, sealNonce)...)
	for name, with := range map[string][]byte{"with the key": key, "with another key": bytes.Repeat([]byte{8}, 32)} {
		message := newOpeners([][]byte{with})[0].Seal(bytes.Clone(nonce), nonce[lenVersion:], []byte(content), head)
		s, h := reading(append(bytes.Clone(head), message...), "", key)
		if _, err := s.read(h); err != nil || s.place.proven != (name == "with the key") {
			t.Errorf("%s: it has shown the key: %v, %v", name, s.place.proven, err)
		}
	}
}
