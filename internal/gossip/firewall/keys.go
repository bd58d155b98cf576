package firewall

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/memberlist"
)

// Keys are what a node seals and accepts.
type Keys struct {
	Secrets    [][]byte // they open what they have sealed; the first one seals, unless SendsPlain
	SendsPlain bool     // memberlist has no key, and gets plain text alone
	TakesPlain bool
}

// Ring has the keys of a node: memberlist's key ring, what opens messages before memberlist does, and how many messages
// each key has sealed.
type Ring struct {
	sealed  sealed
	keyring *memberlist.Keyring
	accepts atomic.Pointer[accepted]
}

// accepted is what a node accepts at a time.
type accepted struct {
	Keys
	openers
}

// NewRing returns a ring with the given keys. It fails if a key has a wrong size.
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

// Keyring returns the ring of memberlist, which is empty while a node sends plain text.
func (r *Ring) Keyring() *memberlist.Keyring { return r.keyring }

// Widen begins to seal as next says, and accepts what the former keys and the next ones do, because messages are under
// way. One call of Widen or Narrow at a time.
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

// Narrow accepts what k says, and nothing else.
func (r *Ring) Narrow(k Keys) { r.accepts.Store(&accepted{k, newOpeners(k.Secrets)}) }
