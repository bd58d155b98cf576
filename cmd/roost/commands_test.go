package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/cmd/roost/internal/fakeagent"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/lease"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite testdata from the present output")

// roost runs a command in this process, in an empty environment.
func roost(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return roostIn(t, nil, args...)
}

func roostIn(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problem bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return env[name] }, strings.NewReader(""), &out, &problem)
	return code, out.String(), problem.String()
}

// golden compares got with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s; if this is intended, run with -update:\n%s", path, diff)
	}
}

func TestHelpGolden(t *testing.T) {
	for name, args := range map[string][]string{"help": {"--help"}, "help-agent": {"agent", "--help"}, "help-place": {"place", "--help"}} {
		code, got, problem := roost(t, args...)
		if code != 0 || problem != "" {
			t.Fatalf("%v: %d %q", args, code, problem)
		}
		golden(t, filepath.Join("testdata", name+".txt"), got)
	}
	if _, alone, _ := roost(t); !strings.Contains(alone, "roost [command]") {
		t.Errorf("roost alone prints %q", alone)
	}
}

// The help of roost agent lists the flags that most clusters need, on two screens of 40 lines. --help-all lists all
// flags.
func TestHelpOfAgent(t *testing.T) {
	_, some, _ := roost(t, "agent", "--help")
	code, all, problem := roost(t, "agent", "--help-all")
	if code != 0 || problem != "" || strings.Contains(all, "--help-all") {
		t.Fatalf("--help-all: %d %q", code, problem)
	}
	if n := strings.Count(some, "\n"); n > 80 || !strings.Contains(some, "roost agent --help-all") {
		t.Errorf("--help prints %d lines:\n%s", n, some)
	}
	for i, g := range new(settings.Agent).Groups() {
		for _, s := range g.Settings {
			flag := regexp.MustCompile(`(?m)^ +--` + s.Name + ` `)
			if !flag.MatchString(all) || flag.MatchString(some) != (i < 2) {
				t.Errorf("--%s of %s is not where it belongs", s.Name, g.Title)
			}
		}
	}
}

