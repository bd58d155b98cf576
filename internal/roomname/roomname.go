// Package roomname checks the names of rooms and participants. The packages affinity and presence share its
// rules.
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

// Check returns an error if name is invalid. A valid name has 1 to MaxBytes bytes of UTF-8. It must not
// contain control characters or the characters { } and *, which have a special meaning in the keys and
// patterns of stores.
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
