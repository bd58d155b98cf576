package presence

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/internal/roomname"
)

// Use errors.Is to check for these errors.
var (
	// ErrName reports a room or participant name that CheckName rejects.
	ErrName = errors.New("presence: invalid name")

	// ErrStore reports that the store did not answer.
	ErrStore = errors.New("presence: the store does not answer")

	// ErrClosed reports a call after Close.
	ErrClosed = errors.New("presence: closed")
)

// CheckName returns nil if name is a valid name of a room or a participant. Otherwise, CheckName returns an
// ErrName. A name is valid if it has 1 to 512 bytes of UTF-8 and contains no control characters and none of {
// } *.
func CheckName(name string) error {
	if err := roomname.Check(name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

// storeError wraps err in ErrStore.
func storeError(err error) error { return fmt.Errorf("%w: %w", ErrStore, err) }
