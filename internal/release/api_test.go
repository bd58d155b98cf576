package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAPI: scripts/api.sh refuses a change of the exported API that breaks programs, before v1.0.0 unless the changelog
// tells users, and says so if there is no release to compare with.
func TestAPI(t *testing.T) {
	script, err := filepath.Abs("../../scripts/api.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sh := func(command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SCRIPT="+script, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := sh(`
		mkdir -p scripts lease cmd/roost internal/x cluster/kubernetes
		cp "$SCRIPT" scripts
		printf 'module example.org/roost\n\ngo 1.26.0\n' >go.mod
		printf 'module example.org/roost/cluster/kubernetes\n\ngo 1.26.0\n' >cluster/kubernetes/go.mod
		printf 'package lease\n\nfunc A() {}\n\nfunc B() {}\n' >lease/lease.go
		printf 'package main\n\nfunc C() {}\n\nfunc main() {}\n' >cmd/roost/main.go
		printf 'package x\n\nfunc D() {}\n' >internal/x/x.go
		printf 'package kubernetes\n\nfunc E() {}\n' >cluster/kubernetes/k.go
		printf '## [Unreleased]\n\n## [0.1.0] - 2001-02-03\n\n- Breaking: the past.\n' >CHANGELOG.md
		git init -q`); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		change, want string
		ok           bool
	}{
		{":", "NOT COMPARED", true},
		{"git tag v0.1.0; printf '\nfunc New() {}\n' >>lease/lease.go", "compatible with v0.1.0", true},
		{"sed -i '/func C/d' cmd/roost/main.go; sed -i '/func D/d' internal/x/x.go", "compatible with v0.1.0", true},
		{"sed -i '/func B/d' lease/lease.go", "B: removed", false},
		{"sed -i 's/^## .Unreleased.$/&\\n\\n- Breaking: use A./' CHANGELOG.md", "B: removed", true},
		{"sed -i '/func E/d' cluster/kubernetes/k.go", "E: removed", true},
		{"git tag v1.0.0; sed -i '/func A/d' lease/lease.go", "Only a new major version", false},
	} {
		if out, err := sh(c.change + "; git add -A; git commit -q --allow-empty -m change"); err != nil {
			t.Fatalf("%s: %v\n%s", c.change, err, out)
		}
		out, err := sh("scripts/api.sh")
		if (err == nil) != c.ok || !strings.Contains(out, c.want) {
			t.Errorf("after %q: %v, want %q, ok: %t\n%s", c.change, err, c.want, c.ok, out)
		}
	}
}
