package docstest

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page lists the direct dependencies of go.mod and no others, with the versions of both files, and says which of
// them a program with package cluster compiles.
func TestDependencies(t *testing.T) {
	oldest, newest := requirements(t, "go.mod"), requirements(t, "internal/tools/newest.mod")
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./cluster")
	cmd.Dir = root
	compiled, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	var got, want []string
	for path, version := range oldest {
		in := slices.Contains(strings.Fields(string(compiled)), path)
		want = append(want, fmt.Sprintf("%s, oldest %s, newest %s, in cluster: %t", path, short(version), short(newest[path]), in))
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\| ([^|]+) \\| (v\\S+) \\| (v\\S+) \\|")
	for _, m := range row.FindAllStringSubmatch(read(t, docs+"dev/dependencies.md"), -1) {
		got = append(got, fmt.Sprintf("%s, oldest %s, newest %s, in cluster: %t", m[1], m[3], m[4], strings.HasPrefix(m[2], "cluster")))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) < 10 {
		t.Errorf("the page lists\n%s\ngo.mod and newest.mod require\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// requirements are the direct ones of a file.
func requirements(t *testing.T, file string) map[string]string {
	required := make(map[string]string)
	for line := range strings.Lines(read(t, root+file)) {
		if m := regexp.MustCompile(`^\t(\S+) (v\S+)\n$`).FindStringSubmatch(line); m != nil { // indirect ones have a comment
			required[m[1]] = m[2]
		}
	}
	return required
}

// short is a version without the time of day and the commit, if it is not a tagged one.
func short(version string) string {
	return regexp.MustCompile(`^(v0\.0\.0-\d{8})\d{6}-[0-9a-f]{12}$`).ReplaceAllString(version, "$1")
}
