package firewall

// The rule for messages of streams. In v0.5.1, memberlist reads a stream while it decodes it (readStream and
// readRemoteState), so it keeps what a sender has announced until that sender finishes, or TCPTimeout ends. It keeps an
// encrypted message of 20 MiB before it can know whether a key has sealed it (decryptRemoteState). So memberlist gets a
// message only when it is complete, within the bounds of the head, and sealed by a key if there is one.
//
// The rule can go when memberlist takes the bytes of all messages that are not complete from one bound.

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
	maxSmall     = 4 << 10  // bytes of a ping, an answer to one, or an error, without a key
	maxNodeBytes = 512      // of a node in an exchange, on average, without a key
	pieceSize    = 64 << 10 // bytes that are read or written before they are counted
)

// read returns the whole message of a stream, within its budget. So memberlist keeps no memory
// for a sender that does not finish, or that does not have the key.
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
		s.place.leave() // what memberlist does with an answer is bounded by what this node requests
	}
	return b, s.explain(err)
}

// explain returns the error of a stream whose head was fine: this node closed it for others, or
// the other side did.
func (s *Stream) explain(err error) error {
	select {
	case <-s.place.gone:
		return ErrEvicted
	default:
	}
	ours := errors.Is(err, ErrHead) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed)
	if err != nil && !s.incoming && !ours {
		return ErrBusy // another cluster would not have begun to answer
	}
	return err
}

// readSealed returns an encrypted message if a key of this node sealed it; otherwise one that
// is as wrong, and short: memberlist answers with an error that names the key. Content that no agent
// sends is rejected: an empty one would make memberlist panic, and it would unpack 60 kB to 20 MiB.
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

// unseal returns the content of a message of a stream if one of the keys sealed it: its type and length, and
// the label, are authenticated, too.
func unseal(keys *accepted, label string, message []byte) (content []byte, ok bool) {
	if padded(message[5:]) {
		return nil, false
	}
	return keys.open(nil, message[5:], append(slices.Clone(message[:5]), label...))
}

func take(r io.Reader, n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(r, b) // it is buffered
	return b
}

// readPlain returns a message without encryption. Its end follows from its content.
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

// maxDepth is how deep maps and arrays are nested in a message, at most.
const maxDepth = 2

// message is a message without encryption, as far as it is read. After an error it stays as it is.
type message struct {
	from *Stream // nil = all of it is in b
	most int
	b    []byte
	at   int // what of b was read
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
		m.b = slices.Grow(m.b, end-at)[:at+piece] // it has the budget
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

// length reads an unsigned integer of some bytes; all that are larger than any message are one. An int may have
// 32 bits.
func (m *message) length(bytes int) int {
	var wide [8]byte
	copy(wide[8-bytes:], m.next(bytes))
	return int(min(binary.BigEndian.Uint64(wide[:]), readBudget+1))
}

// skip reads one value of msgpack.
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

// skipScalar reads the rest of a value that begins with b.
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
