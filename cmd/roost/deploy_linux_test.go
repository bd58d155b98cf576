package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc"
	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

const deploy = "../../deploy/"

// TestImage follows the Dockerfile by hand. The agent runs as the user of the image, and its root directory contains
// only the files of a release.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the binary again")
	}
	t.Parallel()
	first, second := releaseTwice(t)
	checkArchive(t, first, second)
	checkBill(t, first)
	checkPackages(t, first)
	root := first.unpacked
	if from, files := inDockerfile(t, `FROM (.*)`), inDockerfile(t, `COPY (.*)`); from != "scratch" || files != ". /" {
		t.Fatalf("the image is of %s, with %s", from, files)
	}
	program, err := elf.Open(root + "/roost")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it is linked dynamically: the image has no loader")
		}
	}

	var uid, gid uint32
	if _, err := fmt.Sscanf(inDockerfile(t, `USER (.*)`), "%d:%d", &uid, &gid); err != nil || uid == 0 || gid == 0 {
		t.Fatalf("its user is %d:%d, %v", uid, gid, err)
	}
	entry, args := inDockerfile(t, `ENTRYPOINT \["(.*)"\]`), inDockerfile(t, `CMD \["(.*)"\]`)
	agent := agentproc.Command(entry, "a")
	agent.Args[1], agent.Dir, agent.SysProcAttr = args, "/", jail(root, uid, gid)
	p := agenttest.LaunchCommand(t, "a", agent)
	p.Runs()
	outside := uid
	if os.Getuid() != 0 {
		outside = uint32(os.Getuid())
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if want := fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", outside); err != nil || !strings.Contains(string(status), want) {
		t.Errorf("it does not run as %d: %v\n%s", uid, err, status)
	}
	// In a container, the test may not inspect the root directory of another user's process, even if the test runs as
	// root. Then it is enough that the process found /roost.
	if at, err := os.Readlink(fmt.Sprintf("/proc/%d/root", p.PID())); !errors.Is(err, fs.ErrPermission) && (err != nil || at != root) {
		t.Errorf("its root is %q, %v", at, err)
	}
	if _, err := p.Members(t.Context()); err != nil {
		t.Error(err)
	}
	if inDockerfile(t, `STOPSIGNAL (.*)`) != "SIGTERM" {
		t.Error("an agent leaves at SIGTERM")
	}
	p.Signal(syscall.SIGTERM)
	p.Exits(0, "leaving")
}

// jail returns attributes for a process with another root directory and user. If the test does not run as root, the
// process gets a user namespace in which that user stands for the user of this test.
func jail(root string, uid, gid uint32) *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	}
	return &syscall.SysProcAttr{
		Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(uid), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(gid), HostID: os.Getgid(), Size: 1}},
	}
}

func inDockerfile(t *testing.T, line string) string {
	t.Helper()
	text, err := os.ReadFile(deploy + "docker/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^"+line+"$").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("the Dockerfile has %d lines %s", len(found), line)
	}
	return found[0][1]
}

// TestUnit verifies the unit with systemd.
func TestUnit(t *testing.T) {
	exe := agenttest.Binary(t)
	t.Parallel()
	unit, err := os.ReadFile(deploy + "systemd/roost.service")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "roost.service")
	installed := strings.ReplaceAll(string(unit), "/usr/local/bin/roost", exe)
	if err := os.WriteFile(path, []byte(installed), 0o600); err != nil {
		t.Fatal(err)
	}
	// systemd-analyze exits with 0 even if it finds unknown keys, so its output must be empty, too.
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v (is it missing? run scripts/deps.sh)\n%s", err, out)
	}
	// The agent lists the addresses of its machine to see whether its own address still exists. Go does this with
	// netlink.
	if !regexp.MustCompile(`(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b`).Match(unit) {
		t.Error("the agent cannot list the addresses of its machine")
	}
}
