package agenturl

import "testing"

// An address is shown without the credentials that Parse accepts in it.
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
