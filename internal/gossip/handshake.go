package gossip

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/roost-cluster/roost/lease"
)

// The handshake of a watch stream. Each side proves that it has the key of the cluster, by
// a MAC over the random numbers of both sides. A recorded handshake proves nothing later.
//
//	watcher: label, typeWatch, version, number
//	subject: handle, number, proof
//	watcher: proof
//	subject: held
//
// Afterwards both sides are silent.

// typeWatch is the first byte of a watch stream, after the label. memberlist has no
// message of that type.
const typeWatch = 200

const (
	watchVersion = 1
	held         = 1 // the last byte of the handshake: the subject holds the stream

	numberSize = 16
	answerSize = 8 + numberSize + sha256.Size
)

// The roles of the two sides. A proof of one side is none of the other.
const (
	roleWatcher = 'w'
	roleSubject = 's'
)

var (
	errProof    = errors.New("gossip: the other side of a watch stream does not have the key")
	errWatch    = errors.New("gossip: unexpected message on a watch stream")
	errNoHandle = errors.New("gossip: this node has no handle yet")
)

// PlainText stands for plain text among the keys of a node: as the key, the node sends without encryption,
// and as an old key, it accepts that. It is no AES key.
const PlainText = "plain"

func isPlain(key []byte) bool { return len(key) == 0 || string(key) == PlainText }

// credentials are what a node proves in a handshake, and what it sends and accepts.
type credentials struct {
	label string
	given [][]byte // what SetKeys was given; empty = plain text alone
	keys  [][]byte // derived; the first one makes the proofs, each of them verifies

	secrets                [][]byte // what opens sealed messages: given without plain text
	sendsPlain, takesPlain bool
}

// newCredentials derives keys, so that no proof helps against the encryption of packets.
// Without a key, and while plain text is accepted, anyone can make a proof.
func newCredentials(label string, key []byte, old [][]byte) *credentials {
	c := &credentials{label: label, sendsPlain: isPlain(key)}
	for _, k := range append([][]byte{key}, old...) {
		if isPlain(k) {
			k, c.takesPlain = nil, true
			c.given = append(c.given, []byte(PlainText))
		} else {
			c.secrets = append(c.secrets, k)
			c.given = append(c.given, k)
		}
		mac := hmac.New(sha256.New, k)
		_, _ = mac.Write([]byte("roost watch stream"))
		c.keys = append(c.keys, mac.Sum(nil))
	}
	if len(c.secrets) == 0 {
		c.given = nil
	}
	return c
}

// head returns the first bytes of a stream of some type.
func (c *credentials) head(kind byte) []byte {
	if c.label == "" {
		return []byte{kind}
	}
	return append(append([]byte{typeLabel, byte(len(c.label))}, c.label...), kind)
}

// session is what both sides of a handshake know.
type session struct {
	watcher, subject [numberSize]byte
	handle           lease.Handle
}

func (c *credentials) proof(key []byte, role byte, s *session) []byte {
	return c.mac(key, role, s.watcher[:], s.subject[:], binary.BigEndian.AppendUint64(nil, uint64(s.handle)))
}

// mac authenticates what one side says.
func (c *credentials) mac(key []byte, role byte, said ...[]byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(append([]byte{role, watchVersion, byte(len(c.label))}, c.label...))
	for _, b := range said {
		_, _ = mac.Write(b)
	}
	return mac.Sum(nil)
}

func (c *credentials) verify(proof []byte, role byte, s *session) error {
	if !slices.ContainsFunc(c.keys, func(key []byte) bool { return hmac.Equal(proof, c.proof(key, role, s)) }) {
		return errProof
	}
	return nil
}

// watch is the handshake of the watcher. It returns the handle that the subject has
// proven, also with an error.
func (c *credentials) watch(conn io.ReadWriter) (lease.Handle, error) {
	var s session
	_, _ = rand.Read(s.watcher[:]) // never fails
	hello := append(append(c.head(typeWatch), watchVersion), s.watcher[:]...)
	if _, err := conn.Write(hello); err != nil {
		return 0, err
	}
	var answer [answerSize]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return 0, err
	}
	s.handle = lease.Handle(binary.BigEndian.Uint64(answer[:]))
	copy(s.subject[:], answer[8:])
	if err := c.verify(answer[8+numberSize:], roleSubject, &s); err != nil {
		return 0, err
	}
	if _, err := conn.Write(c.proof(c.keys[0], roleWatcher, &s)); err != nil {
		return s.handle, err
	}
	var last [1]byte
	if _, err := io.ReadFull(conn, last[:]); err != nil {
		return s.handle, err
	}
	if last[0] != held {
		return s.handle, errWatch
	}
	return s.handle, nil
}

// answer is the handshake of the subject, after the type byte and without its last byte.
func (c *credentials) answer(conn io.ReadWriter, self lease.Handle) error {
	var hello [1 + numberSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return err
	}
	switch {
	case hello[0] != watchVersion:
		return errWatch
	case self == 0:
		return errNoHandle
	}
	s := session{watcher: [numberSize]byte(hello[1:]), handle: self}
	_, _ = rand.Read(s.subject[:]) // never fails
	answer := binary.BigEndian.AppendUint64(nil, uint64(self))
	answer = append(append(answer, s.subject[:]...), c.proof(c.keys[0], roleSubject, &s)...)
	if _, err := conn.Write(answer); err != nil {
		return err
	}
	var proof [sha256.Size]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return err
	}
	return c.verify(proof[:], roleWatcher, &s)
}
