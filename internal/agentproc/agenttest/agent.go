// Package agenttest starts real agents for tests. Its functions fail the test if an agent does not behave as
// expected.
package agenttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/redistest"
	"github.com/roost-cluster/roost/lease"
)

// Timeout limits every wait. It is much longer than a wait should take, because the machine may be busy.
const Timeout = time.Minute

// binary is built once per test process.
var binary struct { //nolint:gochecknoglobals // tests have nothing else in common
	once sync.Once
	dir  string
	err  error
}

// Folder creates a temporary folder for program binaries, which the caller must remove. Because each binary
// takes tens of MB, Folder also deletes the folders that killed test processes left behind.
func Folder() (string, error) {
	const prefix = "roost-program-"
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), prefix+"%d-", &pid); err == nil && gone(pid) {
			_ = os.RemoveAll(dir) // fails for the folder of another user
		}
	}
	return os.MkdirTemp("", fmt.Sprint(prefix, os.Getpid(), "-"))
}

func gone(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return true
	}
	defer func() { _ = p.Release() }()
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func buildBinary() {
	if binary.dir, binary.err = Folder(); binary.err != nil {
		return
	}
	// Build in the root module, so that tests of other modules also use the dependency versions of the root
	// module.
	const module = "github.com/roost-cluster/roost"
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		binary.err = fmt.Errorf("go list -m %s: %w", module, err)
		return
	}
	// Use go run instead of go build, because only go run can take a linked program from Go's build cache.
	// With -exec cp, it copies the program instead of running it.
	out, err := exec.Command("go", "run", "-C", strings.TrimSpace(string(root)), "-race=false", "-exec", "cp",
		"./cmd/roost", binary.dir).CombinedOutput()
	if err != nil {
		binary.err = fmt.Errorf("go run: %w\n%s", err, out)
	}
}

// Binary returns the path of the roost binary, which is built without the race detector, as for users. The
// first call builds the binary. With -short, Binary skips the test.
func Binary(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("real processes take seconds")
	}
	binary.once.Do(buildBinary)
	if binary.err != nil {
		tb.Fatal(binary.err)
	}
	return filepath.Join(binary.dir, "roost")
}

// Overlap makes six tests run in parallel even if there are fewer CPUs, because tests of agents mostly wait.
// The flag -parallel overrides this number.
func Overlap() { _ = flag.Set("test.parallel", "6") }

// Main is for TestMain. It runs the tests of a package, deletes the binary, and exits.
func Main(m *testing.M) {
	Overlap()
	code := m.Run()
	Remove()
	os.Exit(code)
}

// Remove deletes the binary if Binary has built it.
func Remove() { _ = os.RemoveAll(binary.dir) }

// Start starts a process and kills it at the end of the test.
func Start(tb testing.TB, cmd *exec.Cmd) *agentproc.Process {
	tb.Helper()
	endWithTest(cmd)
	p, err := agentproc.Start(cmd, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.Kill()
		if tb.Failed() {
			tb.Logf("%v:\n%s", cmd.Args, p.Log)
		}
	})
	return p
}

// Agent is an agent process that a test has started, with a client for the agent's API.
type Agent struct {
	*agentproc.Process
	agentproc.Addrs // set once the agent is running
	*clusterhttp.Client
	ID string
	tb testing.TB
}

// Launch starts an agent on free ports and does not wait until it is running. Later arguments override
// earlier ones.
func Launch(tb testing.TB, id string, args ...string) *Agent {
	tb.Helper()
	return LaunchCommand(tb, id, agentproc.Command(Binary(tb), id, args...))
}

// LaunchCommand is Launch for a command from agentproc.Command that the caller has changed.
func LaunchCommand(tb testing.TB, id string, cmd *exec.Cmd) *Agent {
	tb.Helper()
	cmd.Args = slices.Insert(cmd.Args, 2, "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0")
	return &Agent{Process: Start(tb, cmd), Client: new(clusterhttp.Client), ID: id, tb: tb}
}

// Run starts an agent and waits until it is running.
func Run(tb testing.TB, id string, args ...string) *Agent {
	tb.Helper()
	a := Launch(tb, id, args...)
	a.Runs()
	return a
}

// Runs waits until the agent logs its addresses.
func (a *Agent) Runs() {
	a.tb.Helper()
	ctx, cancel := context.WithTimeout(a.tb.Context(), Timeout)
	defer cancel()
	var err error
	if a.Addrs, err = a.Await(ctx); err != nil {
		a.tb.Fatalf("%s: %v\n%s", a.ID, err, a.Log)
	}
	a.Base = a.Addrs.HTTP
}

