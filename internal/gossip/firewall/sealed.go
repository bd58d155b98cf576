package firewall

// This is the rule for the number of messages per key. memberlist v0.5.1 encrypts each message with a random
// nonce (encryptPayload). With random nonces, AES-GCM is only safe for 2^32 messages of all nodes together,
// but memberlist does not count them. So operators of a cluster that has been running for months could not
// tell when it needs a new key.
//
// The rule can be removed when memberlist counts the messages per key.

import (
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
)

// Fingerprint identifies a key by the first bytes of its hash. These bytes reveal nothing about a random key.
func Fingerprint(key []byte) [4]byte {
	sum := sha256.Sum256(append([]byte("roost key "), key...))
	return [4]byte(sum[:])
}

// sealed counts the messages that a node encrypts, per key. The zero value counts nothing, which is correct
// without encryption.
type sealed struct {
	current atomic.Pointer[sealedBy]
	all     map[string]*sealedBy // by fingerprint
}

// sealedBy counts the messages of one key.
type sealedBy struct {
	fingerprint string
	messages    atomic.Uint64
}

// with selects the key whose messages are counted. If a key is used again, its count continues. Calls must
// not be concurrent.
func (s *sealed) with(key []byte) {
	f := Fingerprint(key)
	name := hex.EncodeToString(f[:])
	if s.all == nil {
		s.all = make(map[string]*sealedBy)
	}
	if s.all[name] == nil {
		s.all[name] = &sealedBy{fingerprint: name}
	}
	s.current.Store(s.all[name])
}

// countSealed counts one message that memberlist has encrypted. The message is counted even if it is lost,
// because its nonce has been used.
func (r *Ring) countSealed() {
	if by := r.sealed.current.Load(); by != nil {
		by.messages.Add(1)
	}
}

// Sealed returns the fingerprint of the key that encrypts, in hexadecimal digits, and how many packets and
// stream messages this node has encrypted with it. Without encryption, both results are zero.
func (r *Ring) Sealed() (fingerprint string, messages uint64) {
	if by := r.sealed.current.Load(); by != nil {
		return by.fingerprint, by.messages.Load()
	}
	return "", 0
}
