package firewall

// The rule for how often a key seals. memberlist v0.5.1 seals each message with a random nonce (encryptPayload), which
// AES-GCM bears for 2^32 messages of all nodes together, and counts none of them. So nobody could tell when a cluster
// that has sent for months needs a new key.
//
// The rule can go when memberlist counts the messages by key.

import (
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
)

// Fingerprint tells keys apart: the begin of a hash, which says nothing of a random key.
func Fingerprint(key []byte) [4]byte {
	sum := sha256.Sum256(append([]byte("roost key "), key...))
	return [4]byte(sum[:])
}

// sealed counts the messages that a node seals, by key. The zero value counts nothing, as without encryption.
type sealed struct {
	current atomic.Pointer[sealedBy]
	all     map[string]*sealedBy // by fingerprint
}

// sealedBy counts the messages of one key.
type sealedBy struct {
	fingerprint string
	messages    atomic.Uint64
}

// with makes key the one whose messages are counted. A key that comes back goes on where it was. One call at a time.
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

// countSealed counts one message that memberlist has sealed. It may be lost afterwards: its nonce is used up.
func (r *Ring) countSealed() {
	if by := r.sealed.current.Load(); by != nil {
		by.messages.Add(1)
	}
}

// Sealed returns the fingerprint of the key that seals, in hexadecimal digits, and how many messages this node has sealed
// with it: packets and messages of streams. Without encryption both are zero.
func (r *Ring) Sealed() (fingerprint string, messages uint64) {
	if by := r.sealed.current.Load(); by != nil {
		return by.fingerprint, by.messages.Load()
	}
	return "", 0
}
