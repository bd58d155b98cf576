// Package recipes tests what the documentation says about servers that don't know roost. It runs such servers, each
// with an agent beside it, and makes nodes fail.
package recipes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }

// node is an agent with a server beside it.
type node struct {
	*agenttest.Agent

	addr   string // of the server; also the agent's --api-addr
	server *agentproc.Process
}

// start starts a node that joins the other nodes, and waits until its server listens.
func start(t *testing.T, id string, others map[string]*node, server func(*node) *exec.Cmd, args ...string) *node {
	t.Helper()
	n := &node{addr: fmt.Sprint("127.0.0.1:", redistest.FreePort(t))}
	args = append(args, "--api-addr", n.addr, "--heartbeat", "500ms", "--ttl", "3s")
	for _, other := range others {
		args = append(args, "--join", other.Gossip)
	}
	n.Agent = agenttest.Run(t, id, args...)
	n.server = agenttest.Start(t, server(n))
	redistest.Eventually(t, "the server of "+id, func() error {
		if n.server.Ended() {
			t.Fatal(n.server.Died())
		}
		return listens(t.Context(), n.addr)
	})
	return n
}

func listens(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

func agree(t *testing.T, nodes map[string]*node) {
	t.Helper()
	var agents []*agenttest.Agent
	for _, n := range nodes {
		agents = append(agents, n.Agent)
	}
	agenttest.Agree(t, agents...)
}

// addrs returns the HTTP addresses of all agents, for --agents.
func addrs(nodes map[string]*node) string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Addrs.HTTP)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// owner returns the id of the node that owns a key.
func owner(t *testing.T, nodes map[string]*node, key string) string {
	t.Helper()
	for _, n := range nodes {
		placed, err := n.Place(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(placed.Owner.ID)
	}
	t.Fatal("no nodes")
	return ""
}

// crash kills an agent and its server with kill -9.
func crash(t *testing.T, nodes map[string]*node, id string) {
	t.Helper()
	n := nodes[id]
	delete(nodes, id)
	n.Signal(syscall.SIGKILL) // kill both before waiting, because Kill waits
	if err := errors.Join(n.server.Kill(), n.Kill()); err != nil {
		t.Fatal(err)
	}
}

// caddy starts Caddy with deploy/caddy/Caddyfile in front of proxies at two addresses of this machine. It returns the
// URL of Caddy and the file of its CA.
func caddy(t *testing.T, listen, probe string) (url, ca string) {
	t.Helper()
	config, err := os.ReadFile("../testdata/deploy/caddy/Caddyfile") // a link, see internal/e2e/helm
	if err != nil {
		t.Fatal(err)
	}
	url = fmt.Sprint("https://localhost:", redistest.FreePort(t))
	dir := t.TempDir()
	here := "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n" + strings.NewReplacer(
		"rooms.example.org", url,
		"10.0.0.9:8080", "127.0.0.1:"+listen,
		"10.0.0.10:8080", "127.0.0.2:"+listen,
		"health_port 8081", "health_port "+probe,
	).Replace(string(config))
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("caddy", "run", "--config", file)
	cmd.Env = append(agentproc.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	agenttest.Start(t, cmd)
	ca = filepath.Join(dir, "caddy/pki/authorities/local/root.crt")
	redistest.Eventually(t, "Caddy and a proxy", func() error { return answers(t.Context(), url, ca) })
	return url, ca
}

// answers returns nil if a server answers with a certificate from the CA.
func answers(ctx context.Context, url, ca string) error {
	root, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/minutes", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
