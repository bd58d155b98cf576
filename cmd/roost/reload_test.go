package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity"
	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// TestReloadSettings: on SIGHUP, an agent applies new seeds, tokens and the new log level. It names the settings that
// require a restart. If there is a problem, it changes nothing. It never ends, even if it has no settings file.
func TestReloadSettings(t *testing.T) {
	t.Parallel()
	plain := agent(t, "plain", brisk()...)
	plain.Signal(syscall.SIGHUP)
	plain.Logs("settings read again")

	dir := t.TempDir()
	write := func(name, content string) string { return replaceFile(t, filepath.Join(dir, name), content) }
	config := write("roost.yaml", "log-level: error\njoin: [127.0.0.1:1]\nbootstrap: true\nzone: east\n")
	token := write("token", "former\n")
	args := append(brisk(), "--config", config, "--http-token-file", token, "--http-token-reads")
	a := agent(t, "reloads", args...)
	may := func(token string, want bool) {
		t.Helper()
		c := clusterhttp.Client{Base: a.Base, Token: token}
		_, err := c.Members(t.Context())
		if p, ok := errors.AsType[*clusterhttp.Problem](err); err != nil && (!ok || p.Status != http.StatusUnauthorized) {
			t.Fatal(err)
		}
		if (err == nil) != want {
			t.Errorf("token %s: %v", token, err)
		}
	}
	may("former", true)
	may("next", false)
	if strings.Contains(a.Text(), "request rejected") {
		t.Error("a warning at the level error")
	}

	write("token", "next\nformer\n")
	write("roost.yaml", "log-level: warn\njoin: ["+plain.Gossip+"]\nbootstrap: true\nzone: west\n")
	a.Signal(syscall.SIGHUP)
	a.Logs("settings read again")
	a.Logs("take effect after a restart", "zone")
	may("former", true)
	may("next", true)
	eventually(t, func() error {
		may("wrong", false)
		if !strings.Contains(a.Text(), "request rejected") {
			return errors.New("the level of the log has not changed")
		}
		return nil
	})
	eventually(t, func() error {
		m, err := plain.Members(t.Context())
		if err == nil && len(m.Members) != 2 {
			err = fmt.Errorf("%d members: the new seed is not used", len(m.Members))
		}
		return err
	})

	write("token", "next\n")
	write("roost.yaml", "log-level: loud\njoin: [nonsense]\n")
	a.Signal(syscall.SIGHUP)
	a.Logs("reload failed; settings unchanged", "roost.yaml:1", "want debug, info, warn or error")
	may("former", true)
	write("roost.yaml", "log-level: error\nbootstrap: true\nzone: east\n")
	a.Signal(syscall.SIGHUP)
	eventually(t, func() error {
		c := clusterhttp.Client{Base: a.Base, Token: "former"}
		if _, err := c.Members(t.Context()); err == nil {
			return errors.New("the former token still counts")
		}
		return nil
	})
	may("next", true)
	if text := a.Text(); strings.Contains(text, "former") || strings.Contains(text, `"next"`) {
		t.Error("the log shows a token")
	}
}

