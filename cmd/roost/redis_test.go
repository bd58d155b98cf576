package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPasswordStaysHidden: wherever on the command line a URL with a password gets,
// no message shows the password.
func TestPasswordStaysHidden(t *testing.T) {
	const url = "redis://user:hunter2@localhost:1/0"
	bad := filepath.Join(t.TempDir(), "config")
	for _, content := range []string{"redis: redis://:hunter2@h:x", "redis: [redis://:hunter2@h, b]", "redis redis://:hunter2@h", "reddis: " + url, "redis:\n  - [" + url + "]"} {
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, fault := roost(t, "agent", "--config", bad); code != exitUsage || strings.Contains(out+fault, "hunter2") {
			t.Errorf("%q: %d %q %q", content, code, out, fault)
		}
	}
	for _, args := range [][]string{
		{"agent", "--redis", url, "--redis-file", "/nowhere"},
		{"agent", "--redis", url, "--ttl", "x"},
		{"agent", "--redis", "redis://:hunter2@h:x"},
		{"agent", "--redis", url, "--redis", "redis://:hunter2@h:x"},
		{"agent", "--redis-file", url},
		{"agent", "--reddis", url},
		{"agent", "--reddis=" + url},
		{"agent", "-redis=" + url},
		{"agent", url},
		{"agent", "--bind", url},
		{"agent", "--redis", url, "--cluster", strings.Repeat("x", 60)},
		{"rooms", "--addr", url},
		{url},
	} {
		code, out, fault := roost(t, args...)
		if code == exitOK || fault == "" || strings.Contains(out+fault, "hunter2") {
			t.Errorf("%v: %d %q %q", args, code, out, fault)
		}
	}
}
