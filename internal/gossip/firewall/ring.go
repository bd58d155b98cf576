package firewall

// The rule for the key ring. In v0.5.1, RemoveKey of memberlist shifts the keys behind the removed one without a lock, in
// memory that GetKeys has given to readers. So a packet may be opened with a key that is half another one, and gets
// lost. The fix of https://github.com/hashicorp/memberlist/issues/341 added the lock, but GetKeys still shares the memory.
//
// The rule can go when GetKeys returns a copy, or RemoveKey changes one.

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// changeRing makes wanted the keys of a ring, of which the first one seals. One call at a time.
//
// Removing the last key shifts no other. So the keys that stay move to the front, and the others are removed from the end.
func changeRing(ring *memberlist.Keyring, wanted [][]byte) error {
	for _, k := range wanted {
		if err := ring.AddKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	forget := func(k []byte) bool {
		return !slices.ContainsFunc(wanted, func(w []byte) bool { return bytes.Equal(w, k) })
	}
	front := wanted
	if !slices.ContainsFunc(ring.GetKeys(), forget) {
		front = wanted[:1]
	}
	for _, k := range slices.Backward(front) {
		if err := ring.UseKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	for _, k := range slices.Backward(slices.DeleteFunc(slices.Clone(ring.GetKeys()), func(k []byte) bool { return !forget(k) })) {
		if err := ring.RemoveKey(k); err != nil {
			return fmt.Errorf("gossip: %w", err)
		}
	}
	return nil
}
