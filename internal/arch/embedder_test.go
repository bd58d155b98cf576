package arch

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/embedder.txt anew")

// TestEmbedder bounds what a program that imports only package cluster compiles, and how large it becomes.
// testdata/embedder.txt has its packages. A new Go release may add packages of the standard library, up to a bound. Other
// modules may add none.
func TestEmbedder(t *testing.T) {
	modules(t, filepath.Join("..", "..")) // so that the result is not reused after a change elsewhere
	const (
		golden   = "testdata/embedder.txt"
		program  = "./testdata/embedder"
		margin   = 10         // %
		mostSize = 11_000_000 // bytes on linux/amd64; 9.5 MB with Go 1.26, 10.1 MB with Go 1.27 and the newest dependencies
	)
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = env
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return string(out)
	}

	list := run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{else}}std {{.ImportPath}}{{end}}", program)
	packages := strings.Split(strings.TrimSpace(list), "\n")
	slices.Sort(packages)
	if *update {
		if err := os.WriteFile(golden, []byte(strings.Join(packages, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(text)), "\n")
	var foreign, standard []string
	for _, p := range packages {
		name, std := strings.CutPrefix(p, "std ")
		switch {
		case slices.Contains(known, p) || strings.HasPrefix(p, module):
		case std:
			standard = append(standard, name)
		default:
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		t.Errorf("a program that imports only cluster now also compiles these packages of other modules:\n  %s", strings.Join(foreign, "\n  "))
	}
	if most := len(known) * (100 + margin) / 100; len(packages) > most {
		t.Errorf("a program that imports only cluster compiles %d packages, at most %d. New in the standard library:\n  %s",
			len(packages), most, strings.Join(standard, "\n  "))
	}

	exe := filepath.Join(t.TempDir(), "embedder")
	run("build", "-trimpath", "-ldflags=-s -w", "-o", exe, program)
	info, err := os.Stat(exe)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d packages, %d bytes", len(packages), info.Size())
	if info.Size() > mostSize {
		t.Errorf("a program that imports only cluster has %d bytes, at most %d. New in the standard library:\n  %s\n"+
			"go build -ldflags=-dumpdep %s lists what the linker keeps, and why", info.Size(), mostSize, strings.Join(standard, "\n  "), program)
	}
}
