package settings

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReload: a running agent applies the settings that can change, and names the settings that require a restart. The
// content of a secret file counts, too.
func TestReload(t *testing.T) {
	const key, other = "MDEyMzQ1Njc4OWFiY2RlZg==", "QUJDREVGMDEyMzQ1Njc4OQ=="
	files := map[string]string{
		"roost.yaml": "join: [10.0.0.1:1]\nttl: 30s\n", "key": key, "token": "one", "read": "two", "url": "redis://:p@127.0.0.1:1/0",
	}
	full := "--config DIR/roost.yaml --key-file DIR/key --http-token-file DIR/token --http-read-token-file DIR/read --redis-file DIR/url"
	for name, c := range map[string]struct {
		from    string // "" = full
		args    string // "" = the same as full
		file    map[string]string
		live    string
		restart string
	}{
		"nothing":  {},
		"seeds":    {file: map[string]string{"roost.yaml": "ttl: 30s\njoin: [10.0.0.2:1, 10.0.0.3:1]\n"}, live: "join"},
		"no seeds": {file: map[string]string{"roost.yaml": "ttl: 30s\n"}, live: "join"},
		"level and TTL": {
			file:    map[string]string{"roost.yaml": "join: [10.0.0.1:1]\nttl: 40s\nlog-level: debug\n"},
			live:    "log-level",
			restart: "ttl",
		},
		"key":           {file: map[string]string{"key": other + "\n" + key}, live: "key-file"},
		"tokens":        {file: map[string]string{"token": "one\nthree\n", "read": "four"}, live: "http-token-file http-read-token-file"},
		"password":      {file: map[string]string{"url": "redis://:q@127.0.0.1:1/0"}, live: "redis-file"},
		"user":          {file: map[string]string{"url": "redis://roost:q@127.0.0.1:1/0"}, live: "redis-file"},
		"no password":   {file: map[string]string{"url": "redis://127.0.0.1:1/0"}, live: "redis-file"},
		"another Redis": {file: map[string]string{"url": "redis://:q@127.0.0.2:1/0"}, restart: "redis-file"},
		"a database":    {file: map[string]string{"url": "redis://:q@127.0.0.1:1/1"}, restart: "redis-file"},
		"a parameter":   {file: map[string]string{"url": "redis://:q@127.0.0.1:1/0?client_name=x"}, restart: "redis-file"},
		"no Redis":      {args: strings.Replace(full, " --redis-file DIR/url", "", 1), restart: "redis-file"},
		"Redis by flag": {args: strings.Replace(full, "--redis-file DIR/url", "--redis redis://:q@127.0.0.1:1/0", 1), live: "redis redis-file"},
		"no key":        {args: strings.Replace(full, "--key-file DIR/key ", "", 1), restart: "key-file"},
		"first key": {
			from: strings.Replace(full, "--key-file DIR/key ", "", 1),
			file: map[string]string{"key": "plain\n" + key},
			live: "key-file",
		},
		"key at once":   {from: strings.Replace(full, "--key-file DIR/key ", "", 1), restart: "key-file"},
		"no read token": {args: strings.Replace(full, " --http-read-token-file DIR/read", "", 1), restart: "http-read-token-file"},
		"a scope":       {args: full + " --scope sfu=role:sfu", restart: "scope"},
		"another bind":  {args: full + " --bind 127.0.0.1:99", restart: "bind"},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(full)
			from := args
			if c.from != "" {
				from = strings.Fields(c.from)
			}
			a := mustLoad(t, from, nil, files)
			changed := maps.Clone(files)
			maps.Copy(changed, c.file)
			if c.args != "" {
				args = strings.Fields(c.args)
			}
			next := mustLoad(t, args, nil, changed)
			// Each load uses a different directory, which must not count as a change.
			for _, name := range []string{"config", "key-file", "http-token-file", "http-read-token-file", "redis-file"} {
				if _, given := next.given[name]; given && len(a.given[name].values) > 0 {
					next.given[name] = a.given[name]
				}
			}
			running, live, restart := a.Reload(next)
			if l, r := strings.Join(live, " "), strings.Join(restart, " "); l != c.live || r != c.restart {
				t.Fatalf("live %q, want %q; restart %q, want %q", l, c.live, r, c.restart)
			}
			if c.restart == "" {
				if diff := cmp.Diff(next, running, allowed); diff != "" {
					t.Errorf("not taken over: %s", diff)
				}
			}
			// Settings that require a restart are named again, but settings that were already applied are not.
			if _, live, restart := running.Reload(next); len(live) > 0 || strings.Join(restart, " ") != c.restart {
				t.Errorf("again: %v, %v", live, restart)
			}
		})
	}
}

// TestSample: the sample next to the systemd unit is valid, and correctly says which settings a running agent applies.
func TestSample(t *testing.T) {
	b, err := os.ReadFile("../../../../deploy/systemd/roost.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := map[string]string{"roost.yaml": string(b)}
	args := []string{"--config", "DIR/roost.yaml"}
	a := mustLoad(t, args, nil, sample)
	live, restart, ok := strings.Cut(string(b), "# systemctl restart roost")
	if !ok {
		t.Fatal("the sample does not say what takes a restart")
	}
	key := regexp.MustCompile(`(?m)^([a-z-]+):`)
	for part, want := range map[string]string{live: "live", restart: "restart"} {
		keys := key.FindAllStringSubmatch(part, -1)
		if len(keys) < 2 {
			t.Fatalf("keys %q", keys)
		}
		for _, k := range keys {
			without := regexp.MustCompile(`(?m)^`+k[1]+`:.*$`).ReplaceAllString(string(b), "")
			next := mustLoad(t, args, nil, map[string]string{"roost.yaml": without})
			next.given["config"] = a.given["config"]
			_, live, restart := a.Reload(next)
			if k[1] == "log-level" { // removing the line changes nothing, because info is the default
				next.given["log-level"] = chosen{values: []string{"warn"}}
				_, live, restart = a.Reload(next)
			}
			got := map[string][]string{"live": live, "restart": restart}
			if !slices.Equal(got[want], []string{k[1]}) {
				t.Errorf("the sample says that %s is of the kind %s: %v", k[1], want, got)
			}
		}
	}
}
