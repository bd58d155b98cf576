//go:build linux

package docstest

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

// placeholders contains a value for each placeholder in running text.
var placeholders = map[string]string{
	"COMMAND": "version", "KEY": "room-17", "NAME": "room-17", "NODE": "node-b", "N": "100", "P": "4096", "S": "modulo",
}

var placeholder = regexp.MustCompile(`\b[A-Z]+\b`)

func filled(line string) string {
	line = strings.ReplaceAll(line, "--addr NODE", "--addr 127.0.0.1:1")
	return placeholder.ReplaceAllStringFunc(line, func(word string) string { return cmp.Or(placeholders[word], word) })
}

// TestMentions: roost, make and go test accept the commands in running text.
func TestMentions(t *testing.T) {
	r := &mentions{t: t, s: newSitting(t, filepath.Dir(agenttest.Binary(t))), seen: make(map[string]bool), runs: make(map[string]bool)}
	r.s.env = append(r.s.env, "ROOST_ADDR=127.0.0.1:1") // no agent answers there
	found := pages(t)
	for _, p := range found {
		for _, b := range p.blocks {
			for _, c := range b.commands {
				r.runs[c.line] = b.norun == ""
			}
		}
	}
	for name, p := range found {
		for _, line := range p.mentions {
			r.check(name, line)
		}
	}
}

type mentions struct {
	t    *testing.T
	s    *sitting
	seen map[string]bool
	runs map[string]bool // the commands of all pages
}

func (r *mentions) check(page, line string) {
	r.t.Helper()
	switch {
	case r.seen[line]:
	case isGoTest.MatchString(line):
		if problem := problemOfGoTest(line); problem != "" {
			r.t.Errorf("%s: %s: %s", page, line, problem)
		}
	case strings.HasPrefix(line, "go run "):
		if !r.runs[line] {
			r.t.Errorf("%s: %s: no page or comment has it as a command to run", page, line)
		}
	default:
		r.run(page, line)
	}
	r.seen[line] = true
}

// run checks the command, its flags and its arguments: roost exits with 2 if it rejects
// them, and with 1 if it accepts them and no agent answers.
func (r *mentions) run(page, line string) {
	r.t.Helper()
	line = filled(line)
	words := strings.Fields(line)
	flags := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "--") })
	bare := len(words) == 2 || slices.Contains([]string{"agent", "demo", "top"}, words[1])
	if strings.HasPrefix(line, "roost ") && bare { // only a name, or a command that does not end
		help := " --help"
		if words[1] == "agent" {
			help = " --help-all"
		}
		out, code := r.s.bash("roost " + words[1] + help)
		known := code == 0 && !slices.ContainsFunc(flags, func(f string) bool { return !strings.Contains(out, " "+f+" ") })
		if !known {
			r.t.Errorf("%s: %s: no such command or flag: exits with %d and prints\n%s", page, line, code, out)
		}
		return
	}
	if out, code := r.s.bash(r.s.literal(line)); code != 0 && code != 1 {
		r.t.Errorf("%s: %s: exits with %d and prints\n%s", page, line, code, out)
	}
}

var (
	selects  = regexp.MustCompile(`-(run|bench) ('[^']*'|\S+)`)
	testFunc = regexp.MustCompile(`(?m)^func (Test|Benchmark)(\w+)\(`)
)

// problemOfGoTest returns why a command would not run any test. It does not run the command, which may take minutes.
// make test runs all tests anyway, and each benchmark once.
func problemOfGoTest(line string) string {
	dir := root
	if m := regexp.MustCompile(`^cd (\S+) && `).FindStringSubmatch(line); m != nil {
		dir += m[1]
	}
	var names []string
	for word := range strings.FieldsSeq(line) {
		if !strings.HasPrefix(word, ".") || strings.Contains(line, "-bench "+word+" ") && word == "." {
			continue
		}
		found := testsIn(filepath.Join(dir, strings.TrimSuffix(word, "/...")), strings.HasSuffix(word, "/..."))
		if len(found) == 0 {
			return "no tests in " + word
		}
		names = append(names, found...)
	}
	for _, m := range selects.FindAllStringSubmatch(line, -1) {
		kind := map[string]string{"run": "Test", "bench": "Benchmark"}[m[1]]
		for part := range strings.SplitSeq(strings.Trim(m[2], "'"), "|") {
			one := regexp.MustCompile(part)
			if part != "^$" && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, kind) && one.MatchString(n) }) {
				return "no " + kind + " is called " + part
			}
		}
	}
	return ""
}

// testsIn returns the names of the tests and benchmarks in a directory, optionally with those below it.
func testsIn(dir string, below bool) (names []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && !below:
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				names = append(names, string(m[1])+string(m[2]))
			}
			return err
		}
		return nil
	})
	return names
}