// TestHelpTeaches: every command's help explains the command, with an example that works.
func TestHelpTeaches(t *testing.T) {
	root := new(program).root()
	room, _, _ := root.Find([]string{"room"})
	for _, cmd := range slices.Concat(root.Commands(), room.Commands(), []*cobra.Command{root}) {
		if cmd.Name() == "help" { // cobra's own
			continue
		}
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s lacks a Short, a Long or an Example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if line = strings.TrimRight(line, "\n"); len(line) > 100 {
				t.Errorf("%s: a line of %d bytes: %s", cmd.CommandPath(), len(line), line)
			}
		}
		for line := range strings.Lines(cmd.Example) {
			if err := parses(line); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
}

// parses checks the command and the flags of an example, without shell syntax and comments.
func parses(line string) error {
	_, line, ok := strings.Cut(line, "roost ")
	if !ok {
		return errors.New("does not run roost")
	}
	for _, end := range []string{"   ", " | ", " && ", " > "} {
		line, _, _ = strings.Cut(line, end)
	}
	return known(strings.Fields(line))
}

// known checks that roost has a command with these flags and arguments.
func known(args []string) error {
	cmd, rest, err := new(program).root().Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{[]string{"membres"}, nil, "Did you mean this?\n\tmembers"},
		{[]string{"agent", "--jion", "x"}, nil, "unknown flag: --jion; did you mean --join?\nSee `roost agent --help`."},
		{[]string{"agent", "x"}, nil, `unexpected argument "x": roost agent`},
		{[]string{"agent", "--ttl"}, nil, "flag needs an argument: --ttl"},
		{[]string{"agent", "--ttl=x"}, nil, "roost: --ttl \"x\": want a duration such as 500ms or 6s\nSee `roost agent --help`."},
		{[]string{"place"}, nil, "KEY is missing: roost place KEY..."},
		{[]string{"owners", "a", "b"}, nil, `unexpected argument "b": roost owners KEY`},
		{[]string{"drain", "b"}, nil, `"b": this command changes the agent's own node: name the agent with --addr`},
		{[]string{"owners", "a", "-n", "0"}, nil, `--number "0": want a whole number from 1 to 100`},
		{[]string{"weight", "-1"}, nil, "unknown shorthand flag: '1' in -1"},
		{[]string{"weight", "many"}, nil, `weight "many": want a whole number from 0 to 1000000`},
		{[]string{"cordon"}, nil, "ID is missing: roost cordon ID"},
		{[]string{"cordon", "b"}, nil, "--for is missing: give the duration of the cordon (to end a cordon, use roost uncordon)"},
		{[]string{"cordon", "b", "--for", "0"}, nil, "--for is missing"},
		{[]string{"uncordon"}, nil, "ID is missing: roost uncordon ID"},
		{[]string{"cordon", "b", "--for", "999us"}, nil, `--for "999us": want 1ms or more, or 0`},
		{[]string{"health", "--ttl", "500us"}, nil, `--ttl "500us": want 1ms or more, or 0`},
		{[]string{"cordon", "b", "--for", "25h"}, nil, "--for 25h0m0s: the maximum is 24h0m0s"},
		{[]string{"cordon", "b", "--for", "-1m"}, nil, `--for "-1m": want a duration such as 30s or 10m, or 0`},
		{[]string{"health"}, map[string]string{"ROOST_TTL": "6s"}, "--ttl is missing: give the time until the next report"},
		{[]string{"members", "--addr", "8401"}, nil, `--addr "8401": want HOST:PORT or a URL`},
		{[]string{"members", "--addr", "me:secret@h:1?x"}, nil, `--addr "…@h:1?x": want HOST:PORT or a URL`},
		{
			[]string{"proxy", "--key-from", "path:1"},
			map[string]string{"ROOST_AGENTS": "a:1,http://me:sec/ret@a:1"},
			`ROOST_AGENTS "…@a:1": "http://…@a:1" is neither host:port nor the URL of an agent`,
		},
		{
			[]string{"members"},
			map[string]string{"ROOST_ADDR": "ftp://x", "ROOST_OUTPUT": "xml"},
			"2 problems:\n  ROOST_ADDR \"ftp://x\": want HOST:PORT or a URL\n  ROOST_OUTPUT \"xml\": want table, json",
		},
		{[]string{"members", "--token-file", "/nowhere/token"}, nil, `--token-file "/nowhere/token": open /nowhere/token`},
		{[]string{"room", "reserve", "r", "--units", "5"}, nil, "give --for or --until: how long the reservation lasts"},
		{[]string{"room", "reserve", "r", "--for", "1h", "--until", "11:00"}, nil, "give --for or --until"},
		{[]string{"room", "reserve", "r", "--until", "eleven"}, nil, `--until "eleven": want a time such as 11:00 or 2026-03-01T11:00:00Z`},
		{[]string{"room"}, nil, "roost room takes NAME, and got 0 arguments\n"},
		{
			[]string{"room", "move"},
			nil,
			"roost room move takes NAME and NODE, and got 0 arguments; to show a room of that name, use: roost room show move\nSee `roost room move --help`.",
		},
		{[]string{"room", "move", "a"}, nil, "roost room move takes NAME and NODE, and got 1 arguments\n"},
		{[]string{"room", "mvoe", "a", "b"}, nil, "roost room takes NAME, and got 3 arguments; did you mean roost room move?\n"},
		{[]string{"room", "a", "--size", "-1"}, nil, `--size "-1": want a whole number from 0 to 1000000`},
		{[]string{"rooms", "--limit", "0"}, nil, `--limit "0": want a whole number from 1 to 10000`},
		{[]string{"members", "--every", "5s"}, nil, "--every needs --watch"},
		{[]string{"rooms", "--watch", "--every", "0s"}, nil, `--every "0s": want a duration above zero`},
		{[]string{"doctor", "--over", "soon"}, nil, `--over "soon": want a duration such as 500ms or 6s`},
		{[]string{"members", "--wacth"}, nil, "unknown flag: --wacth; did you mean --watch?"},
		{[]string{"completion"}, nil, "the shell is missing: bash, zsh, fish or powershell\n"},
		{[]string{"completion", "bsh"}, nil, "the shell is missing: bash, zsh, fish or powershell\n"},
		{[]string{"help", "membres"}, nil, "Did you mean this?\n\tmembers"},
		{[]string{"place", "x", ""}, nil, "a key is empty"},
		{[]string{"owners", ""}, nil, "a key is empty"},
		{[]string{"docter"}, nil, "Did you mean this?\n\tdoctor"},
		{[]string{"sim", "--nodes", "1"}, nil, `--nodes "1": want a whole number from 2 to`},
		{[]string{"sim", "--loss", "100"}, nil, `--loss "100": want a percentage from 0 to 99`},
		{[]string{"sim", "--loss", "NaN"}, nil, `--loss "NaN": want a percentage from 0 to 99`},
		{
			[]string{"sim", "--delay", "3ms-1ms"},
			nil,
			`--delay "3ms-1ms": want a duration such as 2ms, or two such as 1ms-3ms, the shorter one first`,
		},
		{[]string{"sim", "--delay", "0ms"}, nil, `--delay "0ms": want a duration such as 2ms`},
		{[]string{"sim", "--nodes", "5", "--crash", "5"}, nil, "--crash 5: at most 4 of 5 nodes can crash, because one must see it"},
		{[]string{"sim", "--ttl", "1s"}, nil, "LeaseTTL (1s) must be at least 1.3 times HeartbeatInterval (2s)"},
		{[]string{"sim", "--network", "local"}, nil, `--network "local": want lan, wan`},
		{[]string{"demo", "--nodes", "1"}, nil, `--nodes "1": want a whole number from 2 to 20`},
		{[]string{"demo", "--nodes", "21"}, nil, `--nodes "21": want a whole number from 2 to 20`},
		{[]string{"demo", "--http", "0.0.0.0:8400"}, nil, "want a loopback address"},
		{[]string{"demo", "--redis", "memory:"}, nil, "cannot share a store in memory"},
	} {
		code, out, problem := roostIn(t, c.env, c.args...)
		if code != exitUsage || out != "" || !strings.Contains(problem, c.want) {
			t.Errorf("roost %v exits with %d, prints %q and %q, want 2 and %q", c.args, code, out, problem, c.want)
		}
	}
}

