package settings

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cmd/roost/internal/store"
)

// TestSeveralKeys: while a cluster changes its key, it uses two keys.
func TestSeveralKeys(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	line := func(key []byte) string { return base64.StdEncoding.EncodeToString(key) + "\n" }
	a, err := load(t, []string{"--key-file=DIR/keys"}, nil, map[string]string{"keys": line(one) + "  " + line(two)})
	if c := a.Cluster; err != nil || !bytes.Equal(c.Key, one) || len(c.OldKeys) != 1 ||
		!bytes.Equal(c.OldKeys[0], two) || cluster.KeyFingerprint(one) == cluster.KeyFingerprint(two) {
		t.Errorf("%v, %v, %v", c.Key, c.OldKeys, err)
	}
	_, err = load(t, []string{"--key-file=DIR/keys"}, nil, map[string]string{"keys": line(one) + "\n" + line(two)})
	if err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("an empty line between: %v", err)
	}
}

// TestSecretFiles: if a file is wrong, the error shows none of its content.
func TestSecretFiles(t *testing.T) {
	const secret = "hunter2"
	for name, c := range map[string]struct{ flag, content, want string }{
		"no base64":    {"key-file", secret + "!", "does not contain a key in base64"},
		"too short":    {"key-file", base64.StdEncoding.EncodeToString([]byte(secret)), "the key has 7 bytes"},
		"empty key":    {"key-file", "", "the key has 0 bytes"},
		"too long":     {"key-file", strings.Repeat(secret, 1000), "more than 4096 bytes"},
		"empty token":  {"http-token-file", "\n", "the file is empty"},
		"two words":    {"http-token-file", secret + " " + secret, "one word"},
		"not printing": {"http-token-file", secret + "\x00", "one word"},
	} {
		_, err := load(t, []string{"--" + c.flag + "=DIR/secret"}, nil, map[string]string{"secret": c.content})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "open")
	if err := os.WriteFile(path, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	ofRoot := os.Getuid() == 0 // root's files may be readable by their group
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: !ofRoot, 0o604: true, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, warning, err := readSecret(path); err != nil || (warning != "") != warned {
			t.Errorf("mode %o: warning %q, %v", mode, warning, err)
		}
	}
}

// TestExposed: a secret may be readable by its group if it belongs to root, as in a Kubernetes volume, but not if it
// belongs to another user.
func TestExposed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid  int
		mode os.FileMode
		want bool
	}{{0, 0o440, false}, {0, 0o444, true}, {65532, 0o400, false}, {65532, 0o440, true}} {
		if err := errors.Join(os.Chown(path, c.uid, 65532), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || exposed(info) != c.want {
			t.Errorf("of user %d with mode %o: %v, %v", c.uid, c.mode, !c.want, err)
		}
	}
}

// TestPasswordInFile: if other users can read a configuration file with a password, the agent warns about it. No
// message shows the password.
func TestPasswordInFile(t *testing.T) {
	for text, want := range map[string]bool{"redis: redis://:hunter2@h:1": true, "redis: redis://h:1": false, "zone: z": false} {
		dir := t.TempDir()
		path := filepath.Join(dir, "c")
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
		a, err := load(t, []string{"--config", path}, nil, nil)
		warned := strings.Contains(strings.Join(a.Warnings, "\n"), "other users can read the secret in "+path)
		if err != nil || warned != want || strings.Contains(strings.Join(a.Warnings, ""), "hunter2") {
			t.Errorf("%s: %q, %v", text, a.Warnings, err)
		}
	}
}

// TestExposedTLSKey: if other users can read the key of --http-tls-key, the agent warns about it when it starts.
func TestExposedTLSKey(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: true} {
		path := filepath.Join(t.TempDir(), "tls.key")
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		a := mustLoad(t, []string{"--http-tls-cert=/cert", "--http-tls-key=" + path}, nil, nil)
		if warned := strings.Contains(strings.Join(a.Warnings, "\n"), "other users can read the secret in "+path); warned != want {
			t.Errorf("mode %#o: warned %v: %q", mode, warned, a.Warnings)
		}
	}
}