// mount puts files into a directory as Kubernetes mounts a secret. Each file is a link into another directory, which is
// replaced atomically for all files.
func mount(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	version, err := os.MkdirTemp(dir, "..version") //nolint:usetesting // inside dir
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(version, name), []byte(content), 0o600))
		if link := filepath.Join(dir, name); !exists(link) {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	data := filepath.Join(dir, "..data")
	former, _ := os.Readlink(data)
	err = errors.Join(err, os.Symlink(filepath.Base(version), data+"_new"), os.Rename(data+"_new", data))
	if former != "" {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, former)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestWatchedFiles: an agent notices on its own that its files have changed, even if they are replaced as on
// Kubernetes. If a file has a problem, or a change requires a restart, the log, the doctor and the metrics say so.
func TestWatchedFiles(t *testing.T) {
	t.Parallel()
	former, next := succeeds(t, "keygen"), succeeds(t, "keygen")
	ours := newAuthority(t, "ours")
	cert, certKey := ours.issue("server", time.Now().Add(time.Hour))
	pem := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	dir := t.TempDir()
	files := map[string]string{
		"roost.yaml": "log-level: info\n",
		"token":      "former\n",
		"read":       "look\n",
		"key":        former,
		"cert":       pem(cert),
		"cert-key":   pem(certKey),
	}
	mount(t, dir, files)
	at := func(name string) string { return filepath.Join(dir, name) }
	a := agent(t, "a", append(calm(), "--config", at("roost.yaml"), "--http-token-file", at("token"), "--http-read-token-file", at("read"),
		"--key-file", at("key"), "--http-tls-cert", at("cert"), "--http-tls-key", at("cert-key"))...)
	call := func(token string, command ...string) (code int, out string) {
		t.Helper()
		code, out, problem := roost(t, append(command, "--addr", "https://"+a.Base, "--ca", ours.file, "--token-file", secretFile(t, token))...)
		return code, out + problem
	}
	metric := func() string {
		t.Helper()
		pool := x509.NewCertPool()
		pool.AddCert(ours.cert)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
		in, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+a.Base+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		in.SetBasicAuth("me", "look")
		r, err := client.Do(in)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Body.Close() }()
		b, _ := io.ReadAll(r.Body)
		_, value, _ := strings.Cut(string(b), "\nroost_config_last_reload_successful ")
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	if code, out := call("former", "undrain"); code != exitOK || metric() != "1" {
		t.Fatalf("%d %s, metric %s", code, out, metric())
	}

	cert, certKey = ours.issue("server", time.Now().Add(2*time.Hour))
	files["token"], files["read"], files["key"], files["cert"], files["cert-key"] = "next\n", "look\n", former+next, pem(cert), pem(certKey)
	mount(t, dir, files)
	a.Logs("settings read again", "key-file", "http-token-file")
	a.Logs("gossip keys read again")
	a.Logs("TLS files read again")
	if code, out := call("former", "undrain"); code != exitFailed {
		t.Errorf("the former token: %d %s", code, out)
	}
	if code, out := call("next", "undrain"); code != exitOK {
		t.Errorf("the next token: %d %s", code, out)
	}
	if _, out := call("next", "doctor", "--over", "100ms"); strings.Contains(out, "warn  settings") {
		t.Error(out)
	}

	files["roost.yaml"], files["cert-key"] = "log-level: info\nzone", "nonsense"
	mount(t, dir, files)
	a.Logs("reload failed; settings unchanged")
	a.Logs("TLS files unusable")
	eventually(t, func() error {
		code, out := call("next", "doctor", "--over", "100ms")
		words := strings.Join(strings.Fields(out), " ")
		if code != exitWarned || !strings.Contains(words, "settings could not be reloaded for") ||
			!strings.Contains(words, "roost.yaml: ") || !strings.Contains(words, "cert-key") || metric() != "0" {
			return fmt.Errorf("doctor: %d %s; metric %s", code, out, metric())
		}
		return nil
	})
	files["roost.yaml"], files["cert-key"] = "log-level: info\nzone: west\n", pem(certKey)
	mount(t, dir, files)
	a.Logs("take effect after a restart", "zone")
	eventually(t, func() error {
		code, out := call("next", "doctor", "--over", "100ms")
		if code != exitWarned || !strings.Contains(out, "not in effect until a restart: zone") ||
			strings.Contains(out, "cannot be read") || metric() != "1" {
			return fmt.Errorf("doctor: %d %s; metric %s", code, out, metric())
		}
		return nil
	})
	files["roost.yaml"] = "log-level: info\n"
	mount(t, dir, files)
	eventually(t, func() error {
		_, out := call("next", "doctor", "--over", "100ms")
		if strings.Contains(out, "warn  settings") || !strings.Contains(out, "ok    settings") {
			return errors.New(out)
		}
		return nil
	})
	for _, secret := range []string{"former\n", `"next"`, strings.TrimSpace(former), strings.TrimSpace(next)} {
		if strings.Contains(a.Text(), secret) {
			t.Error("the log shows a secret")
		}
	}
}

// TestReloadWhileJoining: a wrong seed can be corrected without a restart, via the file or with a signal, while the
// node is still waiting for it.
func TestReloadWhileJoining(t *testing.T) {
	t.Parallel()
	seed := agent(t, "seed", calm()...)
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hangs.Close() })
	config := filepath.Join(t.TempDir(), "roost.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(config+".new", config); err != nil {
			t.Fatal(err)
		}
	}
	write("join: " + hangs.Addr().String() + "\n")
	cmd := exec.Command(agenttest.Binary(t),
		append([]string{"agent", "--id", "late", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config", config}, calm()...)...)
	cmd.Env = agentproc.Environ()
	p := agenttest.Start(t, cmd)
	logs := func(part string) {
		t.Helper()
		eventually(t, func() error {
			if !strings.Contains(p.Log.String(), part) {
				return fmt.Errorf("the log does not say %q:\n%s", part, p.Log.String())
			}
			return nil
		})
	}
	logs("did not answer in time")
	write("join: [\n")
	logs("reload failed; settings unchanged")
	write("join: " + hangs.Addr().String() + "\nlog-format: json\n")
	logs("changed settings take effect after a restart\" settings=[log-format]")
	write("join: " + seed.Gossip + "\n")
	if err := p.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	logs("settings changed while joining; starting again\" changed=[join]\n")
	logs("agent running")
	eventually(t, func() error {
		m, err := seed.Members(t.Context())
		if err == nil && len(m.Members) != 2 {
			err = fmt.Errorf("%d members", len(m.Members))
		}
		return err
	})
}

// TestRedisPassword: a running agent accepts a new password for Redis. It refuses another Redis, which could give a
// room a second host.
func TestRedisPassword(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do("ACL", "SETUSER", "roost", "on", ">one", "~*", "&*", "+@all")
	url := func(password string) string { return "redis://roost:" + password + "@" + redis.Addr() + "/0\n" }
	file := secretFile(t, url("one"))
	a := agent(t, "a", append(calm(), "--redis-file", file)...)
	rooms := 0
	pins := func() error {
		rooms++
		got, err := a.ResolveRoom(t.Context(), fmt.Sprint("room-", rooms), affinity.Demand{Size: 2})
		if err == nil && got.Source == affinity.Degraded {
			err = errors.New("degraded: " + got.Reason)
		}
		return err
	}
	eventually(t, pins)
	for _, password := range []string{"two", "three"} {
		redis.Do("ACL", "SETUSER", "roost", "resetpass", ">"+password)
		redis.Do("CLIENT", "KILL", "USER", "roost") // like a failover of Redis
		eventually(t, func() error {
			if pins() == nil {
				return errors.New("rooms are pinned with the former password")
			}
			return nil
		})
		replaceFile(t, file, url(password))
		eventually(t, pins)
	}
	other := redistest.Start(t)
	replaceFile(t, file, "redis://roost:three@"+other.Addr()+"/0\n")
	a.Logs("take effect after a restart", "redis-file")
	if err := pins(); err != nil {
		t.Error(err)
	}
	if n := other.Do("DBSIZE"); n != "0" {
		t.Errorf("%s keys in the other Redis", n)
	}
	code, out, _ := roost(t, "doctor", "--addr", a.Base, "--over", "100ms")
	if code == exitOK || !strings.Contains(out, "not in effect until a restart: redis-file") {
		t.Errorf("doctor: %d %s", code, out)
	}
	for _, password := range []string{"roost:one", "roost:two", "roost:three"} {
		if strings.Contains(a.Text(), password) {
			t.Error("the log shows a password")
		}
	}
}
