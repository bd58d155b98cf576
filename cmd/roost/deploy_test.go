package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
	"go.yaml.in/yaml/v3"
)

// TestSettingsReference: docs/settings.md is written from the settings.
func TestSettingsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Settings of roost agent

A setting comes from its flag, or else from its environment variable, or else from the
` + "`--config`" + ` file (YAML, the key is the flag's name without dashes in front), or else has its
default. An empty variable counts as none. Lists are separated by commas, or are YAML lists.

This page is written by ` + "`go test ./cmd/roost -run SettingsReference -update`" + `.

`)
	for _, group := range new(settings.Agent).Groups() {
		fmt.Fprintf(&b, "## %s\n\n| flag | variable | default | |\n|---|---|---|---|\n", group.Title)
		for _, s := range group.Settings {
			value := strings.ReplaceAll(s.Arg, "|", `\|`)
			if value == "bool" {
				value = ""
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n",
				strings.TrimSpace("--"+s.Name+" "+value), settings.Variable(s.Name), s.Default, strings.ReplaceAll(s.Usage, "|", `\|`))
		}
		b.WriteString("\n")
	}
	golden(t, "../../docs/settings.md", strings.TrimSuffix(b.String(), "\n"))
}

// TestDeployment: roost knows the commands and settings of the files under deploy/.
func TestDeployment(t *testing.T) {
	for path, wanted := range map[string]int{"kubernetes/roost.yaml": 2, "systemd/roost.service": 1} {
		b, err := os.ReadFile("../../deploy/" + path)
		if err != nil {
			t.Fatal(err)
		}
		commands := commandLines(t, path, b)
		if len(commands) != wanted {
			t.Errorf("%s runs %q, want %d commands", path, commands, wanted)
		}
		for _, args := range commands {
			if err := known(args); err != nil {
				t.Errorf("%s runs roost %q: %v", path, args, err)
			}
		}
		for _, name := range regexp.MustCompile(`ROOST_[A-Z_]+`).FindAllString(string(b), -1) {
			if !slices.ContainsFunc(new(settings.Agent).Settings(), func(s settings.Setting) bool { return settings.Variable(s.Name) == name }) {
				t.Errorf("%s sets %s, which roost agent does not know", path, name)
			}
		}
	}
}

// commandLines returns the arguments of all runs of roost.
func commandLines(t *testing.T, path string, b []byte) (all [][]string) {
	t.Helper()
	if strings.HasSuffix(path, ".service") {
		for _, m := range regexp.MustCompile(`(?m)^Exec\w+=\S*/roost (.*)$`).FindAllStringSubmatch(string(b), -1) {
			all = append(all, strings.Fields(m[1]))
		}
		return all
	}
	for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var doc any
		if err := d.Decode(&doc); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, commandsIn(doc)...)
	}
}

// commandsIn finds the arguments of /roost, and of the image's own entry point, in a
// manifest.
func commandsIn(node any) (all [][]string) {
	switch node := node.(type) {
	case map[string]any:
		for key, v := range node {
			var words []string
			list, _ := v.([]any)
			for _, w := range list {
				words = append(words, fmt.Sprint(w))
			}
			switch {
			case key == "command" && len(words) > 1 && words[0] == "/roost":
				all = append(all, words[1:])
			case key == "args" && node["image"] == "roost":
				all = append(all, words)
			default:
				all = append(all, commandsIn(v)...)
			}
		}
	case []any:
		for _, v := range node {
			all = append(all, commandsIn(v)...)
		}
	}
	return all
}
