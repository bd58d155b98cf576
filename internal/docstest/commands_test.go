//go:build linux

package docstest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roost-cluster/roost/internal/agentproc/agenttest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }

// TestCommands runs the commands of the pages and compares the output.
func TestCommands(t *testing.T) {
	found := pages(t)
	for name, p := range found {
		for _, problem := range p.problems {
			t.Errorf("%s: %s", name, problem)
		}
	}
	bin := filepath.Dir(agenttest.Binary(t))
	for name, p := range found {
		for i, blocks := range sittings(p.blocks) {
			t.Run(fmt.Sprint(strings.ReplaceAll(name, "/", "_"), ":", i+1), func(t *testing.T) {
				t.Parallel()
				if err := newSitting(t, bin).sit(blocks); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sittings splits the blocks of a page wherever its reader starts over.
func sittings(blocks []block) (all [][]block) {
	for i, b := range blocks {
		if b.fresh || i == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], b)
	}
	return all
}

// TestFaults: the harness finds each kind of problem.
func TestFaults(t *testing.T) {
	for name, text := range map[string]string{
		"exit code":   "```sh\nfalse\n```\n",
		"output":      "```sh\necho a # => b\n```\n",
		"text":        "```sh\necho a\n```\n\n```text\nb\n```\n",
		"spans":       "Run `curl 127.0.0.1:1/` now.\n",
		"help":        "```\nusage\n\n  curl 127.0.0.1:1/    a remark\n```\n",
		"ends early":  "```sh\nroost agent --id a\n```\n",
		"other shell": "```bash\ntrue\n```\n",
		"plain block": "```\nroost version\n```\n",
		"option":      "```sh often\ntrue\n```\n",
	} {
		p := parseMarkdown(text)
		err := newSitting(t, t.TempDir()).sit(p.blocks)
		if err == nil && len(p.problems) == 0 {
			t.Errorf("%s: nothing is found wrong with\n%s", name, text)
		}
	}
	const right = "```sh\nX=1; echo a b # => a b\n```\n\n```text\na …\n```\n\nRun `curl 127.0.0.1:1/`.\n\n```sh norun: no\nfalse\n```\n"
	for notes, wrong := range map[string]bool{
		"  skip curl 127.0.0.1:1/: it is far away\n": false,
		"": true,
		"  skip curl 127.0.0.1:2/: no page has it\n  skip curl 127.0.0.1:1/: x\n":                                      true,
		"  prints X=1; echo a b\n    b\n  skip curl 127.0.0.1:1/: x\n":                                                 false,
		"  prints X=1; echo a b\n    c\n  skip curl 127.0.0.1:1/: x\n":                                                 true,
		"  new before X=1; echo a b\n    touch y\n  after X=1; echo a b\n    test -e y\n  skip curl 127.0.0.1:1/: x\n": false,
		"  before X=1; echo a b\n    false\n  skip curl 127.0.0.1:1/: x\n":                                             true,
	} {
		p := parseMarkdown(right)
		p.apply(parseNotes(t, "page\n"+notes)["page"])
		if err := newSitting(t, t.TempDir()).sit(p.blocks); (err != nil || len(p.problems) > 0) != wrong {
			t.Errorf("%v, %v with the notes\n%s", err, p.problems, notes)
		}
	}
}
