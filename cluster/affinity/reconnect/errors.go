package reconnect

import (
	"errors"
	"fmt"
)

var (
	// ErrGaveUp reports that the client could not be moved to the node of its room. See GaveUpError.
	ErrGaveUp = errors.New("reconnect: gave up reconnecting")

	// ErrRefused reports that a target did not accept the client, because no process listens there or because
	// the process does not serve the room. If your Driver.Connect returns ErrRefused or wraps it, the next
	// attempt starts earlier.
	ErrRefused = errors.New("reconnect: target refused the client")

	// ErrLost reports that the client lost a connection soon after making it.
	ErrLost = errors.New("reconnect: connection lost soon after it was established")

	// ErrNoNode reports that a directive or the answer of a resolve names no node.
	ErrNoNode = errors.New("reconnect: directive names no node")

	// ErrRoom reports that a directive is for a different room than the Driver's.
	ErrRoom = errors.New("reconnect: directive is for another room; use one Driver for each room")

	// ErrDriver reports that Connect or Resolve of a Driver is nil.
	ErrDriver = errors.New("reconnect: a Driver needs both Connect and Resolve")
)

// GaveUpError is the error for a client that could not be moved. errors.Is matches a GaveUpError with
// ErrGaveUp and with every error that Last matches.
type GaveUpError struct {
	Room     string
	Attempts int   // attempts to connect, at all targets
	Last     error // why the last attempt or the resolve before it failed
}

// Error returns the number of attempts and the last error.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("%v to room %q after %d attempts; resolve the room again: %v", ErrGaveUp, e.Room, e.Attempts, e.Last)
}

// Is makes errors.Is match e with ErrGaveUp.
func (e *GaveUpError) Is(target error) bool { return target == ErrGaveUp }

// Unwrap returns Last.
func (e *GaveUpError) Unwrap() error { return e.Last }