func TestKeygen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	code, first, _ := roost(t, "keygen")
	if key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(first)); code != 0 || err != nil || len(key) != 32 {
		t.Errorf("keygen: %d, %d bytes, %v", code, len(key), err)
	}
	if code, out, problem := roost(t, "keygen", "--out", path); code != 0 || out != "" || problem != "" {
		t.Fatalf("keygen --out: %d %q %q", code, out, problem)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	content, warning, err := settings.Token(path)
	key, _ := base64.StdEncoding.DecodeString(content)
	if err != nil || warning != "" || len(key) != 32 || content == strings.TrimSpace(first) {
		t.Errorf("the file holds %d bytes, warning %q, %v", len(key), warning, err)
	}
	code, _, problem := roost(t, "keygen", "--out", path)
	if again, _, _ := settings.Token(path); code != exitFailed || !strings.Contains(problem, path+" exists") || again != content {
		t.Errorf("onto an existing file: %d %q", code, problem)
	}
	both := replaceFile(t, filepath.Join(dir, "both"), content+"\n"+first)
	prints := cluster.KeyFingerprint(key) + "\n" + cluster.KeyFingerprint(decoded(t, first)) + "\n"
	if code, out, problem := roost(t, "keygen", "--show", both); code != 0 || out != prints || problem != "" {
		t.Errorf("keygen --show: %d %q %q, want %q", code, out, problem, prints)
	}
	if code, out, problem := roost(t, "keygen", "--show", both, "--out", "x"); code != exitUsage || out != "" || !strings.Contains(problem, "only one") {
		t.Errorf("keygen --show --out: %d %q %q", code, out, problem)
	}
	if code, _, problem := roost(t, "keygen", "--out", filepath.Join(dir, "no", "key")); code != exitFailed || problem == "" {
		t.Errorf("into no directory: %d %q", code, problem)
	}
}

