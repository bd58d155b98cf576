// Package roomname has the rule for names of rooms and participants, which
// affinity and presence share.
package roomname

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxBytes is the maximum length of a name.
const MaxBytes = 512

// Check returns the problem of name, or nil. A valid name is 1 to MaxBytes
// bytes of UTF-8 without control characters and without { } and *, which have a
// meaning in the keys and patterns of stores.
func Check(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > MaxBytes:
		return fmt.Errorf("it has %d bytes, more than %d", len(name), MaxBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%.80q is not UTF-8", name)
	}
	if i := strings.IndexFunc(name, forbidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(name[i:])
		return fmt.Errorf("%.80q contains %q", name, r)
	}
	return nil
}

func forbidden(r rune) bool {
	return r == '{' || r == '}' || r == '*' || unicode.IsControl(r)
}
