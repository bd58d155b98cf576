package docstest

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../../"

// A page is a file with commands.
type page struct {
	blocks   []block  // to be run
	mentions []string // commands in running text, and all of go test
	problems []string // of the page
}

// A block is a run of commands.
type block struct {
	commands            []command
	text                string // the output of all of them
	norun               string // the reason
	fresh, stays, retry bool
}

// A command is a line that a reader types.
type command struct {
	line  string
	shows string // the output, if the line shows it
}

var (
	// A command begins with one of these words. Variables or a cd may come first.
	isCommand = regexp.MustCompile(`^(?:[A-Z_]+=\S+ |cd \S+ && )*(?:roost|curl|make|git|docker|kubectl|systemctl|sudo|apt-get|redis-cli|promtool|node \S+js|scripts/\S+|go (?:run|test|install|get|list|mod|build|tool|vet))(?: |$)`)
	isUsage   = regexp.MustCompile(`\[[^ ]*[a-z]+\]$|\[--out FILE\]$`)
	isShell   = regexp.MustCompile(`^(?:bash|shell|console|zsh)`)
	isMention = regexp.MustCompile(`^(?:[A-Z]+=\S+ )*(?:roost|make|go run) `)
	isGoTest  = regexp.MustCompile(`\bgo test `)

	continued = regexp.MustCompile(`\\\n[#/\s]*`)
	span      = regexp.MustCompile("(?s)`([^`]+)`")
	remark    = regexp.MustCompile(`^(.*?)\s*(?:(?:^|\s)# (.*))?$`)
	// Indented code of comments and help texts, where three spaces begin a remark.
	indented = regexp.MustCompile(`^\s*(?://|#)?(?:\t|  +)(\S.*?)(?:   .*)?$`)
)

// pages returns all files that have commands, by their paths.
func pages(t *testing.T) map[string]page {
	t.Helper()
	found, notes := make(map[string]page), parseNotes(t, read(t, "testdata/notes.txt"))
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") || name == "internal/docstest" {
				return fs.SkipDir
			}
			return nil
		}
		var p page
		switch {
		case name == "CHANGELOG.md": // it describes the past
		case strings.HasSuffix(name, ".md"):
			p = parseMarkdown(read(t, root+name))
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"), strings.HasSuffix(name, ".mjs"), strings.HasPrefix(name, "deploy/"):
			p = parseComments(read(t, root+name))
		}
		p.apply(notes[name])
		delete(notes, name)
		if len(p.blocks)+len(p.mentions)+len(p.problems) > 0 {
			found[name] = p
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range notes {
		t.Errorf("testdata/notes.txt: there is no page %s", name)
	}
	const help = "cmd/roost/testdata/help.txt"
	_, examples, _ := strings.Cut(read(t, root+help), "\nExamples:\n")
	examples, _, _ = strings.Cut(examples, "\n\n")
	found[help] = parseMarkdown("```\n" + examples + "\n```\n")
	return found
}

// section matches a fenced block.
var section = regexp.MustCompile("(?ms)^[ \t]*```([^\n]*)\n(.*?)^[ \t]*```[ \t]*$")

// parseMarkdown reads a page.
func parseMarkdown(text string) (p page) {
	text = continued.ReplaceAllString(text, "")
	at := 0
	for _, m := range section.FindAllStringSubmatchIndex(text, -1) {
		p.addText(text[at:m[0]])
		at = m[1]
		info, body := text[m[2]:m[3]], text[m[4]:m[5]]
		words, reason, _ := strings.Cut(info, "norun: ")
		switch kind, options, _ := strings.Cut(strings.TrimSpace(words), " "); kind {
		case "sh":
			p.begin(options, reason)
			for line := range strings.Lines(body) {
				p.addShell(strings.TrimSpace(line))
			}
		case "text":
			p.expect(body)
		default:
			p.begin("", "")
			p.addIndented(body)
			line, _, _ := strings.Cut(strings.TrimPrefix(body, "$ "), "\n")
			if isShell.MatchString(kind) || isCommand.MatchString(line) && !isUsage.MatchString(line) {
				p.problems = append(p.problems, "a block of commands that does not begin with ```sh: "+body)
			}
		}
	}
	p.addText(text[at:])
	return p.trimmed()
}

// addText finds commands in running text.
func (p *page) addText(text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.TrimSpace(paragraph) == "" {
			continue
		}
		p.begin("", "")
		for _, m := range span.FindAllStringSubmatch(paragraph, -1) {
			line := strings.Join(strings.Fields(m[1]), " ")
			switch {
			case !isCommand.MatchString(line) || !strings.Contains(line, " "): // `make`
			case isMention.MatchString(line):
				p.mentions = append(p.mentions, line)
			default:
				p.add(line, "")
			}
		}
	}
}

// addIndented finds the commands of help texts.
func (p *page) addIndented(text string) {
	for line := range strings.Lines(text) {
		m := indented.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m != nil && isCommand.MatchString(m[1]) && !isUsage.MatchString(m[1]) {
			p.add(m[1], "")
		}
	}
}

func (p *page) addShell(line string) {
	m := remark.FindStringSubmatch(line)
	if strings.HasPrefix(m[2], "Ctrl-C ") {
		m[1] = line
	}
	shows, _ := strings.CutPrefix(m[2], "=> ")
	if shows == m[2] {
		shows = ""
	}
	if m[1] != "" {
		p.add(m[1], shows)
	}
	if alternative, ok := strings.CutPrefix(m[2], "or: "); ok {
		p.add(alternative, "")
	}
}

// parseComments finds indented lines of comments that look like commands.
func parseComments(text string) (p page) {
	for line := range strings.Lines(continued.ReplaceAllString(text, "")) {
		line = strings.TrimSpace(line)
		if m := indented.FindStringSubmatch(line); m != nil && line != m[1] && isCommand.MatchString(m[1]) {
			p.begin("", "")
			p.add(m[1], "")
		}
	}
	return p.trimmed()
}

func (p *page) begin(words, norun string) {
	b := block{norun: norun}
	for word := range strings.FieldsSeq(words) {
		switch word {
		case "new":
			b.fresh = true
		case "stays":
			b.stays = true
		case "retry":
			b.retry = true
		default:
			p.problems = append(p.problems, "unknown option of a block: "+word)
		}
	}
	p.blocks = append(p.blocks, b)
}

// add adds a command to the last block.
func (p *page) add(line, shows string) {
	if isGoTest.MatchString(line) {
		p.mentions = append(p.mentions, line)
		return
	}
	b := &p.blocks[len(p.blocks)-1]
	b.commands = append(b.commands, command{line, shows})
}

// expect sets the output of the block just before. Other ```text blocks are no output.
func (p *page) expect(text string) {
	if len(p.blocks) > 0 && len(p.blocks[len(p.blocks)-1].commands) > 0 {
		p.blocks[len(p.blocks)-1].text += text + "…"
	}
}

// trimmed removes blocks without commands.
func (p page) trimmed() page {
	p.blocks = slices.DeleteFunc(p.blocks, func(b block) bool { return len(b.commands) == 0 && !b.fresh })
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
