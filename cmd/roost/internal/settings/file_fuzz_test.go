package settings

import "testing"

// FuzzFile: arbitrary content of a configuration file, a key or a token can only cause an error.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		"", "a: b", "a: [b, c]\na: d", "a: {b: c}", "a: &x [1]\nb: *x", "? [a]\n: b", "--- 1\n--- 2",
		"a: !!binary x", "a: 1e400", "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, problems := parseFile("file", b)
		for key, e := range entries {
			if len(problems) == 0 && e.line < 1 {
				t.Errorf("%q is in line %d", key, e.line)
			}
		}
		if key, err := decodeKey(b); err == nil && len(key) < 16 {
			t.Errorf("%q is a key of %d bytes", b, len(key))
		}
		if token, err := decodeToken(b); err == nil && token != string(b) {
			t.Errorf("%q is the token %q", b, token)
		}
	})
}
