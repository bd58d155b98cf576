package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// TestLinkLocal: agents form a cluster with only link-local addresses, although each host has a different name for the
// link. Their APIs are reachable at these addresses. A seed may have a link-local address if its node advertises
// another address.
func TestLinkLocal(t *testing.T) {
	const script = `ip link add lla type veth peer name llb; ip link add llc type veth peer name lld
		ip link add llbr type bridge; ip link set llbr up
		for i in llb lld; do ip link set $i master llbr up; done
		n=1; for i in lla llc; do ip link set $i addrgenmode none up; ip addr add fe80::1:$n/64 dev $i nodad; ip addr add fd99::$n/64 dev $i nodad; n=$((n+1)); done`
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-a-test"), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(id string, n int, zone string, args ...string) *agenttest.Agent {
		t.Helper()
		at := fmt.Sprintf("[fe80::1:%d%%%s]", n, zone)
		a := agenttest.Run(t, id, append([]string{"--bind", at + ":7946", "--http", at + ":0", "--http-token-file", token}, args...)...)
		if !strings.Contains(a.Addrs.HTTP, "%"+zone) {
			t.Errorf("%s says that its API is at %s", id, a.Addrs.HTTP)
		}
		return a
	}
	a := start("a", 1, "lla")
	b := start("b", 2, "llc", "--join", "[fe80::1:1%llc]:7946")
	agenttest.Agree(t, a, b)
	c := start("c", 1, "lla", "--bind", "[::]:7947", "--advertise", "[fd99::1]:7947")
	d := start("d", 2, "llc", "--bind", "[fd99::2]:7948", "--join", "[fe80::1:1%llc]:7947")
	agenttest.Agree(t, c, d)
}
