package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// docs/tutorial.md quotes the program. internal/docstest runs its commands.
func TestQuotes(t *testing.T) {
	program := read(t, "main.go")
	quotes := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, "../../docs/tutorial.md"), -1)
	if len(quotes) == 0 {
		t.Fatal("the page quotes nothing")
	}
	for _, quote := range quotes {
		if !strings.Contains(program, quote[1]) {
			t.Errorf("main.go does not have this any more:\n%s", quote[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