func decoded(t *testing.T, line string) []byte {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestVersion(t *testing.T) {
	code, out, _ := roost(t, "version")
	if code != 0 || !strings.HasPrefix(out, "roost ") || !strings.Contains(out, " go1.") {
		t.Errorf("version: %d %q", code, out)
	}
	if _, flagged, _ := roost(t, "--version"); flagged != out {
		t.Errorf("--version prints %q, version %q", flagged, out)
	}
}

// TestDescribe checks the version that roost reports if it was built as a release, with go install, from a clone, or
// without build info.
func TestDescribe(t *testing.T) {
	installed := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}
	cloned := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20260102030405-0123456789ab+dirty"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	on := fmt.Sprintf(" %s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, tt := range []struct {
		release, commit string
		info            *debug.BuildInfo
		want            string
	}{
		{"v1.3.0", "fedcba9876543210", installed, "roost v1.3.0 fedcba987654"},
		{"v1.3.0", "fedcba9876543210", cloned, "roost v1.3.0 fedcba987654"},
		{"", "", installed, "roost v1.2.3"},
		{"", "", cloned, "roost v1.2.4-0.20260102030405-0123456789ab+dirty 0123456789ab+changes"},
		{"", "", &debug.BuildInfo{}, "roost (devel)"},
		{"", "", nil, "roost (unknown)"},
	} {
		if got := describe(tt.release, tt.commit, tt.info).String(); got != tt.want+on {
			t.Errorf("release %q, commit %q: %q, want %q", tt.release, tt.commit, got, tt.want+on)
		}
	}
}

// TestProblems: a command explains in the user's terms why it failed. Scripts stop a node after roost drain, so the
// command fails unless every member agrees.
func TestProblems(t *testing.T) {
	token := secretFile(t, "token\n")
	f := fakeagent.New(t)
	f.Set("POST /v1/leave", clusterhttp.Problem{Status: http.StatusUnauthorized, Code: clusterhttp.CodeUnauthorized, Message: "bearer"})
	f.Set("GET /v1/place", clusterhttp.Problem{Status: http.StatusServiceUnavailable, Code: clusterhttp.CodeNotReady, Message: "not yet"})
	f.Set("POST /v1/drain", clusterhttp.Changed{Self: "a", State: lease.Draining})
	f.Set("POST /v1/cordon", clusterhttp.Cordoned{Cordon: clusterhttp.Cordon{ID: "b"}})
	f.Set("GET /v1/members", func(int) any { time.Sleep(100 * time.Millisecond); return fakeagent.Healthy()["GET /v1/members"] })
	const nobody = "no agent answers at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused\n" +
		"start an agent with `roost agent`, or name the HTTP address of another agent with --addr or ROOST_ADDR"
	for command, want := range map[string]string{
		"leave":                            "the agent at ADDR requires a token; give it with --token-file or ROOST_TOKEN_FILE",
		"leave --token-file " + token:      "the agent at ADDR requires a token, and this token is wrong; give the right one with --token-file",
		"place x":                          "not yet",
		"doctor --addr 127.0.0.1:1":        nobody,
		"rooms --watch --addr 127.0.0.1:1": nobody,
		"watch --addr 127.0.0.1:1":         nobody,
		"drain --timeout 7s":               "a is draining, but not every member has agreed within 7s; the change keeps spreading: see roost members",
		"drain --timeout 7s --output json": "a is draining, but not every member has agreed within 7s; the change keeps spreading: see roost members",
		"cordon b --for 1m --timeout 7s":   "b is cordoned for 1m0s, but not every member has agreed within 7s; the change keeps spreading: see roost members",
		"members --timeout 50ms":           "no answer from ADDR within 50ms\nits process may be paused, or its machine out of CPU or cut off; if not, allow more time with --timeout",
	} {
		code, out, problem := roostIn(t, f.Env, strings.Fields(command)...)
		want = "roost: " + strings.ReplaceAll(want, " ADDR", " "+f.Env["ROOST_ADDR"]) + "\n"
		if code != exitFailed || problem != want || (out != "") != strings.Contains(command, "json") {
			t.Errorf("%s: %d %q %q, want %q", command, code, out, problem, want)
		}
	}
}

