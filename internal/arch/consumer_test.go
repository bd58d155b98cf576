package arch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestConsumerKeepsVersions adds package cluster to a program that uses memberlist and old
// versions of libraries. A requirement in our go.mod is the least version that every user
// gets, for any imports of ours. So requirements of tests alone sit in nested modules,
// and client_golang, which clusterprom needs, is held at the version that memberlist
// requires anyway.
func TestConsumerKeepsVersions(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	required := map[string]string{
		"github.com/chromedp/chromedp":        "v0.10.0",
		"github.com/prometheus/client_golang": "v1.20.0",
		"go.opentelemetry.io/otel":            "v1.30.0",
		memberlist:                            regexp.MustCompile(memberlist + ` (\S+)`).FindStringSubmatch(string(ours))[1],
	}
	imports := []string{
		"github.com/chromedp/chromedp", "github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel", memberlist,
	}
	before := versions(t, "", required, imports...)
	required[strings.TrimSuffix(module, "/")] = "v0.0.0"
	after := versions(t, fmt.Sprintf("replace %s => %s\n", strings.TrimSuffix(module, "/"), root), required, append(imports, module+"cluster")...)

	compared := 0
	for path, version := range before {
		if strings.Contains(path, "prometheus") || strings.Contains(path, "opentelemetry") || strings.Contains(path, "chromedp") {
			compared++
			if after[path] != version {
				t.Errorf("%s is raised from %s to %s", path, version, after[path])
			}
		}
	}
	if compared < 8 {
		t.Errorf("only %d modules were compared: %v", compared, before)
	}
	for _, path := range []string{"github.com/chromedp/chromedp", "go.opentelemetry.io/otel"} {
		if after[path] != required[path] {
			t.Errorf("%s %s becomes %s", path, required[path], after[path])
		}
	}
}

// versions returns the versions that go selects for a program.
func versions(t *testing.T, replace string, required map[string]string, imports ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	mod := "module example.com/program\n\ngo 1.26.0\n\n" + replace
	for path, version := range required {
		mod += "require " + path + " " + version + "\n"
	}
	for name, text := range map[string]string{
		"go.mod":  mod,
		"main.go": "package main\n\nimport (\n\t_ \"" + strings.Join(imports, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := func(args ...string) string {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-mod=mod"}, args...)...)
		cmd.Dir, cmd.Stderr = dir, &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
		}
		return string(out)
	}
	list("-deps", ".") // adds what go.mod lacks
	selected := make(map[string]string)
	for line := range strings.Lines(list("-m", "-f", "{{.Path}} {{.Version}}", "all")) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		selected[path] = version
	}
	return selected
}
