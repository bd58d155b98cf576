package recipes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

// packages are the server and the client of Yjs, which npm installs.
var packages = []string{"@y/websocket-server@0.1.1", "y-websocket@3.0.0", "yjs@13.6.27", "ws@8.18.3"}

// install returns a folder with the packages and the scripts of testdata.
func install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	npm := exec.CommandContext(t.Context(), "npm", append([]string{
		"install", "--prefix", dir, "--ignore-scripts", "--no-audit",
		"--no-fund", "--silent",
	}, packages...)...)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm (scripts/deps.sh installs it) brings no %s: %v\n%s", packages, err, out)
	}
	script, err := os.ReadFile("testdata/editors.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "editors.mjs"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestDocuments: the editors of a document are connected to the same y-websocket server, behind Caddy and two proxies.
// They are connected to the same server again after its node crashes or drains, and after a proxy crashes.
func TestDocuments(t *testing.T) {
	roost := agenttest.Binary(t)
	dir := install(t)
	nodes := make(map[string]*node)
	for _, id := range []string{"a", "b", "c"} {
		nodes[id] = start(t, id, nodes, func(n *node) *exec.Cmd {
			host, port, _ := strings.Cut(n.addr, ":")
			cmd := exec.Command("node", filepath.Join(dir, "node_modules/@y/websocket-server/src/server.js"))
			cmd.Env = append(agentproc.Environ(), "HOST="+host, "PORT="+port)
			return cmd
		})
	}
	agree(t, nodes)
	listen, probe := fmt.Sprint(redistest.FreePort(t)), fmt.Sprint(redistest.FreePort(t))
	var proxies []*agentproc.Process
	for _, host := range []string{"127.0.0.1:", "127.0.0.2:"} {
		cmd := exec.Command(roost, "proxy", "--key-from", "path:1", "--close-moved", "--listen", host+listen, "--probe", host+probe,
			"--agents", addrs(nodes))
		cmd.Env = agentproc.Environ()
		proxies = append(proxies, agenttest.Start(t, cmd))
	}
	url, ca := caddy(t, listen, probe)
	cmd := exec.Command("node", filepath.Join(dir, "editors.mjs"), "wss"+strings.TrimPrefix(url, "https"), "minutes")
	cmd.Env = append(agentproc.Environ(), "NODE_EXTRA_CA_CERTS="+ca)
	editors := agenttest.Start(t, cmd)
	meet := func(since time.Time) time.Duration {
		t.Helper()
		redistest.Eventually(t, "the editors to meet", func() error { return seen(editors.Log.String(), since) })
		return time.Since(since)
	}
	meet(time.Now())

	killed := time.Now()
	crash(t, nodes, owner(t, nodes, "minutes"))
	t.Logf("crash of the node: the editors meet after %v", meet(killed).Round(time.Millisecond))

	before := strings.Count(editors.Log.String(), "closed 1012")
	drained := owner(t, nodes, "minutes")
	if _, err := nodes[drained].Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, "status 1012 for both editors", func() bool {
		return strings.Count(editors.Log.String(), "closed 1012") >= before+2
	})
	meet(time.Now())
	if nodes[drained].server.Ended() {
		t.Error("the server of the drained node has ended")
	}

	killed = time.Now()
	if err := proxies[0].Kill(); err != nil {
		t.Fatal(err)
	}
	t.Logf("crash of a proxy: the editors meet after %v", meet(killed).Round(time.Millisecond))
}

// seen returns nil if the last edit that arrived was made after since.
func seen(log string, since time.Time) error {
	edits := regexp.MustCompile(`(?m)^seen (\d+)$`).FindAllStringSubmatch(log, -1)
	if len(edits) == 0 {
		return errors.New(log)
	}
	last, err := strconv.ParseInt(edits[len(edits)-1][1], 10, 64)
	if err == nil && last <= since.UnixMilli() {
		err = fmt.Errorf("the last edit is of %v; closed: %v", time.UnixMilli(last), regexp.MustCompile("(?m)^.* closed .*$").FindAllString(log, -1))
	}
	return err
}
