package firewall

// This is the rule for the key ring. In v0.5.1, memberlist's RemoveKey moves the keys after the removed one
// without a lock, in memory that GetKeys has already returned to readers. So a reader may try to decrypt a
// packet with a mixture of two keys, and the packet is lost. The fix of
// https://github.com/hashicorp/memberlist/issues/341 added the lock, but GetKeys still shares the memory.
//
// The rule can be removed when GetKeys returns a copy, or when RemoveKey modifies a copy.

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hashicorp/memberlist"
)

// changeRing replaces the keys of a ring with the wanted keys. The first wanted key becomes the key that encrypts.
// Calls must not be concurrent.
//
// Removing the last key does not move any other key. So changeRing first moves the wanted keys to the front, and then
// removes the others from the end.
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
