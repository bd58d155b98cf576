package docstest

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNamedTests: each test that a page names exists. In a table of promises, the test is in the package that was named
// before it on the same line.
func TestNamedTests(t *testing.T) {
	in := testsByName(t)
	name := regexp.MustCompile("`([\\w./-]+)`")
	promises := 0
	for _, page := range slices.Concat(glob(t, docs+"*.md"), glob(t, docs+"dev/*.md"), glob(t, docs+"dev/decisions/*.md"), glob(t, docs+"dev/design/*.md")) {
		promising := false
		for line := range strings.Lines(read(t, page)) {
			promising = strings.HasPrefix(line, "|") && (promising || line == "| promise | test |\n")
			folder := ""
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				word := m[1]
				switch folders := in[word]; {
				case !strings.HasPrefix(word, "Test"):
					folder = word
				case len(folders) == 0:
					t.Errorf("%s: there is no %s", page, word)
				case promising && !slices.ContainsFunc(folders, func(f string) bool { return f == folder || strings.HasPrefix(f, folder+"/") }):
					t.Errorf("%s: %s is in %v, not in %s", page, word, folders, folder)
				case promising:
					promises++
				}
			}
		}
	}
	if promises < 30 {
		t.Errorf("%d tests show promises", promises)
	}
}

// testsByName returns the folders that contain a test with each name.
func testsByName(t *testing.T) map[string][]string {
	t.Helper()
	in := make(map[string][]string)
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range decl.FindAllStringSubmatch(read(t, path), -1) {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			in[m[1]] = append(in[m[1]], filepath.ToSlash(folder))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return in
}
