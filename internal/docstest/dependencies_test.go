package docstest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page lists the direct dependencies of go.mod, and no others.
func TestDependencies(t *testing.T) { // S9.6
	var want, got []string
	for line := range strings.Lines(read(t, root+"go.mod")) {
		if m := regexp.MustCompile(`^\t(\S+) v\S+\n$`).FindStringSubmatch(line); m != nil { // indirect ones have a comment
			want = append(want, m[1])
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read(t, docs+"dependencies.md"), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the page lists\n%s\ngo.mod requires\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