// Scripts also stop a node after roost drain --rooms. If not all members agree, the command fails, even if no rooms are
// left.
func TestDrainRoomsAgreement(t *testing.T) {
	stats := healthyStats()
	stats.Evacuation = &affinity.Evacuation{Moved: 7, Over: true}
	for name, tt := range map[string]struct {
		agreedAt int // the number of the call; 0 = never
		calls    int
		want     string
	}{
		"at once": {1, 1, ""},
		"later":   {2, 2, ""},
		"never": {
			0, 2,
			"roost: a is draining: 0 rooms are left, 7 have moved, 0 have ended, but not every member has agreed within 7s; the change keeps spreading: see roost members\n",
		},
	} {
		for _, output := range []string{"table", "json"} {
			f := fakeagent.New(t)
			f.Set("GET /v1/stats", stats)
			f.Set("POST /v1/drain", func(n int) any {
				return clusterhttp.Changed{Self: "a", State: lease.Draining, Converged: tt.agreedAt > 0 && n >= tt.agreedAt}
			})
			code, out, problem := roostIn(t, f.Env, "drain", "--rooms", "--timeout", "7s", "--output", output)
			if (code == exitOK) != (tt.want == "") || problem != tt.want || f.Times("POST /v1/drain") != tt.calls {
				t.Errorf("%s: %d %q after %d calls, want %q", name, code, problem, f.Times("POST /v1/drain"), tt.want)
			}
			if printed := output == "json" || tt.want == ""; (out != "") != printed {
				t.Errorf("%s, %s: prints %q", name, output, out)
			}
		}
	}
}

// While Redis does not answer, roost drain --rooms keeps waiting. It says why no room moves, once per outage.
func TestDrainRoomsWithoutRedis(t *testing.T) {
	f := fakeagent.New(t)
	f.Set("POST /v1/drain", clusterhttp.Changed{Self: "a", State: lease.Draining, Converged: true})
	f.Set("GET /v1/stats", func(n int) any {
		stats, rooms := healthyStats(), affinity.Stats{}
		if n != 3 {
			rooms.StoreProblem = "connection refused"
		}
		stats.Rooms, stats.Evacuation = &rooms, &affinity.Evacuation{Left: 3, Moved: 4, Over: n == 6}
		return stats
	})
	code, out, problem := roostIn(t, f.Env, "drain", "--rooms")
	want := strings.Repeat("roost: warning: no room moves while Redis does not answer node-a (connection refused)\n", 2)
	if code != exitOK || problem != want || !strings.Contains(out, "4 have moved") {
		t.Errorf("%d %q %q, want %q", code, out, problem, want)
	}
}

// TestPasswordStaysHidden: no message shows the password in a URL, wherever the URL is on the command line.
func TestPasswordStaysHidden(t *testing.T) {
	const url = "redis://user:hunter2@localhost:1/0"
	for _, content := range []string{
		"redis: redis://:hunter2@h:x", "redis: [redis://:hunter2@h, b]", "redis redis://:hunter2@h",
		"reddis: " + url, "redis:\n  - [" + url + "]",
	} {
		code, out, problem := roost(t, "agent", "--config", secretFile(t, content))
		if code != exitUsage || strings.Contains(out+problem, "hunter2") {
			t.Errorf("%q: %d %q %q", content, code, out, problem)
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
		code, out, problem := roost(t, args...)
		if code == exitOK || problem == "" || strings.Contains(out+problem, "hunter2") {
			t.Errorf("%v: %d %q %q", args, code, out, problem)
		}
	}
}
