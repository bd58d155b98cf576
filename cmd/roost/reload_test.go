package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// TestReloadSettings: at SIGHUP an agent takes over its seeds, tokens and the level of its log, names what takes a restart,
// and changes nothing if there is a fault. It does not end, also without a file.
func TestReloadSettings(t *testing.T) { // S8.5
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
	a.Logs("take effect with a restart", "zone")
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
	a.Logs("settings stay as they are", "roost.yaml:1", "want debug, info, warn or error")
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