// Signal sends s to the agent. After SIGSTOP, Signal waits until the process has stopped, because its threads
// can run for a moment longer.
func (a *Agent) Signal(s syscall.Signal) {
	a.tb.Helper()
	if err := a.Process.Signal(s); err != nil {
		a.tb.Fatal(err)
	}
	if s == stopSignal {
		redistest.Eventually(a.tb, a.ID+" to stand still", a.stopped)
	}
}

func (a *Agent) stopped() error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.PID()))
	if os.IsNotExist(err) {
		return nil // this system has no /proc
	}
	if _, after, ok := strings.Cut(string(stat), ") "); err == nil && (!ok || !strings.HasPrefix(after, "T")) {
		return fmt.Errorf("not stopped yet: %s", stat)
	}
	return err
}

// Exits waits until the agent exits, and checks the exit code. The log must contain each of the texts.
func (a *Agent) Exits(code int, texts ...string) {
	a.tb.Helper()
	select {
	case <-a.Done():
	case <-time.After(Timeout):
		a.tb.Fatalf("%s still runs", a.ID)
	}
	if got := a.State().ExitCode(); got != code {
		a.tb.Errorf("%s exits with %d (%v), want %d", a.ID, got, a.State(), code)
	}
	a.Logs(texts...)
}

// Logs waits until the log contains each of the texts.
func (a *Agent) Logs(texts ...string) {
	a.tb.Helper()
	for _, text := range texts {
		redistest.Eventually(a.tb, a.ID+" to log "+text, func() error {
			if !strings.Contains(a.Text(), text) {
				return fmt.Errorf("the log does not contain %q", text)
			}
			return nil
		})
	}
}

// Text returns the log, with \" replaced by a plain quotation mark.
func (a *Agent) Text() string { return strings.ReplaceAll(a.Log.String(), `\"`, `"`) }

// Agree waits until all agents have the same table and see exactly each other as members. Each agent must
// also report that it owns the partitions that the table assigns to it, and no others.
func Agree(tb testing.TB, agents ...*Agent) {
	tb.Helper()
	redistest.Eventually(tb, "the agents to agree", func() error {
		ctx, cancel := context.WithTimeout(tb.Context(), Timeout)
		defer cancel()
		return agree(ctx, agents)
	})
}

func agree(ctx context.Context, agents []*Agent) error {
	digest, err := converged(ctx, agents)
	if err != nil {
		return err
	}
	table, err := agents[0].Partitions(ctx) // requested only after the agents agree, because the table is large
	if err != nil {
		return err
	}
	if table.Digest.String() != digest {
		return fmt.Errorf("%s had table %s, and has %s", agents[0].ID, digest, table.Digest)
	}
	owned := 0
	for _, a := range agents {
		n, err := a.owns(ctx, table)
		if err != nil {
			return err
		}
		owned += n
	}
	if owned != table.Partitions {
		return fmt.Errorf("%d partitions of %d are owned", owned, table.Partitions)
	}
	return nil
}

// converged returns the digest of the table that all agents have. It fails if the tables differ, or if an
// agent's members are not exactly these agents.
func converged(ctx context.Context, agents []*Agent) (digest string, err error) {
	var ids []lease.NodeID
	for _, a := range agents {
		ids = append(ids, lease.NodeID(a.ID))
	}
	slices.Sort(ids)
	for i, a := range agents {
		m, err := a.Members(ctx)
		if err != nil {
			return "", err
		}
		var seen []lease.NodeID
		for _, n := range m.Members {
			seen = append(seen, n.ID)
		}
		if i == 0 {
			digest = m.Digest.String()
		}
		if !slices.Equal(seen, ids) || !m.Converged || m.Digest.String() != digest {
			return "", fmt.Errorf("%s sees %v (converged: %v, table %s), want %v with table %s", a.ID, seen, m.Converged, m.Digest, ids, digest)
		}
	}
	return digest, nil
}

// owns returns how many partitions the agent reports that it owns. It fails if the table assigns one of them
// to another agent.
func (a *Agent) owns(ctx context.Context, table clusterhttp.Partitions) (int, error) {
	mine, err := a.Owned(ctx)
	for _, part := range mine.Partitions {
		if owner := table.Owners[part]; string(owner) != a.ID {
			return 0, fmt.Errorf("%s owns partition %d, which the table gives to %s", a.ID, part, owner)
		}
	}
	return len(mine.Partitions), err
}
