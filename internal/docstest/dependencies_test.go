package docstest

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page lists exactly the direct dependencies in go.mod, and says which of them are compiled into a program that
// imports package cluster.
func TestDependencies(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cluster")
	cmd.Dir = root
	compiled, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var got, want []string
	for _, path := range requirements(t) {
		in := slices.Contains(strings.Fields(string(compiled)), path)
		want = append(want, fmt.Sprintf("%s, in cluster: %t", path, in))
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\| ([^|]+) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, docs+"dev/dependencies.md"), -1) {
		got = append(got, fmt.Sprintf("%s, in cluster: %t", m[1], strings.HasPrefix(m[2], "cluster")))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the page lists\n%s\ngo.mod requires\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// requirements are the direct ones of go.mod.
func requirements(t *testing.T) (paths []string) {
	t.Helper()
	for line := range strings.Lines(read(t, root+"go.mod")) {
		if m := regexp.MustCompile(`^\t(\S+) v\S+\n$`).FindStringSubmatch(line); m != nil { // indirect ones have a comment
			paths = append(paths, m[1])
		}
	}
	return paths
}
