package docstest

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docs = root + "docs/"

// TestPages: the index lists each page, links lead to an existing file and heading, and paths in code spans exist.
func TestPages(t *testing.T) {
	pages := slices.Concat(glob(t, docs+"*.md"), glob(t, docs+"dev/*.md"))
	decisions := slices.Concat(glob(t, docs+"dev/decisions/*.md"), glob(t, docs+"dev/design/*.md"))
	index := read(t, docs+"README.md")
	for _, page := range pages {
		if name := strings.TrimPrefix(page, docs); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	link := regexp.MustCompile(`(?:\]\(|src="|srcset=")([^)#:" ]*)(?:#([^) ]+))?[")]`)
	file := regexp.MustCompile("`((?:affinity|cluster|cmd|docs|events|internal|lease|placement|presence|reconnect)/[\\w./-]*)`")
	for _, page := range slices.Concat(pages, decisions, []string{root + "README.md", root + "CONTRIBUTING.md"}) {
		for _, m := range file.FindAllStringSubmatch(read(t, page), -1) {
			if _, err := os.Stat(root + m[1]); err != nil && !strings.Contains(m[1], "/v1.") {
				t.Errorf("%s: no file %s", page, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: no %s", page, m[1])
			} else if m[2] != "" && !hasHeading(read(t, target), m[2]) {
				t.Errorf("%s: no heading #%s in %s", page, m[2], target)
			}
		}
	}
}

// TestFileNames: if the architecture page names a file without its folder, the file is in a folder that was named
// before in the same row or section.
func TestFileNames(t *testing.T) {
	name := regexp.MustCompile("`([\\w./-]*\\.(?:go|lua|json))`|`([a-z][\\w/-]*)/?`|(?m)^(?:#+ .*|\\| \\*\\*.*?\\*\\*)")
	var folders []string
	for _, m := range name.FindAllStringSubmatch(read(t, docs+"dev/architecture.md"), -1) {
		file, folder := m[1], m[2]
		switch info, err := os.Stat(root + cmp.Or(file, folder)); {
		case file == "" && folder == "": // a heading, or a row
			folders = nil
		case folder != "":
			if err == nil && info.IsDir() {
				folders = append(folders, folder)
			}
		case err == nil:
			folders = append(folders, filepath.Dir(file))
		case !slices.ContainsFunc(folders, func(folder string) bool {
			_, err := os.Stat(root + folder + "/" + file)
			return err == nil
		}):
			t.Errorf("no file %s in %v", file, folders)
		}
	}
}

// TestFlags: each flag on a page is a flag of some command or of the agent.
func TestFlags(t *testing.T) {
	flags := read(t, docs+"cli.md") + read(t, docs+"settings.md")
	for _, file := range slices.Concat(glob(t, docs+"*.md"), glob(t, docs+"dev/*.md"), glob(t, docs+"dev/decisions/*.md"),
		glob(t, docs+"dev/design/*.md"), []string{root + "README.md", root + "CONTRIBUTING.md"}) {
		text := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(read(t, file), "")
		for _, m := range span.FindAllString(text, -1) {
			for _, flag := range regexp.MustCompile(`(?:^|[ `+"`"+`])(--[a-z-]+)`).FindAllStringSubmatch(m, -1) {
				if !regexp.MustCompile(flag[1] + "[ `\n]").MatchString(flags) {
					t.Errorf("%s: there is no flag %s", file, flag[1])
				}
			}
		}
	}
}

// TestQuotes: the Go code on a page is in the program that the page explains. The code must match as a whole, or line
// by line if the page omits parts.
func TestQuotes(t *testing.T) {
	for page, of := range map[string]struct {
		program string
		whole   bool
	}{
		"../README.md":  {"examples/embed/main.go cluster/affinity/redisstore/example_test.go", false},
		"quickstart.md": {"examples/tutorial/main.go", true},
		"sfu.md":        {"cluster/affinity/signalling/example_test.go cluster/affinity/example_test.go", false},
		"migrating.md":  {"cluster/clusterprom/example_shadow_test.go", true},
		"kubernetes.md": {"cluster/kubernetes/example_test.go", false},
	} {
		program := ""
		for file := range strings.FieldsSeq(of.program) {
			program += read(t, root+file)
		}
		quotes := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, docs+page), -1)
		if len(quotes) == 0 {
			t.Errorf("%s quotes nothing", page)
		}
		for _, quote := range quotes {
			parts := []string{quote[1]}
			if !of.whole {
				parts = strings.Split(quote[1], "\n")
			}
			for _, part := range parts {
				if !strings.Contains(program, strings.TrimSpace(part)) {
					t.Errorf("%s does not have this any more:\n%s", of.program, part)
				}
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files match %s: %v", len(files), pattern, err)
	}
	return files
}

// hasHeading reports whether a page has a heading with this anchor, by GitHub's rule.
func hasHeading(text, anchor string) bool {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		id := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(id, " ", "-") == anchor {
			return true
		}
	}
	return false
}
