package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRedisURL: what is wrong with a URL is told without any of it, since any part
// of it can be the password.
func TestRedisURL(t *testing.T) {
	for url, want := range map[string]string{
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
		err := setRedis(new(agentOptions), url)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%q: %v, want %q", url, err, want)
		}
		for layer, args := range map[string][]string{"flag": {"--redis=" + url}, "file": {"--redis-file=DIR/secret"}, "config": {"--config=DIR/c"}, "environment": nil} {
			env := map[string]string{}
			if layer == "environment" {
				env["ROOST_REDIS"] = url
			}
			o, err := load(t, args, env, map[string]string{"secret": url, "c": "redis: '" + url + "'\n"})
			if layer == "config" && strings.ContainsAny(url, "\x00\n") || layer == "environment" && url == "" || layer == "file" && strings.HasSuffix(url, "\n") {
				continue // not what was meant
			}
			if (err == nil) != (want == "") || err != nil && strings.Contains(err.Error(), "hunter2") || err == nil && o.redis != url {
				t.Errorf("%q by %s: %v", url, layer, err)
			}
		}
	}
}

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

// TestRedisTogether: settings that go with Redis, or not.
func TestRedisTogether(t *testing.T) {
	_, err := load(t, []string{"--redis=redis://:hunter2@h", "--redis-file=DIR/r"}, nil, map[string]string{"r": "redis://h"})
	if want := "--redis and --redis-file \"DIR/r\": both say where the Redis is; use one of them"; err == nil || err.Error() != want {
		t.Errorf("both: %v", err)
	}
	o, err := load(t, []string{"--pin-ttl=5m", "--report-load"}, nil, nil)
	if err != nil || len(o.warnings) != 2 || !strings.Contains(o.warnings[0], "without --redis") {
		t.Errorf("neither: %v, %v", o.warnings, err)
	}
	if o, err = load(t, []string{"--pin-ttl=5m", "--report-load", "--redis=redis://h"}, nil, nil); err != nil || len(o.warnings) != 0 {
		t.Errorf("as it should be: %v, %v", o.warnings, err)
	}
}

// TestRedisPrefix: two clusters on one Redis never share a key.
func TestRedisPrefix(t *testing.T) {
	seen := make(map[string]string)
	for _, name := range []string{"roost", "a", "a:", "a:b", "a%3Ab", "a%", "{17}", "%7B17%7D", "*", "ä", "a b", "A", "a_b-c.d", "lives", strings.Repeat("x", 57)} {
		prefix, err := redisPrefix(name)
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
		if _, err := load(t, []string{"--redis=redis://h", "--cluster=" + name}, nil, nil); err == nil || !strings.Contains(err.Error(), "too long for keys on Redis") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := load(t, []string{"--cluster=" + name}, nil, nil); err != nil {
			t.Errorf("%q without Redis: %v", name, err)
		}
	}
}
