package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roost-cluster/roost/cluster"
	"github.com/roost-cluster/roost/cluster/clustertest"
	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/spf13/cobra"
)

// reloading is an agent that reads its settings from files in a directory, and its log.
type reloading struct {
	t   *testing.T
	dir string
	log *agentproc.Log
	*reloader
}

// reloads runs an agent with these files and flags. DIR stands for the directory.
func reloads(t *testing.T, files map[string]string, flags ...string) *reloading {
	t.Helper()
	r := &reloading{t: t, dir: t.TempDir(), log: new(agentproc.Log)}
	for name, content := range files {
		r.write(name, content)
	}
	cmd := &cobra.Command{}
	settings.AddFlags(cmd, new(settings.Agent).Settings())
	for i := range flags {
		flags[i] = strings.ReplaceAll(flags[i], "DIR", r.dir)
	}
	if err := cmd.ParseFlags(flags); err != nil {
		t.Fatal(err)
	}
	load := func() (settings.Agent, error) {
		return settings.LoadAgent(settings.Sources{Flags: cmd.Flags(), Getenv: func(string) string { return "" }}, "a")
	}
	a, err := load()
	if err != nil {
		t.Fatal(err)
	}
	c := clustertest.New(t, clustertest.Options{Config: func(cfg *cluster.Config) { cfg.Key, cfg.OldKeys = a.Cluster.Key, a.Cluster.OldKeys }})
	c.Start("a")
	log := slog.New(slog.NewTextHandler(r.log, nil))
	w := new(web)
	w.setTokens(a)
	r.reloader = newReloader(Reloading{load, new(slog.LevelVar)}, a, c.Agent("a"), nil, w, log)
	go r.run(t.Context(), nil)
	return r
}

func (r *reloading) write(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestFaultyFile: the log names a file with a problem once. The file changes no settings until the problem is fixed.
// The agent does not read a file that is still being written.
func TestFaultyFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reloads(t, map[string]string{"roost.yaml": "log-level: info\n", "token": "one\n"},
			"--config=DIR/roost.yaml", "--http-token-file=DIR/token")
		time.Sleep(time.Minute)
		if r.log.String() != "" || r.report().Problem != "" {
			t.Fatalf("without a change: %s", r.log)
		}
		r.write("token", "half a")
		time.Sleep(time.Minute)
		const once = "reload failed; settings unchanged"
		if n := strings.Count(r.log.String(), once); n != 1 {
			t.Errorf("the problem is logged %d times: %s", n, r.log)
		}
		if s := r.report(); !strings.Contains(s.Problem, "a token is one word") || s.ProblemMS < 50_000 || s.ProblemMS > 60_000 {
			t.Errorf("reported %+v", s)
		}
		for i := range 30 { // a slow writer, whose file is valid at every moment
			r.write("token", fmt.Sprintf("two\n%s\n", strings.Repeat("x", i+1)))
			time.Sleep(1900 * time.Millisecond)
		}
		if got, _ := r.web.currentTokens(); len(got) != 1 || got[0] != "one" {
			t.Errorf("a file that is being written counts: %q", got)
		}
		r.write("token", "two\n")
		time.Sleep(2*watchEvery + time.Millisecond)
		if got, _ := r.web.currentTokens(); len(got) != 1 || got[0] != "two" || r.report().Problem != "" {
			t.Errorf("tokens %q, reported %+v", got, r.report())
		}
		if err := os.Remove(filepath.Join(r.dir, "roost.yaml")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s := r.report(); !strings.Contains(s.Problem, "no such file") {
			t.Errorf("without its file: %+v", s)
		}
		r.write("roost.yaml", "log-level: info\nzone: east\n")
		time.Sleep(time.Minute)
		if s := r.report(); s.Problem != "" || strings.Join(s.Restart, " ") != "zone" {
			t.Errorf("with another zone: %+v", s)
		}
		r.write("roost.yaml", "log-level: warn\n")
		time.Sleep(time.Minute)
		if s := r.report(); len(s.Restart) > 0 || r.Level.Level() != slog.LevelWarn {
			t.Errorf("with the former zone: %+v, level %v", s, r.Level)
		}
		for line, want := range map[string]int{once: 2, "settings read again": 3, "take effect after a restart": 1, "one\n": 0, "two": 0} {
			if n := strings.Count(r.log.String(), line); n != want {
				t.Errorf("%q is logged %d times, want %d:\n%s", line, n, want, r.log)
			}
		}
	})
}

// TestSaveKeys: keys that the API has changed are written into the key file, and reading the file later does not undo
// the change. If the keys cannot be written, the doctor reports it. When the file changes, it overrides the keys from
// the API.
func TestSaveKeys(t *testing.T) {
	const first, second, third = "MDEyMzQ1Njc4OWFiY2RlZg==\n", "QUJDREVGMDEyMzQ1Njc4OQ==\n", "Z2hpamtsMDEyMzQ1Njc4OQ==\n"
	synctest.Test(t, func(t *testing.T) {
		r := reloads(t, map[string]string{"key": first}, "--key-file=DIR/key")
		read := func() string {
			b, err := os.ReadFile(filepath.Join(r.dir, "key"))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		install := func(key string) error {
			keys, _, err := settings.Keys(r.file(key))
			return errors.Join(err, r.agent.InstallKey(keys[0]))
		}
		if err := errors.Join(install(second), r.saveKeys()); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != first+second {
			t.Errorf("the file has %q", got)
		}
		time.Sleep(time.Minute)
		if len(r.agent.Keys()) != 2 || r.report().KeyFile != "" || r.log.String() != "" {
			t.Errorf("%d keys, reported %+v: %s", len(r.agent.Keys()), r.report(), r.log)
		}

		r.write("key", second+first)
		if err := errors.Join(install(third), r.saveKeys()); err == nil || !strings.Contains(err.Error(), "has changed at the same time") {
			t.Errorf("a file that has changed: %v", err)
		}
		if got := read(); got != second+first {
			t.Errorf("the file has %q", got)
		}
		if r.report().KeyFile == "" {
			t.Error("the doctor does not learn of it")
		}
		time.Sleep(time.Minute)
		if len(r.agent.Keys()) != 2 || r.report().KeyFile != "" {
			t.Errorf("%d keys, reported %+v: %s", len(r.agent.Keys()), r.report(), r.log)
		}

		if err := errors.Join(os.Remove(filepath.Join(r.dir, "key")), os.Mkdir(filepath.Join(r.dir, "key"), 0o700)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := errors.Join(install(third), r.saveKeys()); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
			t.Errorf("without a file: %v", err)
		}
		time.Sleep(time.Minute)
		if len(r.agent.Keys()) != 3 || !strings.HasSuffix(r.report().KeyFile, "/key") {
			t.Errorf("%d keys, reported %+v: %s", len(r.agent.Keys()), r.report(), r.log)
		}
		if err := os.Remove(filepath.Join(r.dir, "key")); err != nil {
			t.Fatal(err)
		}
		r.write("key", third)
		time.Sleep(time.Minute)
		if len(r.agent.Keys()) != 1 || r.report().KeyFile != "" || r.report().Problem != "" {
			t.Errorf("%d keys, reported %+v: %s", len(r.agent.Keys()), r.report(), r.log)
		}
		for _, key := range []string{first, second, third} {
			if strings.Contains(r.log.String(), strings.TrimSpace(key)) {
				t.Errorf("a key is logged: %s", r.log)
			}
		}
	})
}

// file writes a new file and returns its path.
func (r *reloading) file(content string) string {
	r.t.Helper()
	r.write("other", content)
	return filepath.Join(r.dir, "other")
}
