package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const docs = "../../docs/"

// The index lists each page, and the links of the pages and of README lead somewhere.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob(docs + "*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	index := read(t, docs+"README.md")
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	link := regexp.MustCompile(`\]\(([^)#: ]*)(?:#([^) ]+))?\)`)
	for _, page := range append(pages, "../../README.md") {
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

// The commands that the newcomer's pages name are commands.
func TestCommandsExist(t *testing.T) {
	cli := read(t, docs+"cli.md")
	settings := read(t, docs+"settings.md")
	for _, page := range []string{"concepts.md", "faq.md", "tutorial.md"} {
		for _, m := range regexp.MustCompile("`roost ([a-z]+)").FindAllStringSubmatch(read(t, docs+page), -1) {
			if !strings.Contains(cli, "\n### roost "+m[1]+"\n") {
				t.Errorf("%s: there is no command roost %s", page, m[1])
			}
		}
		for _, m := range regexp.MustCompile("`[^`\n]*?(--[a-z-]+)").FindAllStringSubmatch(read(t, docs+page), -1) {
			if !regexp.MustCompile(m[1] + "[ `\n]").MatchString(cli + settings) {
				t.Errorf("%s: there is no flag %s", page, m[1])
			}
		}
	}
}

// hasHeading reports whether a page has a heading of that anchor, by GitHub's rule.
func hasHeading(text, anchor string) bool {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		id := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		if strings.ReplaceAll(id, " ", "-") == anchor {
			return true
		}
	}
	return false
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
