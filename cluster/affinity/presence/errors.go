package presence

import (
	"errors"
	"fmt"

	"github.com/roost-cluster/roost/internal/roomname"
)

// Errors for use with errors.Is.
var (
	// ErrName reports a room or participant name that CheckName rejects.
	ErrName = errors.New("presence: invalid name")

	// ErrStore reports that the store did not answer.
	ErrStore = errors.New("presence: the store does not answer")

	// ErrClosed reports a call after Close.
	ErrClosed = errors.New("presence: closed")
)

// CheckName returns nil if name can name a room or a participant, or else an ErrName. A name has 1 to 512
// bytes of UTF-8 without control characters and without { } and *.
func CheckName(name string) error {
	if err := roomname.Check(name); err != nil {
		return fmt.Errorf("%w: %w", ErrName, err)
	}
	return nil
}

// storeError makes err an ErrStore.
func storeError(err error) error { return fmt.Errorf("%w: %w", ErrStore, err) }
