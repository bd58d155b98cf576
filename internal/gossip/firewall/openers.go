package firewall

// The rule for what a key has sealed. memberlist v0.5.1 panics if the padding of a sealed message is longer than the
// message (pkcs7decode), or if a stream's content is empty (readStream). The sender has to have a key, so one broken
// member can end all others. And if no key opens a packet, memberlist says so in a log line and nowhere else
// (ingestPacket). So roost opens each message before memberlist does.
//
// The rule can go when memberlist returns an error for wrong padding and for empty content, and reports wrong keys.

import (
	"crypto/aes"
	"crypto/cipher"
)

// Versions of an encrypted message, its first byte.
const (
	sealPadded  = 0 // with padding: no agent sends it
	sealVersion = 1 // the version that agents send
)

// Bytes of an encrypted message besides its content.
const (
	lenVersion  = 1
	sealNonce   = 12
	sealTag     = 16
	leastSealed = lenVersion + sealNonce + sealTag
)

// openers open what the keys of a node have sealed.
type openers []cipher.AEAD

// newOpeners returns what opens messages that one of the keys has sealed.
func newOpeners(keys [][]byte) openers {
	all := make(openers, 0, len(keys))
	for _, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			continue // memberlist has checked the sizes
		}
		if gcm, err := cipher.NewGCM(block); err == nil {
			all = append(all, gcm)
		}
	}
	return all
}

// open appends the content to dst if one of the keys has sealed it, as memberlist seals it, together with
// other data. A content that is padded keeps its padding.
func (all openers) open(dst, sealed, data []byte) (content []byte, ok bool) {
	if len(sealed) < leastSealed || sealed[0] > sealVersion {
		return nil, false
	}
	nonce, sealed := sealed[lenVersion:lenVersion+sealNonce], sealed[lenVersion+sealNonce:]
	for _, gcm := range all {
		if content, err := gcm.Open(dst, nonce, sealed, data); err == nil {
			return content, true
		}
	}
	return nil, false
}

// padded reports whether a sealed packet, without its label, says that it is padded. No agent pads, and
// memberlist would panic on a wrong padding. A ping in plain text begins with the same byte, so only one that
// a key has sealed is padded for certain.
func padded(content []byte) bool { return len(content) > 0 && content[0] == sealPadded }
