package docstest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A note is about a block on a page. Readers of the page do not see it.
type note struct {
	kind    string // prints, skip, before, after
	fresh   bool   // the reader starts over before the block
	command string // of the block, as it is on the page
	text    string // the output, the reason, or the commands
}

var isNote = regexp.MustCompile(`^  (new before|before|after|prints|skip) (.*)\n$`)

// parseNotes reads the notes of all pages, in the order of each page.
func parseNotes(t *testing.T, text string) map[string][]note {
	t.Helper()
	all, page := make(map[string][]note), ""
	for line := range strings.Lines(text) {
		of := all[page]
		switch m := isNote.FindStringSubmatch(line); {
		case m != nil:
			n := note{kind: strings.TrimPrefix(m[1], "new "), fresh: m[1] == "new before", command: m[2]}
			if n.kind == "skip" {
				i := strings.LastIndex(m[2], ": ")
				if i < 0 {
					t.Fatalf("testdata/notes.txt: no reason: %s", line)
				}
				n.command, n.text = m[2][:i], m[2][i+2:]
			}
			all[page] = append(of, n)
		case strings.HasPrefix(line, "    ") && len(of) > 0:
			of[len(of)-1].text += strings.TrimPrefix(line, "    ")
		case strings.HasPrefix(line, " "):
			t.Fatalf("testdata/notes.txt: no note begins like this: %s", line)
		default:
			page = strings.TrimSpace(line)
			all[page] = nil
		}
	}
	return all
}

// apply applies the notes of a page. Each note is about the first block with its command, starting at the block of the
// previous note.
func (p *page) apply(notes []note) {
	at := 0
	for _, n := range notes {
		i := slices.IndexFunc(p.blocks[at:], func(b block) bool {
			return slices.ContainsFunc(b.commands, func(c command) bool { return c.line == n.command })
		})
		if i < 0 {
			p.problems = append(p.problems, fmt.Sprintf("no block has the command of a note in testdata/notes.txt: %s %s", n.kind, n.command))
			continue
		}
		at += i
		switch n.kind {
		case "prints":
			p.blocks[at].text += n.text + "…"
			at++
		case "skip":
			p.blocks[at].norun = n.text
		default:
			extra := page{blocks: []block{{fresh: n.fresh}}}
			for line := range strings.Lines(n.text) {
				extra.addShell(strings.TrimSpace(line))
			}
			if n.kind == "after" {
				at++
			}
			p.blocks = slices.Insert(p.blocks, at, extra.blocks[0])
			at++
		}
	}
}
