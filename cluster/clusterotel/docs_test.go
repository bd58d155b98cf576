package clusterotel_test

import (
	"os"
	"strings"
	"testing"
)

// The code in docs/operations.md is part of the example, which compiles and runs.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Tracing\n")
	_, rest, _ := strings.Cut(section, "```go\n")
	snippet, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no section Tracing with Go")
	}
	for line := range strings.Lines(snippet) {
		if !strings.Contains(string(example), strings.TrimSpace(line)) {
			t.Errorf("not in the example: %s", line)
		}
	}
}