// TestStoreURL: no problem shows any part of a URL, because any part can be the password.
func TestStoreURL(t *testing.T) {
	for url, want := range map[string]string{
		"memory:":                              "",
		"redis://:hunter2@h:6379/0":            "",
		"redis://u:hunter2@h?addr=h2:1":        "",
		"rediss://h":                           "",
		"valkey://h":                           "",
		"unix:///run/hunter2.sock":             "",
		"":                                     "the value is empty",
		"hunter2":                              "want a URL that begins with redis://",
		"hunter2@h:6379":                       "want a URL",
		"http://:hunter2@h":                    "want a URL that begins with redis://",
		"redis:hunter2@h":                      "want a URL such as",
		"redis:///0?password=hunter2":          "the URL has no host",
		"redis://:hun/ter2@h:6379":             "want a URL such as",
		"redis://:hunter2%@h":                  "want a URL such as",
		"redis://:hunter2@h:port":              "want a URL such as",
		"redis://:hunter2@h:66000/0":           "the port is not a number from 0 to 65535",
		"redis://:hunter2 @h\n":                "want a URL such as",
		"redis://:hunter2@[::1":                "want a URL such as",
		"redis://\x00hunter2":                  "want a URL such as",
		"redis+sentinel://:hunter2@h:26379/db": "want a URL that begins with",
	} {
		err := StoreURL(new(string))(url)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
		for source, args := range map[string][]string{
			"flag":        {"--redis=" + url},
			"file":        {"--redis-file=DIR/secret"},
			"config":      {"--config=DIR/c"},
			"environment": nil,
		} {
			env := map[string]string{}
			if source == "environment" {
				env["ROOST_REDIS"] = url
			}
			o, err := load(t, args, env, map[string]string{"secret": url, "c": "redis: '" + url + "'\n"})
			if source == "config" && strings.ContainsAny(url, "\x00\n") || source == "environment" && url == "" ||
				source == "file" && strings.HasSuffix(url, "\n") {
				continue // this source cannot contain such a value
			}
			if (err == nil) != (want == "") || err != nil && strings.Contains(err.Error(), "hunter2") || err == nil && o.Store != url {
				t.Errorf("%q by %s: %v", url, source, err)
			}
		}
	}
}

// TestStoreTogether checks settings that need a store, and settings that exclude each other.
func TestStoreTogether(t *testing.T) {
	_, err := load(t, []string{"--redis=redis://:hunter2@h", "--redis-file=DIR/r"}, nil, map[string]string{"r": "redis://h"})
	if want := "--redis and --redis-file \"DIR/r\": both give the URL of Redis; use one of them"; err == nil || err.Error() != want {
		t.Errorf("both: %v", err)
	}
	o, err := load(t, []string{"--pin-ttl=5m", "--report-load"}, nil, nil)
	if err != nil || len(o.Warnings) != 2 || !strings.Contains(o.Warnings[0], "without --redis") {
		t.Errorf("neither: %v, %v", o.Warnings, err)
	}
	if o, err = load(t, []string{"--pin-ttl=5m", "--report-load", "--redis=redis://h"}, nil, nil); err != nil || len(o.Warnings) != 0 {
		t.Errorf("as it should be: %v, %v", o.Warnings, err)
	}
}

// TestPrefix: two clusters on one Redis never share a key.
func TestPrefix(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{
		"roost", "a", "a:", "a:b", "a%3Ab", "a%", "{17}", "%7B17%7D", "*", "ä", "a b", "A", "a_b-c.d", "lives",
		strings.Repeat("x", 57),
	} {
		prefix, err := store.Prefix(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if other, twice := seen[prefix]; twice {
			t.Errorf("%q and %q share %q", name, other, prefix)
		}
		seen[prefix] = name
		for other := range seen {
			if other != prefix && strings.HasPrefix(other, prefix) {
				t.Errorf("%q begins like %q", other, prefix)
			}
		}
		if strings.ContainsAny(prefix, "{}* ") || len(prefix) > 64 {
			t.Errorf("%q: prefix %q", name, prefix)
		}
	}
	for _, name := range []string{strings.Repeat("x", 58), strings.Repeat("{", 20)} {
		_, err := load(t, []string{"--redis=redis://h", "--cluster=" + name}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "bytes in a Redis key") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := load(t, []string{"--cluster=" + name}, nil, nil); err != nil {
			t.Errorf("%q without Redis: %v", name, err)
		}
	}
}

// TestRequiredKey: an agent with --require-key does not start with a key file that lets anyone in.
func TestRequiredKey(t *testing.T) {
	const key = "MDEyMzQ1Njc4OWFiY2RlZg=="
	for file, want := range map[string]string{
		key:             "",
		key + "\nplain": "the key file has the line plain",
		"plain\n" + key: "the key file has the line plain",
		"plain":         "the key file has the line plain",
	} {
		_, err := load(t, []string{"--key-file=DIR/key", "--require-key"}, nil, map[string]string{"key": file})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}
