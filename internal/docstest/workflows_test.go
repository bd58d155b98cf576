package docstest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWorkflows: a workflow only has permission to read the repository, unless one of its jobs asks for more. Actions
// are named by the hash of a commit, because a tag can be moved. Each workflow runs the command that the pages name.
func TestWorkflows(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^\s+(?:- )?uses: (.*)$`)
	pinned := regexp.MustCompile(`^(?:[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/\w+\.yml)$`)
	for file, runs := range map[string]string{
		"test.yml": "make test", "release.yml": `scripts/release.sh "$TAG" dist`, "vuln.yml": "make vuln",
	} {
		text := read(t, root+".github/workflows/"+file)
		if !strings.Contains(text, "\npermissions:\n  contents: read\n") {
			t.Errorf("%s may do more than read", file)
		}
		if !strings.Contains(text, "- run: "+runs+"\n") {
			t.Errorf("%s does not run %s", file, runs)
		}
		actions := uses.FindAllStringSubmatch(text, -1)
		if len(actions) == 0 {
			t.Errorf("%s uses nothing", file)
		}
		for _, m := range actions {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s, which is no hash of a commit", file, m[1])
			}
		}
	}
}

// TestRolling: every test that the race detector skips by name is in cmd/roost, where make long runs it. No other test
// has such a name.
func TestRolling(t *testing.T) {
	names := regexp.MustCompile(`(?m)^export ROLLING := (\S+)$`).FindStringSubmatch(read(t, root+"Makefile"))
	if names == nil {
		t.Fatal("the Makefile has no ROLLING")
	}
	found := make(map[string][]string)
	test := regexp.MustCompile(`(?m)^func (` + names[1] + `)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = append(found[m[1]], filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(names[1], "|") {
		if got := found[name]; len(got) != 1 || got[0] != filepath.Clean(root+"cmd/roost") {
			t.Errorf("%s is in %q, want cmd/roost alone", name, got)
		}
	}
}
