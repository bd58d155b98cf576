package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
	"github.com/roost-cluster/roost/internal/redistest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// TestRun builds and runs the program.
func TestRun(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "presence")
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"Memory", nil},
		{"Redis", []string{"-redis", redistest.Start(t).URL()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // the programs mostly wait
			out, err := exec.CommandContext(t.Context(), exe, c.args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var got []string // participants, without times
			for line := range strings.Lines(string(out)) {
				_, members, _ := strings.Cut(line, ":")
				got = append(got, strings.Join(strings.Fields(members), " "))
			}
			want := []string{
				"ada/laptop ada/phone bob/laptop cy/tablet",
				"ada/laptop bob/laptop cy/tablet", // S1.6
				"ada/laptop bob/laptop cy/tablet",
				"bob/laptop cy/tablet", // S1.2, S1.3
			}
			if !slices.Equal(got, want) {
				t.Errorf("printed\n%s\nwant the members %q", out, want)
			}
		})
	}
}
