package gossip

import (
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"

	"github.com/roost-cluster/roost/internal/gossip/firewall"
)

// sealed counts the messages that this node seals with one key. AES-GCM with random nonces is good for 2^32.
type sealed struct {
	fingerprint string
	messages    atomic.Uint64
}

// Fingerprint tells keys apart: the begin of a hash, which says nothing of a random key. That of PlainText is zero.
func Fingerprint(key []byte) [4]byte {
	if isPlain(key) {
		return [4]byte{}
	}
	sum := sha256.Sum256(append([]byte("roost key "), key...))
	return [4]byte(sum[:])
}

func inHex(key []byte) string {
	f := Fingerprint(key)
	return hex.EncodeToString(f[:])
}

// Sealed returns the fingerprint of the key that encrypts, in hexadecimal digits, and how many messages this
// node has sealed with it: packets and messages of streams. A key that comes back keeps its count. Without
// encryption both are zero.
func (n *Node) Sealed() (fingerprint string, messages uint64) {
	if s := n.guard.sealed.Load(); s != nil {
		return s.fingerprint, s.messages.Load()
	}
	return "", 0
}

// seals makes key the one whose messages are counted. One call at a time.
func (g *guard) seals(key []byte) {
	f := inHex(key)
	s := g.everSealed[f]
	if s == nil {
		s = &sealed{fingerprint: f}
		if g.everSealed == nil {
			g.everSealed = make(map[string]*sealed)
		}
		g.everSealed[f] = s
	}
	g.sealed.Store(s)
}

// countSealed counts one message that memberlist has sealed. It may be lost afterwards: its nonce is used up.
func (g *guard) countSealed() {
	if s := g.sealed.Load(); s != nil {
		s.messages.Add(1)
	}
}

// opensWith makes keys the keys that open packets and streams.
func (g *guard) opensWith(keys [][]byte) {
	all := firewall.NewOpeners(keys)
	g.openers.Store(&all)
}
