package firewall

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// Keys specifies how a node encrypts messages, and which messages it accepts.
type Keys struct {
	Secrets    [][]byte // each key decrypts what it has encrypted; the first one encrypts, unless SendsPlain is set
	SendsPlain bool     // memberlist has no key, and only gets plain text
	TakesPlain bool
}

// Ring contains the keys of a node. It consists of memberlist's key ring, the keys that decrypt messages
// before memberlist sees them, and the number of messages that each key has encrypted.
type Ring struct {
	sealed  sealed
	keyring *memberlist.Keyring
	accepts atomic.Pointer[accepted]
}

// accepted specifies which messages a node accepts at one moment.
type accepted struct {
	Keys
	openers
}

// NewRing returns a ring with the given keys. It returns an error if a key has an invalid size.
func NewRing(k Keys) (*Ring, error) {
	r := &Ring{keyring: new(memberlist.Keyring)}
	if !k.SendsPlain {
		keyring, err := memberlist.NewKeyring(k.Secrets[1:], k.Secrets[0])
		if err != nil {
			return nil, fmt.Errorf("gossip: %w", err)
		}
		r.keyring = keyring
		r.sealed.with(k.Secrets[0])
	}
	r.Narrow(k)
	return r, nil
}

// Keyring returns memberlist's key ring. It is empty while the node sends plain text.
func (r *Ring) Keyring() *memberlist.Keyring { return r.keyring }

// Widen starts to encrypt with the next keys. Until Narrow is called, the node also accepts messages that use
// the previous keys, because such messages may still be in transit. Calls of Widen and Narrow must not be
// concurrent.
func (r *Ring) Widen(next Keys) error {
	was := r.accepts.Load().Keys
	wide := Keys{slices.Concat(was.Secrets, next.Secrets), was.SendsPlain, was.TakesPlain || next.TakesPlain}
	r.Narrow(wide)
	if next.SendsPlain {
		return nil
	}
	if err := changeRing(r.keyring, next.Secrets); err != nil {
		return err
	}
	r.sealed.with(next.Secrets[0])
	return nil
}

// Narrow makes the node accept only messages that k allows.
func (r *Ring) Narrow(k Keys) { r.accepts.Store(&accepted{k, newOpeners(k.Secrets)}) }
