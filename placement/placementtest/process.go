package placementtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// childEnv names the file into which a child process writes its results.
const childEnv = "ROOST_PLACEMENTTEST_ANSWERS"

// anotherProcess runs the calling test again in another process, and compares the results. Only this check
// detects hashes that are seeded at startup, as in hash/maphash.
func anotherProcess(t *testing.T, s *suite) {
	t.Helper()
	var own string
	if err := guard(func() (err error) { own, err = s.answers(); return err }); err != nil {
		t.Fatal(err)
	}
	if file := os.Getenv(childEnv); file != "" {
		if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "answers")
	cmd := exec.CommandContext(t.Context(), exe, "-test.run="+onlyTest(t.Name()), "-test.count=1")
	cmd.Env = append(os.Environ(), childEnv+"="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the test in another process: %v\n%s", err, out)
	}
	theirs, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the test in another process did not reach this point: %v", err)
	}
	if err := compareAnswers(own, string(theirs)); err != nil {
		t.Error(err)
	}
}

// onlyTest is the pattern that -test.run needs to match one (sub-)test.
func onlyTest(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// answers returns the answers for all inputs, one per line.
func (s *suite) answers() (string, error) {
	var b strings.Builder
	for _, in := range s.cases {
		a, err := in.ask(s.fresh())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%v: %v, rank of 0: %v\n", in, a.owners, a.rank)
	}
	return b.String(), nil
}

func compareAnswers(ours, theirs string) error {
	want := strings.Split(theirs, "\n")
	for i, line := range strings.Split(ours, "\n") {
		if i >= len(want) || line != want[i] {
			what, _, _ := strings.Cut(line, ":")
			return fmt.Errorf("%s: another process answers differently; does the strategy use a seed that each process draws?", what)
		}
	}
	return nil
}
