package gossip

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/hashicorp/memberlist"
	"github.com/roost-cluster/roost/internal/gossip/firewall"
	"github.com/roost-cluster/roost/internal/wire"
	"github.com/roost-cluster/roost/lease"
)

// This is the handshake of a watch stream. Each side proves that it has the key of the cluster, with a MAC
// over random numbers from both sides. So a replayed handshake proves nothing.
//
//	watcher: label, typeWatch, frame: version, number
//	subject: frame: handle, number, proof
//	watcher: frame: proof
//	subject: held
//
// After the handshake, neither side sends any data.

// typeWatch is the first byte of a watch stream after the label. memberlist does not use this message type.
const typeWatch = 200

const (
	watchVersion = 1
	held         = 1 // the last byte of the handshake: the subject holds the stream

	numberSize = 16
)

// Roles of the two sides in a handshake. A proof includes the role, so a proof of one side is not valid for
// the other side.
const (
	roleWatcher = 'w'
	roleSubject = 's'
)

var (
	errProof    = errors.New("gossip: the other side of a watch stream does not have the key")
	errWatch    = errors.New("gossip: unexpected message on a watch stream")
	errNoHandle = errors.New("gossip: this node has no handle yet")
)

// PlainText represents plain text in a list of keys. If PlainText is the current key, the node sends without
// encryption. If it is an old key, the node accepts messages without encryption. PlainText is not a valid AES
// key.
const PlainText = "plain"

func isPlain(key []byte) bool { return len(key) == 0 || string(key) == PlainText }

// Fingerprint identifies a key by the first bytes of its hash. These bytes reveal nothing about a random key. The
// fingerprint of PlainText is zero.
func Fingerprint(key []byte) [4]byte {
	if isPlain(key) {
		return [4]byte{}
	}
	return firewall.Fingerprint(key)
}

// credentials contain the keys with which a node encrypts and accepts messages, and the derived keys for its
// handshakes.
type credentials struct {
	firewall.Keys
	label string
	given [][]byte // keys passed to SetKeys; empty = only plain text
	keys  [][]byte // derived keys; the first one makes the proofs, and each of them verifies proofs
}

// newCredentials derives the keys for proofs from the given keys, so that a proof does not help to break the
// encryption of packets. Without a key, and while plain text is accepted, anyone can create a valid proof.
func newCredentials(label string, key []byte, old [][]byte) *credentials {
	c := &credentials{label: label, Keys: firewall.Keys{SendsPlain: isPlain(key)}}
	for _, k := range append([][]byte{key}, old...) {
		if isPlain(k) {
			k, c.TakesPlain = nil, true
			c.given = append(c.given, []byte(PlainText))
		} else {
			c.Secrets = append(c.Secrets, k)
			c.given = append(c.given, k)
		}
		mac := hmac.New(sha256.New, k)
		_, _ = mac.Write([]byte("roost watch stream"))
		c.keys = append(c.keys, mac.Sum(nil))
	}
	if len(c.Secrets) == 0 {
		c.given = nil
	}
	return c
}

// head returns the first bytes of a stream with the given type.
func (c *credentials) head(kind byte) []byte {
	b, _ := memberlist.AddLabelHeaderToPacket([]byte{kind}, c.label) // cannot fail for a label of at most 255 bytes
	return b
}

// session contains the values that both sides of a handshake know.
type session struct {
	watcher, subject [numberSize]byte
	handle           lease.Handle
}

func (c *credentials) proof(key []byte, role byte, s *session) []byte {
	return c.mac(key, role, s.watcher[:], s.subject[:], binary.BigEndian.AppendUint64(nil, uint64(s.handle)))
}

// mac returns a MAC over the values that one side sends.
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

// watch performs the watcher's side of the handshake. It returns the handle that the subject has proven, even
// if there is an error.
func (c *credentials) watch(conn io.ReadWriter) (lease.Handle, error) {
	var s session
	_, _ = rand.Read(s.watcher[:]) // never fails
	hello := appendFrame(c.head(typeWatch), 2, func(w *wire.Writer) {
		w.Uint(watchVersion)
		w.Bytes(s.watcher[:])
	})
	if _, err := conn.Write(hello); err != nil {
		return 0, err
	}
	var proof []byte
	err := readFrame(conn, 3, errWatch, func(r *wire.Reader) {
		s.handle = lease.Handle(r.Handle())
		copy(s.subject[:], r.Fixed(numberSize))
		proof = r.Fixed(sha256.Size)
	})
	if err == nil {
		err = c.verify(proof, roleSubject, &s)
	}
	if err != nil {
		return 0, err
	}
	if _, err := conn.Write(proofFrame(c.proof(c.keys[0], roleWatcher, &s))); err != nil {
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

// proofFrame returns the last frame that the watcher sends.
func proofFrame(proof []byte) []byte {
	return appendFrame(nil, 1, func(w *wire.Writer) { w.Bytes(proof) })
}

// answer performs the subject's side of the handshake. It starts after the type byte, and does not send the
// last byte.
func (c *credentials) answer(conn io.ReadWriter, self lease.Handle) error {
	s := session{handle: self}
	err := readFrame(conn, 2, errWatch, func(r *wire.Reader) {
		if r.Uint(math.MaxUint64) != watchVersion {
			r.Fail("another version")
		}
		copy(s.watcher[:], r.Fixed(numberSize))
	})
	switch {
	case err != nil:
		return err
	case self == 0:
		return errNoHandle
	}
	_, _ = rand.Read(s.subject[:]) // never fails
	answer := appendFrame(nil, 3, func(w *wire.Writer) {
		w.Handle(uint64(self))
		w.Bytes(s.subject[:])
		w.Bytes(c.proof(c.keys[0], roleSubject, &s))
	})
	if _, err := conn.Write(answer); err != nil {
		return err
	}
	var proof []byte
	if err := readFrame(conn, 1, errWatch, func(r *wire.Reader) { proof = r.Fixed(sha256.Size) }); err != nil {
		return err
	}
	return c.verify(proof, roleWatcher, &s)
}
