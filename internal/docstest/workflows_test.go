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

// TestSkippedByName: every test that the race detector skips by name is in a package in which make long runs it. No test
// elsewhere has such a name.
func TestSkippedByName(t *testing.T) {
	for list, packages := range map[string]string{"ROLLING": `^cmd/roost$`, "MINUTES": `^cluster(/affinity(/.*)?)?$`} {
		checkSkipped(t, list, regexp.MustCompile(packages))
	}
}

func checkSkipped(t *testing.T, list string, packages *regexp.Regexp) {
	t.Helper()
	names := regexp.MustCompile(`(?m)^export ` + list + ` := (\S+)$`).FindStringSubmatch(read(t, root+"Makefile"))
	if names == nil {
		t.Fatalf("the Makefile has no %s", list)
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
		if len(found[name]) == 0 {
			t.Errorf("%s has %s, which does not exist", list, name)
		}
		for _, dir := range found[name] {
			if dir, err := filepath.Rel(root, dir); err != nil || !packages.MatchString(filepath.ToSlash(dir)) {
				t.Errorf("%s is in %s, where make long does not run it", name, dir)
			}
		}
	}
}
