package arch

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// theirs are the versions that a program requires, a rate limiter that has used memberlist for years. A requirement in
// our go.mod is the minimum version for every user, no matter which of our packages the user imports.
var theirs = map[string]string{
	memberlist:                                "v0.5.1",
	"github.com/hashicorp/go-msgpack/v2":      "v2.1.1",
	"github.com/hashicorp/go-immutable-radix": "v1.3.1",
	"github.com/hashicorp/go-multierror":      "v1.1.1",
	"github.com/hashicorp/go-sockaddr":        "v1.0.2",
	"github.com/hashicorp/golang-lru":         "v0.5.4",
	"github.com/google/btree":                 "v1.1.1",
	"github.com/miekg/dns":                    "v1.1.50",
	"github.com/cespare/xxhash/v2":            "v2.3.0",
	"github.com/prometheus/client_golang":     "v1.13.0",
	"github.com/prometheus/client_model":      "v0.2.0",
	"github.com/prometheus/common":            "v0.37.0",
	"github.com/prometheus/procfs":            "v0.8.0",
	"github.com/spf13/pflag":                  "v1.0.5",
	"github.com/google/go-cmp":                "v0.7.0",
	"github.com/stretchr/testify":             "v1.11.1",
	"github.com/chromedp/chromedp":            "v0.10.0",
	"go.opentelemetry.io/otel":                "v1.30.0",
	"go.yaml.in/yaml/v3":                      "v3.0.4",
	"golang.org/x/net":                        "v0.60.0",
	"golang.org/x/sync":                       "v0.23.0",
	"golang.org/x/sys":                        "v0.48.0",
	"golang.org/x/text":                       "v0.42.0",
	"google.golang.org/grpc":                  "v1.67.0",
	"google.golang.org/protobuf":              "v1.36.11",
}

// TestConsumerKeepsVersions adds package cluster to that program, and checks which versions this changes.
func TestConsumerKeepsVersions(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	roost := strings.TrimSuffix(module, "/")
	before := versions(t, "", theirs)
	with := maps.Clone(theirs)
	with[roost] = "v0.0.0"
	after := versions(t, "replace "+roost+" => "+root+"\n", with)

	var changed []string
	for path, version := range before {
		if after[path] != version && after[path] != "" { // versions that no module requires anymore do not count
			changed = append(changed, path+" "+version+" becomes "+after[path])
		}
	}
	slices.Sort(changed)
	want := []string{
		"github.com/spf13/pflag v1.0.5 becomes v1.0.7", // for the binary
		"go.yaml.in/yaml/v3 v3.0.4 becomes v3.0.5",     // the minimum that the Redis client requires for its own tests
	}
	if !slices.Equal(changed, want) {
		t.Errorf("of the %d modules of a program, package cluster changes\n  %s\nwant\n  %s",
			len(before), strings.Join(changed, "\n  "), strings.Join(want, "\n  "))
	}
	for path, version := range theirs {
		if before[path] != version {
			t.Errorf("the program has %s %s, not the %s of the table: another of its modules requires that", path, before[path], version)
		}
	}
}

// versions returns the versions that go selects for a program with these requirements.
func versions(t *testing.T, replace string, required map[string]string) map[string]string {
	t.Helper()
	mod := "module example.com/program\n\ngo 1.26.0\n\n" + replace
	for path, version := range required {
		mod += "require " + path + " " + version + "\n"
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-m", "-f", "{{.Path}} {{.Version}}", "all")
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	selected := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		selected[path] = version
	}
	return selected
}
