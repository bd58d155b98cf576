package firewall

// This is the rule for encrypted messages. memberlist v0.5.1 panics if the padding of an encrypted message is
// longer than the message (pkcs7decode), or if the content of a stream is empty (readStream). The sender of
// such a message needs a key, so one broken member could end all other processes. Also, if no key decrypts a
// packet, memberlist only reports this in a log line (ingestPacket). So roost decrypts each message before
// memberlist does.
//
// The rule can be removed when memberlist returns an error for invalid padding and for empty content, and
// reports packets with a wrong key.

import (
	"crypto/aes"
	"crypto/cipher"
)

// Versions of an encrypted message, which are specified by its first byte.
const (
	sealPadded  = 0 // with padding, which agents do not send
	sealVersion = 1 // the version that agents send
)

// Sizes in bytes of the parts of an encrypted message other than its content.
const (
	lenVersion  = 1
	sealNonce   = 12
	sealTag     = 16
	leastSealed = lenVersion + sealNonce + sealTag
)

// openers decrypt messages that were encrypted with one of a node's keys.
type openers []cipher.AEAD

// newOpeners returns the openers for the given keys.
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

// open decrypts a message that memberlist encrypted with one of the keys, together with authenticated data,
// and appends the content to dst. It does not remove padding from the content.
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

// padded reports whether an encrypted packet, without its label, has the version byte for padding. Agents do
// not use padding, and memberlist panics on invalid padding. An unencrypted ping starts with the same byte,
// so the result is only certain for a packet that one of the keys decrypts.
func padded(content []byte) bool { return len(content) > 0 && content[0] == sealPadded }
