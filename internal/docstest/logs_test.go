package docstest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLogMessages: docs/log-messages.md lists each message that an agent, a program that embeds one, or a proxy
// can log, with its level, and no other message.
func TestLogMessages(t *testing.T) {
	logged := make(map[string][]string) // message -> levels
	for _, folder := range []string{"cluster", "cmd/roost", "internal/gossip", "internal/handoff", "internal/logqueue", "internal/node", "lease", "placement", "events"} {
		err := filepath.WalkDir(root+folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if message, level := messageOf(n); message != "" && !slices.Contains(logged[message], level) {
					logged[message] = append(logged[message], level)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// The call that logs these two messages has a variable for the message.
	logged["member left"], logged["member lost"] = []string{"info"}, []string{"warn"}

	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([a-z, ]+) \\| .{10,} \\|$")
	listed := make(map[string]bool)
	for _, m := range row.FindAllStringSubmatch(read(t, docs+"log-messages.md"), -1) {
		message, levels := m[1], strings.Split(m[2], ", ")
		listed[message] = true
		slices.Sort(logged[message])
		switch of := logged[message]; {
		case of == nil:
			t.Errorf("docs/log-messages.md: nothing logs %q", message)
		case !slices.Contains(of, "any") && !slices.Equal(of, levels):
			t.Errorf("docs/log-messages.md: %q has the levels %v, not %v", message, of, levels)
		}
	}
	for message, levels := range logged {
		if !listed[message] {
			t.Errorf("docs/log-messages.md does not list %q (%s)", message, strings.Join(levels, ", "))
		}
		if words := len(strings.Fields(message)); words > 8 {
			t.Errorf("%q has %d words: a message is a fixed text of at most eight, and its fields say the rest", message, words)
		}
	}
	if len(logged) < 80 {
		t.Errorf("only %d messages found", len(logged))
	}
}

// messageOf returns the message of a call of a logger, and its level: "any" if a variable holds it.
func messageOf(n ast.Node) (message, level string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	at, level := 0, "any" // the position of the message among the arguments
	switch name := nameOf(call.Fun); name {
	case "Debug", "Info", "Warn", "Error":
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !strings.EqualFold(nameOf(method.X), "log") {
			return "", ""
		}
		level = strings.ToLower(name)
	case "warn": // a method of a logger that limits how many lines it writes
		at, level = 1, name
	case "log":
		at = 1
	case "Log", "LogAttrs", "logAlways", "NewRecord":
		at = 2
	default:
		return "", ""
	}
	if at >= len(call.Args) {
		return "", ""
	}
	if at > 0 {
		of := strings.ToLower(strings.TrimPrefix(nameOf(call.Args[at-1]), "Level"))
		if slices.Contains([]string{"debug", "info", "warn", "error"}, of) {
			level = of
		}
	}
	text, ok := call.Args[at].(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", ""
	}
	message, err := strconv.Unquote(text.Value)
	if err != nil {
		return "", ""
	}
	return message, level
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr: // r.log() is a logger, too
		return nameOf(e.Fun)
	}
	return ""
}
