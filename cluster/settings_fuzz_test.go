package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// FuzzAccept: a node is accepted only with the same settings. Others are refused with the name of a setting.
func FuzzAccept(f *testing.F) {
	own := settingsOf(Config{ID: "a"}.WithDefaults())
	for _, meta := range []string{
		"", "=", "wire=1-1\n", "wire=9-1", string(own.meta(nil)), string(own.meta(nil)) + "more=1\n",
		own.equal + "wire=0-2\n", strings.Repeat("a=\n", 100),
	} {
		f.Add(meta)
	}
	f.Fuzz(func(t *testing.T, meta string) {
		err := own.accept("b#1", []byte(meta))
		if err != nil {
			if refused, ok := errors.AsType[*SettingsError](err); !ok || refused.Ours == refused.Theirs || refused.Peer != "b#1" {
				t.Errorf("%q: %v", meta, err)
			}
			return
		}
		lines := strings.Split(meta, "\n")
		for line := range strings.Lines(own.equal) {
			if !slices.Contains(lines, strings.TrimSuffix(line, "\n")) {
				t.Errorf("%q is accepted without %q", meta, line)
			}
		}
	})
}
