package firewall

import (
	"testing"

	"github.com/hashicorp/memberlist"
)

func TestHarmless(t *testing.T) {
	compound := func(parts ...string) []byte {
		b := []byte{typeCompound, byte(len(parts))}
		for _, p := range parts {
			b = append(b, byte(len(p)>>8), byte(len(p)))
		}
		for _, p := range parts {
			b = append(b, p...)
		}
		return b
	}
	user, ping, compressed := "\x08hello", "\x00ping", "\x09bomb"
	for _, c := range []struct {
		name string
		b    []byte
		want bool
	}{
		{"user message", []byte(user), true},
		{"labeled user message", labeled(t, []byte(user)), true},
		{"compound", compound(user, ping), true},
		{"labeled, checksummed compound", labeled(t, append([]byte{typeChecksum, 1, 2, 3, 4}, compound(user, ping)...)), true},
		{"empty compound", compound(), true},
		{"nothing", nil, false},
		{"label alone", labeled(t, nil), false},
		{"compressed", []byte(compressed), false},
		{"checksummed, compressed", append([]byte{typeChecksum, 1, 2, 3, 4}, compressed...), false},
		{"compressed in compound", compound(user, compressed), false},
		{"compound in compound", compound(string(compound(user))), false},
		{"empty part", compound(user, ""), false},
		{"cut short", compound(user, ping)[:8], false},
		{"sizes cut short", []byte{typeCompound, 9, 0, 1}, false},
		{"count missing", []byte{typeCompound}, false},
		{"label cut short", []byte{244, 10, 'x'}, false},
	} {
		if got := harmless(c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// FuzzHarmless checks the purpose of the rule, which is that no accepted packet reaches a decompressor.
func FuzzHarmless(f *testing.F) {
	f.Add([]byte("\x08hello"))
	f.Add([]byte{typeCompound, 1, 0, 2, typeCompress, 1})
	f.Add([]byte{typeChecksum, 0, 0, 0, 0, typeCompress})
	f.Fuzz(func(t *testing.T, b []byte) {
		if harmless(b) && reaches(b, typeCompress, 0) {
			t.Errorf("%x passes", b)
		}
	})
}

// reaches unpacks a packet like memberlist, and reports whether memberlist would handle a message of the given type.
func reaches(b []byte, kind byte, depth int) bool {
	if depth == 0 {
		var err error
		if b, _, err = memberlist.RemoveLabelHeaderFromPacket(b); err != nil {
			return false
		}
		if len(b) >= 5 && b[0] == typeChecksum {
			b = b[5:]
		}
	}
	if len(b) == 0 {
		return false
	}
	if b[0] != typeCompound || len(b) < 2 || depth > 3 {
		return b[0] == kind
	}
	n, sizes := int(b[1]), b[2:]
	if len(sizes) < 2*n {
		return false
	}
	for body := sizes[2*n:]; n > 0; n, sizes = n-1, sizes[2:] {
		size := int(sizes[0])<<8 | int(sizes[1])
		if size > len(body) {
			return false
		}
		if reaches(body[:size], kind, depth+1) {
			return true
		}
		body = body[size:]
	}
	return false
}
