package firewall

// This is the rule for messages of streams. In v0.5.1, memberlist reads a stream while it decodes it
// (readStream and readRemoteState). So memberlist keeps all data that a sender has announced until the sender
// finishes or TCPTimeout expires. It also buffers an encrypted message of up to 20 MiB before it can check
// which key was used (decryptRemoteState). Therefore memberlist only gets complete messages that respect the
// limits of their head and, if there is a key, are encrypted with a valid key.
//
// The rule can be removed when memberlist limits the total memory of all incomplete messages.

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
)

const (
	maxSmall     = 4 << 10  // bytes of an unencrypted ping, answer to a ping, or error
	maxNodeBytes = 512      // average bytes per node in an unencrypted exchange
	pieceSize    = 64 << 10 // bytes that are read or written before they are counted
)

// read returns the complete message of a stream, within its budget. So memberlist uses no memory for a sender
// that does not finish, or that does not have the key.
func (s *Stream) read(h head) ([]byte, error) {
	if h.only {
		return take(s.in, h.at), nil
	}
	if h.bytes > smallStream {
		if err := s.place.move(s.firewall.ctx, &s.firewall.places.toRead, h.bytes, 0); err != nil {
			return nil, err
		}
	}
	s.nodes = h.nodes
	read := s.readPlain
	if h.kind == typeEncrypt {
		read = s.readSealed
	}
	b, err := read(h)
	if !s.incoming || err != nil {
		s.place.leave() // memberlist's memory for an answer is limited by what this node requests
	}
	return b, s.explain(err)
}

// explain returns the error of a stream that had a valid head. The error is ErrEvicted or ErrBusy if this
// node or the other side closed the stream to make room for other streams.
func (s *Stream) explain(err error) error {
	select {
	case <-s.place.gone:
		return ErrEvicted
	default:
	}
	ours := errors.Is(err, ErrHead) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
	if err != nil && !s.incoming && !ours {
		return ErrBusy // a node of another cluster would not have started to answer
	}
	return err
}

// readSealed returns an encrypted message if it was encrypted with a key of this node. Otherwise it returns a
// short message that is also invalid, so that memberlist answers with an error that names the key.
//
// readSealed rejects content that no agent sends. For example, empty content would make memberlist panic, and
// memberlist would decompress 60 kB to 20 MiB.
func (s *Stream) readSealed(h head) ([]byte, error) {
	b := make([]byte, h.at+h.bytes)
	for i := 0; i < len(b); {
		n, err := io.ReadFull(s.in, b[i:min(len(b), i+pieceSize)])
		if err != nil {
			return nil, err
		}
		i += n
		s.place.moved.Add(int64(n))
	}
	if content, ok := unseal(s.firewall.cfg.Ring.accepts.Load(), s.firewall.cfg.Label, b[h.begin:]); ok {
		s.place.prove()
		in := readHead(bufio.NewReaderSize(bytes.NewReader(content), maxHead), "", Keys{TakesPlain: true})
		if in.err != nil || in.only || (&message{b: content, most: len(content)}).checkVersions(in) != nil {
			return nil, ErrHead
		}
		s.nodes = in.nodes
		if s.firewall.cfg.Ring.accepts.Load().SendsPlain { // memberlist has no key
			return append(b[:h.begin:h.begin], content...), nil
		}
		return b, nil
	}
	if s.incoming {
		s.Reject(WrongKey, "")
	}
	wrong := binary.BigEndian.AppendUint32(slices.Clone(b[:h.at-4]), leastSealed)
	return append(append(wrong, sealVersion), make([]byte, leastSealed-1)...), nil
}

// unseal decrypts a message of a stream if it was encrypted with one of the keys. The message type, the
// length and the label are authenticated as well.
func unseal(keys *accepted, label string, message []byte) (content []byte, ok bool) {
	if padded(message[5:]) {
		return nil, false
	}
	return keys.open(nil, message[5:], append(slices.Clone(message[:5]), label...))
}

func take(r io.Reader, n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(r, b) // the bytes are buffered
	return b
}

// readPlain reads an unencrypted message. Only the content of such a message shows where it ends.
func (s *Stream) readPlain(h head) ([]byte, error) {
	m := &message{from: s, most: h.at + h.bytes}
	if h.kind == typePushPull {
		m.err = m.checkVersions(h)
	} else {
		m.next(h.at)
		m.skip(maxDepth)
	}
	return m.b, m.err
}

// maxDepth is the maximum nesting depth of maps and arrays in a message.
const maxDepth = 2

// message is an unencrypted message that is being read. After an error, its state no longer changes.
type message struct {
	from *Stream // nil = the whole message is in b
	most int
	b    []byte
	at   int // number of bytes of b that have been consumed
	err  error
}

// next reads n bytes.
func (m *message) next(n int) []byte {
	for end := m.at + n; m.err == nil && len(m.b) < end; {
		if end > m.most {
			m.err = ErrHead
			break
		}
		at := len(m.b)
		piece := min(end-at, pieceSize)
		m.b = slices.Grow(m.b, end-at)[:at+piece] // the stream has the budget for them
		if _, m.err = io.ReadFull(m.from.in, m.b[at:]); m.err == nil {
			m.from.place.moved.Add(int64(piece))
		}
	}
	if m.err != nil {
		return make([]byte, 8)
	}
	m.at += n
	return m.b[m.at-n : m.at]
}

// length reads an unsigned integer of the given number of bytes. If the value is larger than any valid
// message, length returns readBudget+1 instead, because an int may have only 32 bits.
func (m *message) length(bytes int) int {
	var wide [8]byte
	copy(wide[8-bytes:], m.next(bytes))
	return int(min(binary.BigEndian.Uint64(wide[:]), readBudget+1))
}

// skip reads one MessagePack value.
func (m *message) skip(depth int) {
	if m.err != nil {
		return
	}
	values := 0
	switch b := m.next(1)[0]; {
	case b >= 0x80 && b < 0x90: // a map
		values = 2 * int(b&0x0f)
	case b >= 0x90 && b < 0xa0: // an array
		values = int(b & 0x0f)
	case b == 0xdc:
		values = m.length(2)
	default:
		m.skipScalar(b)
	}
	if values > 0 && depth == 0 {
		m.fail()
	}
	for range values {
		m.skip(depth - 1)
	}
}

// skipScalar reads the rest of a value whose first byte is b.
func (m *message) skipScalar(b byte) {
	switch {
	case b < 0x80, b >= 0xe0, b == 0xc0, b == 0xc2, b == 0xc3: // small integers, nil, booleans
	case b>>5 == 0xa0>>5: // a string
		m.next(int(b & 0x1f))
	case b >= 0xc4 && b <= 0xc6: // bytes
		m.next(m.length(1 << (b - 0xc4)))
	case b >= 0xcc && b <= 0xd3: // integers
		m.next(1 << (b & 3))
	case b >= 0xd9 && b <= 0xdb: // strings
		m.next(m.length(1 << (b - 0xd9)))
	default: // no agent sends it
		m.fail()
	}
}

func (m *message) fail() {
	if m.err == nil {
		m.err = ErrHead
	}
}
