package affinity

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxNameBytes bounds the name of a room or a participant.
	MaxNameBytes = 512

	// MaxSize bounds the participants of a room.
	MaxSize = 1_000_000
)

// CheckName reports why name cannot name a room or participant (an ErrName), or
// nil. A name is 1 to 512 bytes of UTF-8 without control characters and without
// { } and *, which mean something in the keys and patterns of stores.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: it has %d bytes, more than %d", ErrName, len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %.80q is not UTF-8", ErrName, name)
	}
	if i := strings.IndexFunc(name, forbidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return fmt.Errorf("%w: %.80q contains %q", ErrName, name, r)
	}
	return nil
}

func forbidden(r rune) bool {
	return r == '{' || r == '}' || r == '*' || unicode.IsControl(r)
}

func checkSize(size int) error {
	if size < 0 || size > MaxSize {
		return fmt.Errorf("%w: %d participants; it must be 0 to %d", ErrDemand, size, MaxSize)
	}
	return nil
}
