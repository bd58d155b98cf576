package agenturl

import "testing"

// The zone of a link-local address can be written as people write it, or escaped as in URLs.
func TestParseZone(t *testing.T) {
	for addr, want := range map[string]string{
		"[fe80::1%eth0]:8401":               "http://[fe80::1%25eth0]:8401",
		"[fe80::1%25eth0]:8401":             "http://[fe80::1%25eth0]:8401",
		"https://[fe80::1%br-1.2]:8401/a/":  "https://[fe80::1%25br-1.2]:8401/a",
		"[fe80::1]:8401":                    "http://[fe80::1]:8401",
		"http://me:it%25s@[fe80::1%2]:8401": "http://me:it%25s@[fe80::1%252]:8401",
	} {
		if got, err := Parse(addr); got != want || err != nil {
			t.Errorf("%q is %q (%v), want %q", addr, got, err, want)
		}
	}
}

// An address is shown without credentials in all forms that Parse accepts.
func TestShown(t *testing.T) {
	for addr, want := range map[string]string{
		"":                            "",
		"a:8401":                      "a:8401",
		"http://a:8401/roost":         "http://a:8401/roost",
		"http://me:secret@a:8401":     "http://…@a:8401",
		"me:secret@a:8401/":           "…@a:8401/",
		"https://me:it's@a/roost":     "https://…@a/roost",
		"http://me:one/two@a:8401":    "http://…@a:8401",
		"me:one/two@a:8401?x":         "…@a:8401?x",
		"me:one@a,http://me:two@b":    "…@b",
		"http://me:one@two@a:8401/b/": "http://…@a:8401/b/",
	} {
		if got := Shown(addr); got != want {
			t.Errorf("%q is shown as %q, want %q", addr, got, want)
		}
	}
}
