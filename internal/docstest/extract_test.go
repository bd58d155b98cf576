package docstest

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

const root = "../../"

// page is what a file has its reader type.
type page struct {
	commands []command // to be run
	mentions []string  // in running text, and all of go test: to be understood
}

// A command is a line that a reader types.
type command struct {
	line  string
	shows string // the remark behind it, or the block after it, which may be its output
}

var (
	// A command begins with one of these words, perhaps after variables or a cd.
	isCommand = regexp.MustCompile(`^(?:[A-Z_]+=\S+ |cd \S+ && )*(?:roost|curl|make|git|docker|kubectl|systemctl|sudo|apt-get|redis-cli|promtool|node \S+js|scripts/\S+|go (?:run|test|install|get|list|mod|build|tool|vet))(?: |$)`)
	isMention = regexp.MustCompile(`^(?:[A-Z]+=\S+ )*(?:roost|make|go run) `)
	isGoTest  = regexp.MustCompile(`\bgo test `)

	continued = regexp.MustCompile(`\\\n[#/\s]*`)
	span      = regexp.MustCompile("(?s)`([^`]+)`")
	remark    = regexp.MustCompile(`^(.*?)\s*(?:(?:^|\s)# (.*))?$`)
	or        = regexp.MustCompile(`\bor: (.+)$`)
	// Indented code of comments and help texts, where three spaces begin a remark.
	indented = regexp.MustCompile(`^\s*(?://|#)?(?:\t|  +)(\S.*?)(?:   .*)?$`)
)

// pages returns all files that have commands, by their paths.
func pages(t *testing.T) map[string]page {
	t.Helper()
	found := make(map[string]page)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		var p page
		switch {
		case name == "CHANGELOG.md": // it tells of the past
		case name == "docs/cli.md": // help texts
			p = commandsOfText(read(t, root+name))
		case strings.HasSuffix(name, ".md"):
			p = commandsOfMarkdown(read(t, root+name))
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"), strings.HasSuffix(name, ".mjs"), strings.HasPrefix(name, "deploy/"):
			p = commandsOfComments(read(t, root+name))
		}
		if len(p.commands)+len(p.mentions) > 0 {
			found[name] = p
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const help = "cmd/roost/testdata/help.txt"
	_, examples, _ := strings.Cut(read(t, root+help), "\nExamples:\n")
	examples, _, _ = strings.Cut(examples, "\n\n")
	found[help] = commandsOfText(examples)
	return found
}

// commandsOfMarkdown finds all lines of ```sh blocks, with what their remarks offer
// after "or:", all lines of other blocks that look like commands, and code spans that do.
// A block without a language right after one of ```sh is what its last line shows.
func commandsOfMarkdown(text string) (p page) {
	const none = "none"
	block, before := none, none
	var paragraph strings.Builder
	spans := func() {
		for _, m := range span.FindAllStringSubmatch(paragraph.String(), -1) {
			p.add(strings.Join(strings.Fields(m[1]), " "), "", true)
		}
		paragraph.Reset()
	}
	for line := range strings.Lines(continued.ReplaceAllString(text, "") + "\n") {
		typed := strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		language, fence := strings.CutPrefix(typed, "```")
		switch {
		case fence && block == none:
			spans()
			block = language
		case fence:
			block, before = none, block
		case block == "sh":
			p.addShell(typed)
		case block == "" && before == "sh":
			p.commands[len(p.commands)-1].shows += line
		case isCommand.MatchString(typed) && (block != none || strings.HasPrefix(line, "    ")):
			p.addShell(typed)
		case block != none:
		case strings.TrimSpace(line) == "":
			spans()
		default:
			before = none
			paragraph.WriteString(line)
		}
	}
	spans()
	return p
}

func (p *page) addShell(line string) {
	m := remark.FindStringSubmatch(line)
	if strings.HasPrefix(m[2], "Ctrl-C ") {
		m[1] = line
	}
	if m[1] != "" {
		p.add(m[1], m[2], false)
	}
	if alternative := or.FindStringSubmatch(m[2]); alternative != nil {
		p.add(alternative[1], "", false)
	}
}

// commandsOfComments finds indented lines of comments that look like commands.
func commandsOfComments(text string) (p page) {
	for line := range strings.Lines(continued.ReplaceAllString(text, "")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			continue
		}
		if m := indented.FindStringSubmatch(line); m != nil && isCommand.MatchString(m[1]) {
			p.add(m[1], "", false)
		}
	}
	return p
}

// commandsOfText finds indented lines that look like commands.
func commandsOfText(text string) (p page) {
	for line := range strings.Lines(text) {
		if m := indented.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && isCommand.MatchString(m[1]) {
			p.add(m[1], "", false)
		}
	}
	return p
}

func (p *page) add(line, shows string, inText bool) {
	switch {
	case inText && (!isCommand.MatchString(line) || !strings.Contains(line, " ")): // `make`
	case isGoTest.MatchString(line), inText && isMention.MatchString(line):
		p.mentions = append(p.mentions, line)
	default:
		p.commands = append(p.commands, command{line, shows})
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
