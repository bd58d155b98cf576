package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestRun builds and runs the program.
func TestRun(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "rooms")
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	want := regexp.MustCompile(`^standup lives on (\w): .+
connected to (\w), which hosts standup \(epoch (\d+)\)
(\w) dies
standup moved from (\w) to (\w): .+
connected to (\w), which hosts standup \(epoch (\d+)\)
$`)
	for name, args := range map[string][]string{
		"memory": nil,
		"redis":  {"-redis", redistest.Start(t).URL()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the programs mostly wait
			out, err := exec.CommandContext(t.Context(), exe, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m := want.FindStringSubmatch(string(out))
			if m == nil {
				t.Fatalf("printed\n%s", out)
			}
			first, second := m[1], m[6]
			if m[2] != first || m[4] != first || m[5] != first || m[7] != second || first == second || m[8] <= m[3] { // S0.9
				t.Errorf("the story does not hold:\n%s", out)
			}
		})
	}
}
