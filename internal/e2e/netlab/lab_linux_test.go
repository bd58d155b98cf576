package netlab

import (
	"crypto/rand"
	_ "embed" // of namespaces.sh
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
	"github.com/roost-cluster/roost/placement"
)

var (
	long = flag.Bool("long", false, "run all faults, with the timings of a LAN, and print the table; takes a quarter of an hour")
	exe  = flag.String("exe", "",
		"the roost binary to measure, of any release; nothing is asserted then; default: built from this tree, and judged")
)

// insideVar is the variable that says that this process runs in its own namespaces.
const insideVar = "ROOST_NETLAB"

//go:embed namespaces.sh
var namespaces string

// inNamespaces returns a command that runs in its own namespaces.
func inNamespaces(args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", namespaces, "namespaces.sh"}, args...)...)
}

// prepare is a shell script for the new namespaces. DNS queries go to a server that never answers.
const prepare = `mkdir -p /run/netns && mount -t tmpfs none /run/netns && ip link set lo up
	echo nameserver 198.51.100.1 >/run/netns/resolv.conf && mount --bind /run/netns/resolv.conf /etc/resolv.conf`

// TestMain runs the tests in their own network and mount namespace. Networks and mounts end with the process.
func TestMain(m *testing.M) {
	agenttest.Overlap()
	flag.Parse()
	if os.Getenv(insideVar) != "" {
		if out, err := exec.Command("sh", "-ec", prepare).CombinedOutput(); err != nil {
			fmt.Printf("%v: %s", err, out)
			os.Exit(1)
		}
		code := m.Run()
		agenttest.Remove()
		os.Exit(code)
	}
	if testing.Short() {
		fmt.Println("skipped: real agents take seconds")
		os.Exit(0)
	}
	if out, err := inNamespaces("true").CombinedOutput(); err != nil {
		fmt.Printf("SKIPPED: networks with faults need root, in a container with --privileged (%v: %s)\n", err, out) // see scripts/skipped.sh
		os.Exit(0)
	}
	cmd := inNamespaces(os.Args...)
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// lab is a bridge with a few hosts, each of which runs one agent.
type lab struct {
	t      *testing.T
	number int // of the network
	args   []string
	nodes  map[int]*host
}

type host struct {
	clusterhttp.Client
	process *agentproc.Process
	hidden  atomic.Int32          // from the observation
	owned   []placement.Partition // according to the last answer
}

// These constants say how a host is observed.
const (
	shown  = iota
	spared // it is not asked, so its last answer counts
	gone   // it owns nothing that others can reach
)

// timings are the flags for agents in short tests, where every duration is a third of its usual value.
func timings() []string {
	if *long {
		return nil
	}
	return []string{"--heartbeat", "700ms", "--ttl", "2s"}
}

// ttl returns the TTL of leases.
func ttl() time.Duration {
	if *long {
		return 6 * time.Second
	}
	return 2 * time.Second
}

// newLab returns hosts 1 to n with agents that agree. The agents join the given seeds, and get the additional
// arguments.
func newLab(t *testing.T, number, n int, join func(l *lab) []string, args ...string) *lab {
	t.Helper()
	l := &lab{t: t, number: number, nodes: make(map[int]*host)}
	token := filepath.Join(t.TempDir(), "token") // without a token, an agent only listens on loopback
	if err := os.WriteFile(token, []byte(rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	l.args = slices.Concat(timings(),
		[]string{"--http-token-file", token, "--partitions", fmt.Sprint(partitions), "--join", strings.Join(join(l), ",")},
		args)
	l.must("ip link add br%[1]d type bridge && ip addr add 10.99.%[1]d.254/24 dev br%[1]d && ip link set br%[1]d up", number)
	l.must("nft add table bridge lab%[1]d && nft add chain bridge lab%[1]d f '{ type filter hook forward priority 0; }'", number)
	for i := 1; i <= n; i++ {
		l.connect(i)
	}
	for i := 1; i <= n; i++ {
		l.start(i)
	}
	if _, err := l.agree(time.Minute); err != nil {
		t.Fatal(err)
	}
	return l
}

// must runs shell commands.
func (l *lab) must(script string, args ...any) {
	l.t.Helper()
	script = fmt.Sprintf(script, args...)
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v: %s", script, err, out)
	}
}

func (l *lab) addr(i int) string   { return fmt.Sprintf("10.99.%d.%d", l.number, i) }
func (l *lab) gossip(i int) string { return l.addr(i) + ":7946" }
func (l *lab) ns(i int) string     { return fmt.Sprintf("l%dn%d", l.number, i) }

// connect adds a host. The bridge drops its packets to the DNS server.
func (l *lab) connect(i int) {
	l.t.Helper()
	l.must(`ip netns add %[1]s; ip link add %[1]s type veth peer name eth0 netns %[1]s; ip link set %[1]s master br%[2]d up
		ip netns exec %[1]s sh -ec "ip link set lo up; ip addr add %[3]s/24 dev eth0; ip link set eth0 up
		ip route add 198.51.100.1 dev eth0; ip neigh add 198.51.100.1 lladdr 02:00:00:00:00:01 dev eth0"`, l.ns(i), l.number, l.addr(i))
}

// command returns the command that runs the agent of host i, which has the id n followed by i. A shell runs the script
// first.
func (l *lab) command(i int, script string, args ...string) *exec.Cmd {
	l.t.Helper()
	bin := *exe
	if bin == "" {
		bin = agenttest.Binary(l.t)
	}
	own := []string{"--bind", l.gossip(i), "--http", l.addr(i) + ":8401"}
	cmd := agentproc.Command(bin, fmt.Sprintf("n%d", i), append(append(own, l.args...), args...)...)
	cmd.Args = append([]string{"ip", "netns", "exec", l.ns(i), "sh", "-ec", script + `; exec "$0" "$@"`}, cmd.Args...)
	path, err := exec.LookPath("ip")
	if err != nil {
		l.t.Fatal(err)
	}
	cmd.Path = path
	return cmd
}

// start starts the agent of a host, and does not wait until the agent is ready.
func (l *lab) start(i int, args ...string) { l.startAfter(i, ":", args...) }

// startAfter is like start, but the same process runs a script first.
func (l *lab) startAfter(i int, script string, args ...string) {
	l.t.Helper()
	h := &host{process: agenttest.Start(l.t, l.command(i, script, args...))}
	h.Base = l.addr(i) + ":8401"
	l.nodes[i] = h
}

// kill ends the agent of a host without a leave message.
func (l *lab) kill(i int) { //nolint:unparam // a host is a parameter of a fault
	l.t.Helper()
	if err := l.nodes[i].process.Kill(); err != nil {
		l.t.Fatal(err)
	}
}

// signal sends a signal to the agents of hosts.
func (l *lab) signal(s syscall.Signal, hosts ...int) {
	l.t.Helper()
	for _, i := range hosts {
		if err := l.nodes[i].process.Signal(s); err != nil {
			l.t.Fatal(err)
		}
	}
}

// drop makes the bridge drop everything that matches nft rules.
func (l *lab) drop(rules ...string) {
	l.t.Helper()
	for _, r := range rules {
		l.must("nft 'add rule bridge lab%d f ether type ip %s drop'", l.number, r)
	}
}

// heal ends all faults on the bridge.
func (l *lab) heal() {
	l.t.Helper()
	l.must("nft flush chain bridge lab%d f", l.number)
}

// These functions select gossip traffic: packets, and streams in both directions.
func (l *lab) udp(way string, i int) string {
	return fmt.Sprintf("ip %s %s udp dport 7946", way, l.addr(i))
}

func (l *lab) tcp(way string, i int) []string {
	return []string{
		fmt.Sprintf("ip %s %s tcp dport 7946", way, l.addr(i)), fmt.Sprintf("ip %s %s tcp sport 7946", way, l.addr(i)),
	}
}

// split cuts all gossip between two groups of hosts.
func (l *lab) split(a, b []int) {
	l.t.Helper()
	for _, i := range a {
		for _, j := range b {
			for _, way := range [][2]int{{i, j}, {j, i}} {
				pair := fmt.Sprintf("ip saddr %s ip daddr %s ", l.addr(way[0]), l.addr(way[1]))
				l.drop(pair+"udp dport 7946", pair+"tcp dport 7946", pair+"tcp sport 7946")
			}
		}
	}
}

// refuse makes a host answer all gossip traffic over TCP, in both directions, with a reset. accept ends this.
func (l *lab) refuse(i int) {
	l.t.Helper()
	l.must(`ip netns exec %s nft 'table inet r { chain i { type filter hook input priority 0; tcp dport 7946 reject with tcp reset; tcp sport 7946 reject with tcp reset; }
		chain o { type filter hook output priority 0; tcp dport 7946 reject with tcp reset; tcp sport 7946 reject with tcp reset; }; }'`, l.ns(i))
}

func (l *lab) accept(hosts ...int) {
	l.t.Helper()
	for _, i := range hosts {
		l.must("ip netns exec %s nft delete table inet r", l.ns(i))
	}
}

// fence makes the hosts of two groups answer streams from the other group with a reset, and drop or reject packets from
// the other group. accept ends this.
func (l *lab) fence(a, b []int, packets string) {
	l.t.Helper()
	for _, side := range [][2][]int{{a, b}, {b, a}} {
		var others []string
		for _, i := range side[1] {
			others = append(others, l.addr(i))
		}
		for _, i := range side[0] {
			// A reset from a host of one group must pass the firewall of the other group.
			l.must(`ip netns exec %[1]s nft 'table inet r { chain i { type filter hook input priority 0; ip saddr { %[2]s } jump x; }
				chain x { tcp flags rst accept; tcp dport 7946 reject with tcp reset; tcp sport 7946 reject with tcp reset; udp dport 7946 %[3]s; }; }'`,
				l.ns(i), strings.Join(others, ", "), packets)
		}
	}
}
